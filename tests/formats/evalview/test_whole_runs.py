"""Cases from the command line to the report: `--compat`, variance, and where tests are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kindlm.cli.app import run

Call = Callable[..., tuple[int, dict[str, Any]]]

# EvalView tells of the text that is not there, and passes the test by its score.
CASE = """\
name: {name}
input: {{query: "What of it?"}}
expected:
  output: {{contains: [Paris]}}
thresholds: {{min_score: 40{more}}}
"""


@pytest.fixture
def project(tmp_path: Path, agent: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("KINDLM_DB", "CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".evalview").mkdir()
    (tmp_path / ".evalview" / "config.yaml").write_text(f"endpoint: {agent.url}\n", "utf-8")
    (tmp_path / "tests").mkdir()
    return tmp_path


@pytest.fixture
def call(project: Path) -> Call:
    """Call a command that runs tests; return its exit code and its JSON report."""

    def called(command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        code = run([command, *arguments, "--no-progress", "-q", "--reporter", "json=report.json"])
        return code, json.loads((project / "report.json").read_text("utf-8"))

    return called


def write(project: Path, name: str = "a", more: str = "") -> None:
    (project / "tests" / f"{name}.yaml").write_text(CASE.format(name=name, more=more), "utf-8")


def test_the_verdict_of_evalview_decides_and_both_are_shown_where_they_differ(
    project: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project)
    code, report = call("test", "tests")
    assert (code, report["tests"][0]["verdicts"]) == (1, None)
    code, report = call("test", "tests", "--compat", "evalview")
    assert (code, report["tests"][0]["status"]) == (0, "passed")
    assert report["tests"][0]["verdicts"] == {"n": 1, "evalview": 1, "kindlm": 0, "differ": 1}
    capsys.readouterr()
    assert run(["show", report["run"]["id"]]) == 0
    told = capsys.readouterr().out
    assert "a · http  EvalView: 1 of 1 pass, kindlm: 0 of 1" in told


@pytest.mark.parametrize("command", ["rescore", "replay"])
def test_what_is_made_of_a_run_is_judged_as_that_run_was(
    project: Path, call: Call, command: str
) -> None:
    write(project)
    call("test", "tests", "--compat", "evalview")
    paths = ["tests"] if command == "replay" else []
    code, report = call(command, *paths)
    assert (code, report["tests"][0]["verdicts"]["differ"]) == (0, 1)
    code, report = call(command, *paths, "--compat", "none")
    assert (code, report["tests"][0]["verdicts"]) == (1, None)


def test_a_resumed_run_is_judged_as_it_began(
    project: Path, agent: Any, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        write(project, name, ", max_latency: 60000")
    code, report = call("test", "tests", "--compat", "evalview", "--max-time", "0")
    assert report["run"]["status"] == "aborted"
    code, report = call("test", "--resume")
    assert code == 0
    assert {test["verdicts"]["differ"] for test in report["tests"]} == {1}
    assert run(["test", "--resume", "--compat", "evalview"]) == 1
    assert "cannot be combined with --compat" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ("min_mean_score: 60", "passed"),
        ("min_mean_score: 90", "failed"),
        ("max_std_dev: 0", "passed"),
    ],
)
def test_variance_binds(project: Path, call: Call, limits: str, status: str) -> None:
    write(project, "b", f", variance: {{runs: 3, confidence_level: 0.9, {limits}}}")
    text = (project / "tests" / "b.yaml").read_text("utf-8")
    (project / "tests" / "b.yaml").write_text(text.replace("Paris", "asked"), "utf-8")
    code, report = call("test", "tests")
    (test,) = report["tests"]
    assert (test["status"], code) == (status, int(status == "failed"))
    assert (test["file"], test["line"]) == ("tests/b.yaml", 1)
    assert bool(test["brokenLimits"]) is (status == "failed")
    assert (test["repeats"]["n"], test["repeats"]["confidence"]) == (3, 0.9)
    assert test["repeats"]["weightedScore"]["stdDev"] == 0


def test_a_judge_that_is_not_there_is_reported_once_and_where_to_write_it(
    project: Path, call: Call
) -> None:
    write(project)
    path = project / "tests" / "a.yaml"
    path.write_text(f"{path.read_text('utf-8')}checks: {{hallucination: true}}\n", "utf-8")
    _, report = call("test", "tests")
    (told,) = [
        item["message"]
        for item in report["tests"][0]["executions"][0]["assertions"]
        if item["kind"] == "hallucination"
    ]
    assert told.count("could not be asked") == 1
    assert "or EvalView's `judge`." in told
