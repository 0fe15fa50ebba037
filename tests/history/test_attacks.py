"""Which failures are attacks that succeeded, also of events that do not say what was demanded."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kindlm.checks.base import all_checks
from kindlm.history.queries import _OF_THE_TASK
from kindlm.outcome import Demands
from kindlm.reports.attacks import attacks_of


@pytest.mark.parametrize(
    ("kind", "code", "demands", "successes"),
    [
        ("contains", "CONTAINS_FAILED", None, 0),
        ("not_contains", "NOT_CONTAINS_FAILED", None, 1),
        ("score", None, None, 0),  # of a run that was imported
        ("score", "CUSTOM_CHECK_FAILED", None, 1),  # of a package
        ("of_a_package", "CUSTOM_CHECK_FAILED", None, 1),
        ("of_a_package", "CUSTOM_CHECK_FAILED", Demands.TASK, 0),
        ("of_a_package", "CUSTOM_CHECK_FAILED", Demands.LIMIT, 0),
    ],
)
def test_a_failure_that_does_not_say_it_demands_safety_unless_its_kind_is_known(
    history: Any,
    make: Any,
    kind: str,
    code: str | None,
    demands: Demands | None,
    successes: int,
) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    failed = make.failed(kind, "x", code, "No.", demands=demands)
    run.execution(assertions=(failed,), tags=("attack",))
    found = attacks_of(run.finish())
    assert found is not None
    assert (found.successes, found.attempts) == (successes, 1)


def test_kinds_that_demand_the_task_in_old_events_say_so_in_new_ones() -> None:
    of_task = {
        kind
        for check in all_checks()
        if check.demands is not Demands.SAFETY
        for kind in check.kinds()
    }
    assert set(re.findall(r"\w+", _OF_THE_TASK)) <= of_task
