"""Comparing the tests of two runs."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from kindlm.history.comparison import Change, Identity, TestResult, compare_tests, results_of
from kindlm.history.run_view import RunView
from kindlm.outcome import Status

A, B = Identity("a", "gpt"), Identity("b", "gpt")


def change(before: TestResult | None, after: TestResult | None) -> Change | None:
    compared = compare_tests({A: before} if before else {}, {A: after} if after else {})
    return compared[0].change if compared else None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (1.0, 0.5, Change.REGRESSED),
        (0.5, 1.0, Change.IMPROVED),
        (0.5, 0.5, Change.UNCHANGED),
        (0.0, 0.001, Change.UNCHANGED),
        (0.501, 0.5, Change.UNCHANGED),
        (0.5, 0.498, Change.REGRESSED),
        (0.5, 0.502, Change.IMPROVED),
        # The same step wherever it is made.
        (1.0, 0.95, Change.REGRESSED),
        (0.5, 0.45, Change.REGRESSED),
        (1.0, None, Change.NOT_RUN),
        (None, 1.0, Change.ADDED),
        (None, None, Change.NOT_RUN),
    ],
)
def test_pass_rates_decide(before: float | None, after: float | None, expected: Change) -> None:
    assert change(TestResult(before), TestResult(after)) is expected


def test_a_test_on_one_side_is_added_or_removed() -> None:
    assert change(None, TestResult(0.0)) is Change.ADDED
    assert change(TestResult(0.0), None) is Change.REMOVED
    assert change(TestResult(None), None) is None, "it was not tested before either"


def test_order_is_that_of_the_newer_run_with_removed_tests_last() -> None:
    result = TestResult(1.0)
    gone = Identity("gone", "gpt")

    compared = compare_tests({gone: result, A: result, B: result}, {B: result, A: result})

    assert [found.test for found in compared] == [B, A, gone]
    assert [found.fails for found in compared] == [False, False, True]


def test_what_else_changed_is_told_of_tests_that_still_pass() -> None:
    before = TestResult(0.5, 2, Status.FAILED, frozenset({"PII_DETECTED"}), "old")
    after = TestResult(0.5, 2, Status.FAILED, frozenset({"PII_DETECTED", "SCHEMA_INVALID"}), "new")

    (found,) = compare_tests({A: before}, {A: after})

    assert found.change is Change.UNCHANGED
    assert found.new_failure_codes == ["SCHEMA_INVALID"]
    assert found.output_changed
    (missing,) = compare_tests({A: before}, {A: TestResult(None)})
    assert not missing.output_changed, "there is no output to compare"


def test_results_are_those_of_the_suite_over_its_repeats(history: Any, make: Any) -> None:
    writer = history.run("run1")
    writer.suite("sales", tests=[make.planned("greets")])
    writer.execution(suite=0, output="other suite", assertions=(make.passed(),))
    writer.suite(
        "support",
        tests=[
            make.planned("greets", repeat=3),
            make.planned("waves", selected=False),
            make.planned("late"),
        ],
    )
    failing = make.failed(code="PII_DETECTED")
    for repeat, assertions in enumerate([(failing,), (make.passed(),), (make.passed(),)], 1):
        writer.execution(suite=1, repeat=repeat, output=f"try {repeat}", assertions=assertions)
    writer.execution("late", suite=1, output=None, error=("PROVIDER_TIMEOUT", 203, "late", None))
    writer.finish()

    db = history.reader()
    results = results_of(db, RunView(db, "run1"), "support")

    assert results == {
        Identity("greets", "gpt"): TestResult(
            2 / 3, 3, Status.FAILED, frozenset({"PII_DETECTED"}), "try 2"
        ),
        Identity("waves", "gpt"): TestResult(None),
        Identity("late", "gpt"): TestResult(
            0.0, 1, Status.ERRORED, frozenset({"PROVIDER_TIMEOUT"}), None
        ),
    }
    assert results_of(db, RunView(db, "run1"), "nothing") == {}


def test_the_results_of_a_suite_take_no_look_at_the_others(history: Any, make: Any) -> None:
    steps = []
    for run, suites in (("few", 2), ("many", 20)):
        writer = history.run(run)
        for number in range(suites):
            writer.suite(f"suite {number}", tests=[make.planned()])
            writer.execution(suite=number, assertions=(make.passed(),))
        writer.finish()
        db = history.reader()
        view = RunView(db, run)
        assert results_of(db, view, "suite 0")
        steps.append(_steps(db, view, "suite 1"))
    assert steps[1] < 1.2 * steps[0]


def _steps(db: sqlite3.Connection, run: RunView, suite: str) -> int:
    """Count the steps of SQLite's virtual machine: they do not depend on the computer."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1

    db.set_progress_handler(step, 1)
    assert results_of(db, run, suite)
    db.set_progress_handler(None, 0)
    return taken
