"""Which tests failed when they last ran."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.history.trends import failing_tests

WANTED = {("good", "gpt"), ("bad", "gpt"), ("bad", "claude")}


def record(history: Any, make: Any, run: str, results: dict[str, bool], **suite: Any) -> None:
    """Record a run with one execution for each test, passed or not."""
    writer = history.run(run)
    writer.suite(tests=[make.planned(name) for name in results], **suite)
    for name, passed in results.items():
        writer.execution(name, assertions=(make.passed() if passed else make.failed(),))
    writer.finish()


def failing(history: Any, suite: str = "support", project: str = "shop") -> set[tuple[str, str]]:
    return failing_tests(history.reader(), project, suite, WANTED)


def test_the_last_result_of_each_test_counts(history: Any, make: Any) -> None:
    record(history, make, "first", {"good": False, "bad": False})
    record(history, make, "second", {"good": True})
    assert failing(history) == {("bad", "gpt")}
    record(history, make, "third", {"bad": True})
    assert failing(history) == set()


def test_other_suites_and_projects_are_others(history: Any, make: Any) -> None:
    record(history, make, "first", {"bad": False})
    assert failing(history, suite="sales") == set()
    assert failing(history, project="bank") == set()


def test_a_failure_that_the_pass_rate_tolerates_does_not_fail(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("bad", repeat=2, pass_rate=0.5)])
    run.execution("bad", repeat=1, assertions=(make.passed(),))
    run.execution("bad", repeat=2, assertions=(make.failed(),))
    run.finish()
    assert failing(history) == set()


def test_a_stopped_run_counts_as_far_as_it_went(history: Any, make: Any) -> None:
    record(history, make, "first", {"good": True, "bad": False})
    run = history.run("second")
    run.suite(tests=[make.planned("good"), make.planned("bad")])
    run.execution("good", assertions=(make.failed(),))
    run.interrupt("--fail-fast")
    assert failing(history) == {("good", "gpt"), ("bad", "gpt")}


@pytest.mark.parametrize("unfinished", [None, "skipped"])
def test_repeats_that_passed_do_not_clear_a_failure_while_others_did_not_run(
    history: Any, make: Any, unfinished: str | None
) -> None:
    def repeats(run: str, passed: int) -> Any:
        writer = history.run(run)
        writer.suite(tests=[make.planned("bad", repeat=3)])
        for repeat in range(1, passed + 1):
            writer.execution("bad", repeat=repeat, assertions=(make.passed(),))
        return writer

    record(history, make, "first", {"bad": False})
    stopped = repeats("second", passed=1)
    if unfinished == "skipped":
        for repeat in (2, 3):
            stopped.execution("bad", repeat=repeat, status="skipped")
        stopped.finish()
    else:
        stopped.interrupt("--fail-fast")
    assert failing(history) == {("bad", "gpt")}
    repeats("third", passed=3).finish()
    assert failing(history) == set()


def test_repeats_that_passed_are_no_failure_where_the_test_had_not_failed(
    history: Any, make: Any
) -> None:
    record(history, make, "first", {"bad": True})
    run = history.run("second")
    run.suite(tests=[make.planned("bad", repeat=3)])
    run.execution("bad", assertions=(make.passed(),))
    run.interrupt("--fail-fast")
    assert failing(history) == set()


def test_runs_that_are_not_live_say_nothing_of_now(history: Any, make: Any) -> None:
    run = history.run("rescored", mode="rescored")
    run.suite(tests=[make.planned("bad")])
    run.execution("bad", assertions=(make.failed(),))
    run.finish()
    assert failing(history) == set()
