"""`<<` in YAML: what it refers to is part of the mapping, where it is written, and no further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

CASES = """\
- &base
  name: first
  endpoint: http://127.0.0.1:9/ask
  input: {query: What is it?}
  expected: {tools: [search]}
  thresholds: &limits {min_score: 70, max_cost: 1}
- <<: *base
  name: second
  thresholds: {<<: [{max_cost: 3}, *limits], max_latency: 9}
"""


def test_merged_keys_are_those_of_the_mapping_and_its_own_go_first(
    load: Callable[..., Any],
) -> None:
    first, second = load(CASES).only.cases
    assert (first.name, second.name) == ("first", "second")
    assert second.agent == first.agent
    limits = {item.kind: item.check for item in second.expectations}
    assert limits["cost"].max_usd == 3
    assert limits["latency"].max_ms == 9
    assert limits["weighted_score"].min_score == 70
    (called,) = [item for item in second.expectations if item.kind == "tool_called"]
    assert called.where.line == 5


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (CASES.replace("max_latency: 9", "max_latency: 9, max_latency: 8"), 9, "occurs twice"),
        (CASES.replace("  name: second\n", "  <<: *base\n  name: second\n"), 8, "occurs twice"),
        (CASES.replace("*limits]", "4]"), 9, "must be a mapping"),
        (CASES.replace("*base", "*bsae"), 7, "refers to nothing"),
        (CASES.replace("min_score: 70", "min_score: x"), 6, "number"),
    ],
)
def test_what_is_wrong_is_reported_where_it_is_written(
    load: Callable[..., Any], text: str, line: int, said: str
) -> None:
    told = [
        item.error.message
        for item in load(text).diagnostics
        if item.error.where.line == line and item.severity == "error"
    ]
    assert any(said in message for message in told), load(text).diagnostics


def test_what_is_merged_counts_as_often_as_it_is_used(
    load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm.yaml_document.MAX_NODES", 5_000)
    many = ", ".join(f"k{at}: {at}" for at in range(100))
    text = f"- &a {{{many}}}\n" + "- {<<: *a}\n" * 100
    (problem,) = load(text).diagnostics
    assert "counting each use of an alias" in problem.error.message


def test_the_configuration_may_have_them_too(load: Callable[..., Any], case_text: str) -> None:
    config = "headers: {<<: [], A: b}\ntool_categories: {<<: {find: [search]}}\n"
    case = load({".evalview/config.yaml": config, "case.yaml": case_text}).case
    assert case.agent.headers == {"A": "b"}
