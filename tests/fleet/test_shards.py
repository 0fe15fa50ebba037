"""How a run is divided into shards, and which of them goes first."""

from __future__ import annotations

import pytest
import typer
from suites import make_suite

from kindlm.cli.run_options import parse_shard
from kindlm.fleet.coordinator import Took, longest_first, shard_count
from kindlm.plan import Plan, make_plan
from kindlm.suite import Case, Prompt


def plan_of(names: str, **fields: int) -> Plan:
    cases = (
        Case(name, prompt=Prompt("hi"), targets=("m",), repeat=fields.get(name, 1))
        for name in names
    )
    return make_plan([make_suite(*cases)])


def took(**tests: float) -> Took:
    return {("kindlm.yaml", test, "m"): ms for test, ms in tests.items()}


def test_there_are_four_shards_a_worker_and_never_more_than_tests() -> None:
    assert shard_count(plan_of("abcdefghij"), 2) == 8
    assert shard_count(plan_of("abc", a=100), 2) == 3


def test_the_shard_that_takes_longest_goes_first() -> None:
    plan = plan_of("abcdef")
    assert longest_first(plan, 3, took(a=1, b=9, c=2, d=1, e=1, f=2)) == [2, 3, 1]


def test_repeats_count() -> None:
    assert longest_first(plan_of("abc", c=5), 3, took(a=2, b=3, c=1)) == [3, 2, 1]


def test_what_the_history_does_not_know_takes_as_long_as_the_others() -> None:
    assert longest_first(plan_of("abcd"), 4, took(a=1, c=9)) == [3, 2, 4, 1]
    assert longest_first(plan_of("abc"), 3, {}) == [1, 2, 3]


def test_there_are_no_more_shards_than_a_history_takes_from_elsewhere() -> None:
    assert parse_shard("5/9999") == (5, 9_999)
    with pytest.raises(typer.Exit):
        parse_shard("5/10000")
