"""Which failures are attacks that succeeded."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.outcome import Demands, Status
from kindlm.reports.facts import attacks_of


@pytest.mark.parametrize(
    ("kind", "demands", "successes"),
    [
        ("contains", Demands.TASK, 0),
        ("not_contains", None, 1),
        ("of_a_package", None, 1),
        ("of_a_package", Demands.TASK, 0),
        ("of_a_package", Demands.LIMIT, 0),
    ],
)
def test_a_failure_is_an_attack_that_succeeded_unless_its_check_demands_no_safety(
    history: Any, make: Any, kind: str, demands: Demands | None, successes: int
) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    failed = make.failed(kind, "x", "CUSTOM_CHECK_FAILED", "No.", demands=demands)
    run.execution(assertions=(failed,), tags=("attack",))
    found = attacks_of(run.finish())
    assert found is not None
    assert (found.successes, found.attempts) == (successes, 1)


@pytest.mark.parametrize(
    ("mode", "difference", "successes"),
    [
        ("strict", "arguments", 1),
        ("unordered", "arguments", 1),
        ("in_order", "arguments", 0),
        ("in_order", "unexpected", 1),
        ("strict", "missing", 0),
    ],
)
def test_calls_with_other_arguments_are_forbidden_where_no_others_are_allowed(
    history: Any, make: Any, mode: str, difference: str, successes: int
) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    expected, actual = {"mode": mode}, {"differences": [{"kind": difference}]}
    failed = make.failed("trajectory", "x", "TRAJECTORY_MISMATCH", expected=expected, actual=actual)
    run.execution(assertions=(failed,), tags=("attack",))
    found = attacks_of(run.finish())
    assert found is not None
    assert found.successes == successes


@pytest.mark.parametrize(("count", "successes"), [(2, 1), (1, 0), (0, 0)])
def test_only_calls_beyond_the_allowed_ones_are_forbidden(
    history: Any, make: Any, count: int, successes: int
) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    expected, actual = {"count": {"min": 1, "max": 1}}, {"count": count}
    code = "TOOL_CALL_COUNT_WRONG"
    failed = make.failed("tool_called", "x", code, expected=expected, actual=actual)
    run.execution(assertions=(failed,), tags=("attack",))
    found = attacks_of(run.finish())
    assert found is not None
    assert found.successes == successes
    # What was erased may have been forbidden.
    history.erase("run/k3f9x2ab")
    found = attacks_of(history.view("k3f9x2ab"))
    assert found is not None
    assert found.successes == 1


def test_each_attack_that_ran_succeeded_or_was_resisted_or_is_undecided(
    history: Any, make: Any
) -> None:
    unsafe = make.failed("not_contains", "x", "CONTAINS_FAILED")
    advisory = make.failed("not_contains", "x", "CONTAINS_FAILED", advisory=True)
    unknown = make.failed("judge", "x", "JUDGE_EVAL_ERROR", outcome="inconclusive", score=None)
    failed = make.failed(demands=Demands.TASK)
    of_a_task = make.failed("judge", "x", "X", outcome="inconclusive", demands=Demands.TASK)
    error = ("PROVIDER_TIMEOUT", 203, "Too slow.", None)
    run = history.run()
    run.suite(tests=[make.planned(repeat=9)])
    run.execution(assertions=(unsafe,), retried=True, tags=("attack",))
    run.execution(number=1, attempt=2, assertions=(make.passed(),), tags=("attack",))
    run.execution(assertions=(unsafe,), tags=("attack",))
    run.execution(assertions=(unsafe, unknown), tags=("attack",))
    run.execution(assertions=(advisory,), status=Status.PASSED, tags=("attack",))
    run.execution(assertions=(unknown,), tags=("attack",))
    run.execution(assertions=(of_a_task, failed), tags=("attack",))
    run.execution(error=error, tags=("attack",))
    run.execution(status=Status.SKIPPED, tags=("attack",))
    run.execution(assertions=(unsafe,))
    found = attacks_of(run.finish())
    assert found is not None
    assert (found.attempts, found.successes, found.undecided) == (5, 2, 2)
