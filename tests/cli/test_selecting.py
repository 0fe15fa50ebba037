"""What `kindlm test` selects, what `kindlm list` shows of it, and what later runs make of it."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kindlm.errors import Err, Ok
from kindlm.plan import parse_keywords

SUITE = """
kindlm: 1
project: shop
suite: { name: support, tags: [nightly] }
providers: { fake: { type: scripted, replies: [{ text: hello }] } }
models:
  - { id: gpt, provider: fake, model: m }
  - { id: claude, provider: fake, model: m }
prompts: { ask: { user: hi } }
defaults: { repeat: 2 }
tests:
  - { name: refund, prompt: ask, tags: [money], expect: { output: { contains: [hello] } } }
  - { name: refund-double, prompt: ask, expect: { output: { contains: [hello] } } }
  - { name: "it's late", prompt: ask, expect: { output: { contains: [bye] } } }
"""


@pytest.fixture(autouse=True)
def suite(here: Path) -> None:
    (here / "kindlm.yaml").write_text(SUITE, "utf-8")


def selected(kindlm: Any, *arguments: str) -> set[tuple[str, str]]:
    """The tests that a selection lists, by name and target."""
    listed = json.loads(kindlm("list", "--format", "json", *arguments).out)
    return {
        (test["name"], target)
        for suite in listed["suites"]
        for test in suite["tests"]
        for target in test["targets"]
    }


def names(kindlm: Any, *arguments: str) -> set[str]:
    return {name for name, _ in selected(kindlm, *arguments)}


def test_a_whole_name_selects_that_test_alone_and_a_part_every_test_with_it(kindlm: Any) -> None:
    assert names(kindlm, "-t", "Refund") == {"refund"}
    assert names(kindlm, "-t", "refun") == {"refund", "refund-double"}
    assert names(kindlm, "-t", "refund", "-t", "late") == {"refund", "it's late"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MONEY and not gpt", {("refund", "claude")}),
        ("gpt and (late or double)", {("it's late", "gpt"), ("refund-double", "gpt")}),
        ('"it\'s late" and gpt or money and claude', {("it's late", "gpt"), ("refund", "claude")}),
        ("nightly and 'and'", set()),
    ],
)
def test_an_expression_selects_by_names_of_suite_test_target_and_tags(
    kindlm: Any, expression: str, expected: set[tuple[str, str]]
) -> None:
    assert selected(kindlm, "-k", expression) == expected


@pytest.mark.parametrize(
    "expression",
    ["", "a and", "a or and b", "a b", "a (b)", "()", "(a or b", "a)", "not", "-a b", "(" * 1000],
)
def test_a_faulty_expression_is_refused(expression: str) -> None:
    found = parse_keywords(expression)
    assert isinstance(found, Err)
    assert "is not a valid expression" in found.error.message


def test_an_expression_may_nest_as_deep_as_it_may_be_long() -> None:
    assert isinstance(parse_keywords("not " * 199 + "a"), Ok)


def test_the_list_shows_targets_repeats_and_tags_and_runs_nothing(kindlm: Any, here: Path) -> None:
    outcome = kindlm("list", "--tags", "money", "--repeat", "3")
    assert outcome.out == (
        "support  kindlm.yaml\n"
        "  refund  gpt, claude  × 3  tags: nightly, money\n"
        "1 test, 6 executions\n"
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert not (here / ".kindlm").exists()
    assert kindlm("list", "-k", "nothing").code == 1


@pytest.mark.parametrize(
    "tags", ["money,other", "other, money", "money --tags other", "Money,OTHER"]
)
def test_each_tag_selects_its_tests_in_whatever_form(kindlm: Any, here: Path, tags: str) -> None:
    options = tags.split(" --tags ")
    outcome = kindlm("list", *(word for each in options for word in ("--tags", each)))
    assert "  refund  " in outcome.out


def test_each_suite_that_is_named_is_run(kindlm: Any, here: Path) -> None:
    again = (here / "kindlm.yaml").read_text("utf-8").replace("support", "again", 1)
    (here / "again.yaml").write_text(again, "utf-8")
    outcome = kindlm("list", "-c", "kindlm.yaml", "--config", "again.yaml")
    assert re.findall(r"^\w+  (\S+\.yaml)$", outcome.out, re.MULTILINE) == [
        "kindlm.yaml",
        "again.yaml",
    ]


def test_x_stops_at_the_failure_and_lf_runs_only_that_test(kindlm: Any) -> None:
    stopped = kindlm("test", "-q", "-x", "-j", "1", "-k", "gpt", "--reporter", "json")
    assert json.loads(stopped.out)["run"]["status"] == "interrupted"
    again = json.loads(kindlm("test", "-q", "--lf", "--reporter", "json").out)
    assert [(test["name"], test["target"]) for test in again["tests"] if test["executions"]] == [
        ("it's late", "gpt")
    ]


def test_a_run_goes_on_with_its_expression_and_takes_no_other(kindlm: Any, here: Path) -> None:
    begun = kindlm("test", "-q", "-x", "-j", "1", "-k", "gpt", "--reporter", "json")
    refused = kindlm("test", "-q", "--resume", "kindlm.yaml", "-k", "claude")
    assert "--resume cannot be combined with -k." in refused.err
    # Another run that was stopped later: the one of the named file goes on.
    other = here / "other"
    other.mkdir()
    (other / "kindlm.yaml").write_text(SUITE.replace("support", "others"), "utf-8")
    kindlm("test", "-q", "-x", "-j", "1", "other")
    resumed = kindlm("test", "-q", "--resume", "kindlm.yaml", "--reporter", "json")
    report = json.loads(resumed.out)
    assert report["run"]["id"] == json.loads(begun.out)["run"]["id"]
    assert report["run"]["status"] == "failed"
    assert report["summary"]["executions"]["total"] == 6


def test_a_run_whose_names_mean_other_tests_by_now_does_not_go_on(kindlm: Any, here: Path) -> None:
    kindlm("test", "-q", "--max-time", "0", "-t", "refun")
    with closing(sqlite3.connect(here / ".kindlm" / "kindlm.db")) as db, db:
        # Earlier versions recorded this for the same tests.
        db.execute("DROP TRIGGER events_update")
        db.execute("UPDATE events SET data = replace(data, '\"refun\"', '\"refund\"')")
    resumed = kindlm("test", "-q", "--resume")
    assert resumed.code == 1
    assert "the tests of suite 'support' are not the same" in resumed.err


@pytest.mark.parametrize(
    ("arguments", "as_pytest"),
    [
        (("-k", "gpt and refund"), 0),
        (("-k", "late"), 1),
        (("-k", "nothing"), 5),
        (("--lf",), 4),
        (("--no-such-option",), 4),
        (("-k", "nothing", "--label", "not --exit-codes kindlm"), 5),
    ],
)
def test_exit_codes_are_0_and_1_unless_those_of_pytest_are_wanted(
    kindlm: Any,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    as_pytest: int,
) -> None:
    assert kindlm("test", *arguments).code == min(as_pytest, 1)
    assert kindlm("test", *arguments, "--exit-codes", "pytest").code == as_pytest
    monkeypatch.setenv("KINDLM_EXIT_CODES", "pytest")
    assert kindlm("test", *arguments, "--exit-codes=kindlm").code == min(as_pytest, 1)
    monkeypatch.delenv("KINDLM_EXIT_CODES")
    (here / "kindlm.toml").write_text('exit_codes = "pytest"\n', "utf-8")
    assert kindlm("test", *arguments).code == as_pytest


def test_unknown_exit_codes_of_a_variable_are_named(
    kindlm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINDLM_EXIT_CODES", "pyest")
    for command in (("test",), ("test", "-k", "nothing")):
        outcome = kindlm(*command)
        assert (outcome.code, outcome.out) == (1, "")
        assert "The exit codes 'pyest' are unknown" in outcome.err
        assert not Path(".kindlm/kindlm.db").exists()
    monkeypatch.setenv("KINDLM_EXIT_CODES", "")
    assert "exit codes" not in kindlm("test").err


def test_a_shard_that_a_variable_left_empty_is_refused(kindlm: Any) -> None:
    outcome = kindlm("test", "--shard", "")
    assert outcome.code == 1
    assert "--shard '' is not a shard." in outcome.err
    assert not Path(".kindlm/kindlm.db").exists()


@pytest.mark.parametrize("command", ["rescore", "history verify", "history merge"])
def test_a_name_that_no_file_can_have_is_no_crash(kindlm: Any, command: str) -> None:
    kindlm("test")
    outcome = kindlm(*command.split(), "a" * 300)
    assert outcome.code == 1
    assert "itself failed" not in outcome.err
    assert "a" * 60 in outcome.err


def test_a_tag_that_no_test_has_is_told_beside_others(kindlm: Any, here: Path) -> None:
    outcome = kindlm("list", "--tags", "money,mony,")
    assert outcome.code == 0
    assert "No test has the tag 'mony'." in outcome.err
    assert "No test" not in kindlm("list", "--tags", "money,", "--tags", "nightly").err


def test_a_shard_with_leading_zeros_is_recorded_as_any_server_takes_it(kindlm: Any) -> None:
    kindlm("test", "--shard", "01/02", "--run-group", "nightly", "-q")
    with closing(sqlite3.connect(".kindlm/kindlm.db")) as db:
        assert db.execute("SELECT shard FROM runs").fetchall() == [("1/2",)]
    assert "'00/2' is not a shard" in kindlm("test", "--shard", "00/2").err
