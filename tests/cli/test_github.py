"""On GitHub Actions: annotations at the lines that failed, a summary, and no command of an agent's.

What a step prints is read here by the rules of the runner, `ActionCommand` of actions/runner.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindlm.cli import github as inert
from kindlm.history.run_view import RunView
from kindlm.reports.github_annotations import annotations_of

HOSTILE = (
    "::error file=evil,line=1::pwned\r\n  ::add-mask::delivered\n\u2003::stop-commands::x\n"
    "a ##[error]pwned ##[group]x ##VSO[task.prependpath]/tmp/evil"
)
SUITE = """\
kindlm: 1
project: shop
suite: { name: orders }
providers:
  fake: { type: scripted, replies: [{ text: %s }] }
models: [{ id: fake, provider: fake, model: fake-1 }]
prices: { fake-1: { input: 0, output: 0 } }
prompts: { ask: { user: hello } }
tests:
  - name: "greets: 100%%, always"
    prompt: ask
    expect:
      output:
        contains:
          - good day
"""
LINE = 15


class Said(NamedTuple):
    """A workflow command, as the runner reads it."""

    command: str
    properties: dict[str, str]
    data: str


def commands_in(output: str) -> list[Said]:
    """Return all workflow commands in what a step printed."""
    said = []
    for line in re.split("\r\n|\r|\n", output):
        stripped = line.lstrip()
        if not stripped.startswith("::"):
            assert "##[" not in line
            continue
        head, separator, data = stripped[2:].partition("::")
        assert separator
        command, _, properties = head.partition(" ")
        pairs = dict(pair.split("=", 1) for pair in properties.split(",") if pair)
        said.append(Said(command, {n: unescape(v) for n, v in pairs.items()}, unescape(data)))
    return said


def unescape(text: str) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


@pytest.fixture
def step(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A step of a job: where the suite of an agent that attacks is; returns the summary's file."""
    (here / ".git").mkdir()
    project = here / "agents" / "shop"
    project.mkdir(parents=True)
    text = SUITE % json.dumps(HOSTILE)
    (project / "kindlm.yaml").write_text(text, encoding="utf-8")
    assert "good day" in text.splitlines()[LINE - 1]
    monkeypatch.chdir(project)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary"))
    return here / "summary"


def test_a_failure_is_annotated_at_its_line_and_an_agent_gives_no_commands(
    kindlm: Any, step: Path
) -> None:
    outcome = kindlm("test", "--verbose")

    assert outcome.code == 1
    assert commands_in(outcome.out) == []
    failed, gate = commands_in(outcome.err)
    assert failed.command == "error"
    assert failed.properties == {
        "file": "agents/shop/kindlm.yaml",
        "line": str(LINE),
        "title": 'Missing in the answer: "good day"',
    }
    assert failed.data.startswith("greets: 100%, always · fake\nsaid: ")
    assert gate.properties["title"] == "Gate passRateMin"
    assert "line" not in gate.properties
    # What was said can still be read.
    shown = kindlm("show", "latest", "1").out
    assert r":\u003aerror file=evil" in shown
    assert r"##\u005berror]pwned" in shown


def test_no_command_lets_an_agent_speak(kindlm: Any, step: Path) -> None:
    for _ in range(2):
        kindlm("test", "-q")
    show = ("show", "latest", "1", "--verbose")
    for command in (show, ("report", "--verbose"), ("diff",), ("runs",)):
        outcome = kindlm(*command)
        assert commands_in(outcome.out + outcome.err) == []


def test_a_report_for_machines_is_alone_on_standard_output(kindlm: Any, step: Path) -> None:
    outcome = kindlm("test", "--reporter", "json")
    assert commands_in(outcome.out) == []
    (test,) = json.loads(outcome.out)["tests"]
    assert test["executions"][0]["output"] == HOSTILE
    assert len(commands_in(outcome.err)) == 2


def test_every_format_is_written_to_standard_output(kindlm: Any, step: Path) -> None:
    assert "<testsuites" in kindlm("test", "--reporter", "junit").out
    for form in ("terminal", "json", "junit", "markdown", "html", "sarif", "compliance"):
        outcome = kindlm("report", "--format", form)
        assert outcome.code == 0
        assert "kindlm itself failed" not in outcome.err
        assert outcome.out
        if form == "junit":
            root = ET.fromstring(outcome.out)
            # The test, and the gate of the pass rate.
            assert root.get("failures") == "2"


def test_without_github_nothing_is_annotated_or_written_out(
    kindlm: Any, step: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    outcome = kindlm("test")
    assert "::error file=agents" not in outcome.err
    assert r"\u003a" not in outcome.out
    assert not step.exists()


def test_the_summary_of_the_job_has_a_report_for_each_run(kindlm: Any, step: Path) -> None:
    for _ in range(2):
        assert kindlm("test", "-q").code == 1
    first, second = step.read_text("utf-8").split("### ❌ kindlm: FAILED\n")[1:]
    assert "Since run" not in first
    assert "#### Since run" in second


def test_a_summary_that_cannot_be_written_is_reported_and_changes_nothing(
    kindlm: Any, step: Path
) -> None:
    Path("kindlm.yaml").write_text(SUITE % '"good day"', encoding="utf-8")
    step.mkdir()
    outcome = kindlm("test")
    assert outcome.code == 0
    assert "The summary of the job was not written" in outcome.err


def test_a_suite_that_cannot_be_loaded_is_annotated(kindlm: Any, step: Path) -> None:
    text = Path("kindlm.yaml").read_text("utf-8")
    Path("broken.yaml").write_text(text.replace("expect:", "expct:"), encoding="utf-8")
    outcome = kindlm("test", "broken.yaml")
    assert outcome.code == 1
    (said,) = commands_in(outcome.err)
    assert said.properties["file"] == "agents/shop/broken.yaml"
    assert said.properties["line"] == "12"


def test_a_run_that_did_not_end_is_annotated_first(history: Any, make: Any) -> None:
    run = history.run(planned=2)
    run.suite(tests=[make.planned("bad", repeat=2)])
    run.execution("bad", assertions=(make.failed(line=7),))
    first, *others = annotations_of(run.abort("--max-time 2 was reached"), "agents/shop")
    assert (first.file, first.line, first.title) == ("agents/shop/kindlm.yaml", None, "Run aborted")
    assert first.message.startswith("--max-time 2 was reached; 1 of 2 executions did not finish")
    assert 7 in [other.line for other in others]


def test_github_shows_ten_errors_one_for_each_cause(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(f"t{i}", m) for i in range(12) for m in ("gpt", "claude")])
    for i in range(12):
        for model in ("gpt", "claude"):
            check = make.failed(label=f"hi {i}", line=100 + i)
            run.execution(f"t{i}", model, assertions=(check,))
    found = annotations_of(run.finish())
    assert [each.line for each in found] == list(range(100, 110))
    assert found[0].message.startswith("2 tests, 2 of 2 repeats\n")


def test_failures_that_are_tolerated_are_no_errors(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(
        tests=[make.planned("good"), make.planned("bad")], gates={"passRateMin": 0.5}, defaults={}
    )
    run.execution("good", assertions=(make.passed(),))
    run.execution("bad", assertions=(make.failed(),))
    view: RunView = run.finish()
    assert view.passed
    assert annotations_of(view) == []


PIECES = st.lists(st.text(":#[\n\r \u2003xvsoV", max_size=6), max_size=8)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(PIECES)
def test_in_whatever_pieces_text_is_written_no_line_is_a_command(pieces: list[str]) -> None:
    out, before = io.StringIO(newline=""), sys.stdout
    sys.stdout = out
    try:
        with inert.inert_output({"GITHUB_ACTIONS": "true"}):
            for piece in pieces:
                sys.stdout.write(piece)
    finally:
        sys.stdout = before
    assert commands_in(out.getvalue()) == []
    assert not re.search(r"##vso\[", out.getvalue(), re.IGNORECASE)
    restored = out.getvalue().replace(r"\u003a", ":").replace(r"\u005b", "[")
    assert restored == "".join(pieces)


@pytest.mark.parametrize("pieces", [["a ##vso[task.x]"], ["a ##", "vso[task.x]"], ["##vs", "o[x]"]])
def test_no_command_reaches_azure_pipelines(
    pieces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with inert.inert_output({"TF_BUILD": "True"}):
        for piece in pieces:
            sys.stdout.write(piece)
    assert out.getvalue() == "".join(pieces).replace("[", r"\u005b")


def test_a_file_gets_the_text_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w+", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with inert.inert_output({"GITHUB_ACTIONS": "true"}):
            sys.stdout.write("::error::x\n")
        file.seek(0)
        assert file.read() == "::error::x\n"
