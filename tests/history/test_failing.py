"""Which tests failed when they last ran."""

from __future__ import annotations

from typing import Any

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


def test_runs_that_are_not_live_say_nothing_of_now(history: Any, make: Any) -> None:
    run = history.run("rescored", mode="rescored")
    run.suite(tests=[make.planned("bad")])
    run.execution("bad", assertions=(make.failed(),))
    run.finish()
    assert failing(history) == set()
