"""`kindlm show` and `kindlm report`: any recorded run, any time."""

from __future__ import annotations

import json
import sqlite3
import xml.etree.ElementTree as ET
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compared_runs import record_run


def record(history: Any, make: Any, run: str = "k3f9x2ab", output: str = "Hi there.") -> None:
    writer = history.run(run)
    writer.suite(tests=[make.planned()])
    writer.execution(
        output=output,
        assertions=(make.failed(),),
        tools=(("lookup_order", {"order_id": "A1"}, {"status": "sent"}),),
    )
    writer.finish()


@pytest.mark.parametrize(
    "command",
    [("diff", "", "latest"), ("diff", "--before", ""), ("settle", "", "")],
)
def test_a_variable_that_is_not_set_names_no_run(
    kindlm: Any, history: Any, make: Any, command: tuple[str, ...]
) -> None:
    for run in ("aaaa2222", "bbbb3333"):
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        writer.execution()
        writer.finish()
    outcome = kindlm(*command, "--db", history.path)
    assert (outcome.code, outcome.out) == (1, "")
    assert "There is no run ''" in outcome.err


def test_a_name_that_is_too_long_for_a_file_is_an_error(kindlm: Any) -> None:
    for words in (("runs",), ("verify",)):
        outcome = kindlm(*words, "--db", "x" * 300)
        assert outcome.code == 1
        assert outcome.err.startswith("✗ File name too long: ")
        assert "xxx" in outcome.err


def test_what_another_program_removed_is_named_and_made_anew(
    kindlm: Any, history: Any, make: Any
) -> None:
    record(history, make)
    with closing(sqlite3.connect(history.path)) as raw:
        raw.execute("DROP TABLE run_labels")
    outcome = kindlm("show", "latest", "--db", history.path)
    assert outcome.code == 1
    assert "no such table: run_labels" in outcome.err
    assert "kindlm history rebuild" in outcome.err
    assert kindlm("rebuild", "--db", history.path).code == 0
    assert kindlm("verify", "--db", history.path).code == 0
    assert kindlm("show", "latest", "--db", history.path).code == 0


def test_the_latest_run_is_shown(kindlm: Any, history: Any, make: Any) -> None:
    record(history, make, "k3f9x2ab")
    record(history, make, "m2aaaaaa")
    outcome = kindlm("show", "--db", history.path)
    assert outcome.code == 0
    assert "run m2aaaaaa" in outcome.out
    assert "kindlm diff k3f9x2ab m2aaaaaa" in outcome.out


def test_runs_are_found_by_id_beginning_and_label(kindlm: Any, history: Any, make: Any) -> None:
    record(history, make, "k3f9x2ab")
    record(history, make, "k3zzzzzz")
    history.label("k3f9x2ab", "before the change")
    for name in ("k3f9x2ab", "k3f", "before the change"):
        assert "k3f9x2ab" in kindlm("show", name, "--db", history.path).out
    ambiguous = kindlm("show", "k3", "--db", history.path)
    assert ambiguous.code == 1
    assert "k3zzzzzz" in ambiguous.err
    assert kindlm("show", "nothing", "--db", history.path).code == 1


def test_an_execution_is_shown_with_its_transcript(kindlm: Any, history: Any, make: Any) -> None:
    record(history, make)
    for name in ("1", "k3f9x2ab-1"):
        outcome = kindlm("show", "latest", name, "--db", history.path)
        assert outcome.code == 0
        for part in ("You are kind.", "Hello!", "lookup_order", "A1", "Hi there.", "contains hi"):
            assert part in outcome.out


def test_an_execution_that_is_not_there_is_an_error(kindlm: Any, history: Any, make: Any) -> None:
    record(history, make)
    outcome = kindlm("show", "latest", "99", "--db", history.path)
    assert (outcome.code, outcome.out) == (1, "")
    assert "'99'" in outcome.err


def test_reports_are_written_in_every_form(
    kindlm: Any, history: Any, make: Any, here: Path
) -> None:
    record(history, make)
    shown = kindlm("report", "--format", "json", "--db", history.path)
    # A report that could be written is a success, whatever it tells.
    assert (shown.code, shown.err) == (0, "")
    assert json.loads(shown.out)["run"]["id"] == "k3f9x2ab"
    written = kindlm("report", "k3f", "--format", "junit", "-o", "out/r.xml", "--db", history.path)
    assert (written.code, written.out) == (0, "")
    assert ET.parse(here / "out" / "r.xml").getroot().tag == "testsuites"
    assert "k3f9x2ab" in kindlm("report", "--run-id", "k3f9x2ab", "--db", history.path).out


@pytest.mark.parametrize(
    "command",
    [
        ("report", "k3f", "--run-id", "k3f9x2ab"),
        ("diff", "a", "--before", "b"),
        ("diff", "a", "b", "--after", "c"),
    ],
)
def test_a_run_is_named_once(kindlm: Any, command: tuple[str, ...]) -> None:
    outcome = kindlm(*command)
    assert (outcome.code, outcome.out) == (1, "")
    assert " is named twice.\n" in outcome.err


def test_a_long_text_arrives_whole_through_a_pipe(process: Any, history: Any, make: Any) -> None:
    text = "ä" * 300_000
    record(history, make, output=text)
    started = process("report", "--format", "json", "--db", history.path)
    out, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (0, b"")
    assert len(out) > 600_000
    (test,) = json.loads(out)["tests"]
    assert test["executions"][0]["output"] == text


def test_escape_sequences_of_an_agent_do_not_reach_the_terminal(
    kindlm: Any, history: Any, make: Any
) -> None:
    record(history, make, output="\x1b]0;owned\x07\x1b[2Jhello")
    for arguments in (["show"], ["show", "latest", "1"], ["show", "latest", "1", "--verbose"]):
        assert "\x1b" not in kindlm(*arguments, "--db", history.path).out


@pytest.mark.parametrize("command", ["show", "report"])
def test_what_changed_is_shown_by_the_threshold_of_the_project(
    kindlm: Any, here: Path, history: Any, make: Any, command: str
) -> None:
    for run, score in (("before", 0.95), ("after", 0.75)):
        check = make.passed("judge", "is kind", score=score, threshold=0.5)
        record_run(history, run, {"greets": [{"assertions": (check, make.failed())}] * 12})
    shown = kindlm(command, "after", "--db", history.path).out
    assert "Since before: 1 test" in shown
    (here / "kindlm.toml").write_text("[diff]\nregression_threshold = 0.5\n", "utf-8")
    shown = kindlm(command, "after", "--db", history.path).out
    assert "Since before: 1 as before" in shown
