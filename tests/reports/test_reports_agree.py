"""All reports of a run tell the same verdict and the same counts."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from recorded_history import Make, RunWriter

from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.github_annotations import annotations_of

PASSED = {"assertions": (Make.passed(),)}
FAILED = {"assertions": (Make.failed(),)}
ERRORED = {"output": None, "error": ("PROVIDER_TIMEOUT", 203, "It took too long.", None)}
UNDECIDED = {"assertions": (Make.failed(outcome="inconclusive", score=None),)}
SKIPPED = {"status": Status.SKIPPED}
CUT_OFF = {"finished": False}

RUNS: dict[str, Callable[[Any], RunView]] = {
    "passed": lambda new: new(PASSED, PASSED, SKIPPED).finish(),
    "failed": lambda new: new(PASSED, FAILED, PASSED).finish(),
    "errored": lambda new: new(PASSED, ERRORED, PASSED).finish(),
    "undecided": lambda new: new(PASSED, UNDECIDED, PASSED).finish(),
    "tolerated": lambda new: new(PASSED, FAILED, gates={"passRateMin": 0.5}).finish(),
    "costs too much": lambda new: new(PASSED, gates={"costMaxUsd": 0.0001}).finish(),
    "nothing measured": lambda new: new(PASSED, gates={"judgeAvgMin": 0.5}).finish(),
    "all skipped": lambda new: new(SKIPPED, SKIPPED).finish(),
    "interrupted": lambda new: new(PASSED, CUT_OFF, None).interrupt(),
    "aborted": lambda new: new(PASSED, FAILED, None).abort("--max-cost 1 was exceeded"),
    "killed": lambda new: new(PASSED, CUT_OFF).leave(),
    "killed at its end": lambda new: new(PASSED, PASSED).leave(),
    "incomplete": lambda new: new(PASSED, shard="1/2", group="nightly").finish(),
    "without a result": lambda new: new(PASSED, CUT_OFF).finish(),
}
"""Runs by what came of them; None is an execution that did not begin."""


@pytest.fixture
def new(history: Any) -> Callable[..., RunWriter]:
    """Write a run of a test for each of these results."""

    def written(
        *results: dict[str, Any] | None, gates: dict[str, float] | None = None, **started: Any
    ) -> RunWriter:
        run: RunWriter = history.run("k3f9x2ab", planned=len(results), **started)
        names = [f"t{number}" for number in range(len(results))]
        run.suite(tests=[Make.planned(name) for name in names], gates=gates)
        for name, result in zip(names, results, strict=True):
            if result is not None:
                run.execution(name, **result)
        return run

    return written


def counts_in(text: str) -> dict[str, int]:
    """Return the counts in words, such as `3: 2 passed, 1 not run`, as those of the JSON report."""
    found: Counter[str] = Counter()
    for number, word in re.findall(r"(\d+) ([a-z ]+)", text.partition(": ")[2]):
        found["skipped" if word == "not run" else word] += int(number)
    statuses = ("passed", "failed", "errored", "skipped")
    return {"total": found.total(), **{status: found[status] for status in statuses}}


@pytest.mark.parametrize("kind", RUNS)
def test_all_reports_agree(kind: str, new: Any, history: Any, write: Any) -> None:
    view = RUNS[kind](new)
    if view.shard_of is not None:
        view = RunView(history.reader(), view.shard_of)
    report = json.loads(write(view, "json"))
    status, tests = report["run"]["status"], report["summary"]["tests"]
    assert (status == "passed") is view.passed
    assert report["gates"]["passed"] or status != "passed"

    terminal = write(view, "terminal", verbose=True, width=200)
    assert re.search(rf"^{status.upper()}: \S", terminal, re.MULTILINE)
    (told,) = re.findall(r"^  tests +(.+)", terminal, re.MULTILINE)
    assert counts_in(told) == tests
    assert f"kindlm: {status.upper()}\n" in write(view, "markdown")
    page = html.unescape(write(view, "html"))
    assert f"<title>{status.upper()}: " in page
    assert f'<th scope="row">tests</th><td>{told}</td>' in page
    evidence = write(view, "compliance")
    assert "**NOT TESTED:" in evidence or f"**{status.upper()}:" in evidence

    root = ET.fromstring(write(view, "junit"))
    of_tests = root.find("testsuite")
    assert of_tests is not None
    in_junit = [int(of_tests.get(name, "")) for name in ("tests", "failures", "errors", "skipped")]
    assert in_junit == [tests[name] for name in ("total", "failed", "errored", "skipped")]
    wrong = int(root.get("failures", "")) + int(root.get("errors", ""))
    assert (wrong == 0) is (status == "passed" and not tests["failed"])

    levels = [annotation.level for annotation in annotations_of(view)]
    assert ("error" in levels) is (status != "passed")
    (run,) = json.loads(write(view, "sarif"))["runs"]
    has_errors = bool(report["errors"] or report["summary"]["executions"]["errored"])
    assert run["invocations"][0]["executionSuccessful"] is not has_errors
