"""Which failures are attacks that succeeded."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.outcome import Demands
from kindlm.reports.attacks import attacks_of


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
