"""A run beside its baselines, as a value and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kindlm.errors import KindlmError
from kindlm.history.baselines import Baseline
from kindlm.history.comparison import TestComparison, TestResult

__all__ = ["SuiteComparison", "comparison_json"]


@dataclass(frozen=True, slots=True)
class SuiteComparison:
    """A suite of a run beside its baseline; no tests where there is none, or it is unusable."""

    suite: str
    baseline: Baseline | None
    problem: KindlmError | None = None
    tests: tuple[TestComparison, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether a test got worse, or it could not be found out."""
        return self.problem is not None or any(test.fails for test in self.tests)


def comparison_json(
    run: str, compared: Sequence[SuiteComparison], unloaded: Sequence[str], *, fails: bool
) -> str:
    """Return the comparison for programs."""
    report = {
        "schemaVersion": 1,
        "run": run,
        "fails": fails,
        "suites": [_suite(one) for one in compared],
        "unloadedSuites": list(unloaded),
    }
    return json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _suite(compared: SuiteComparison) -> dict[str, Any]:
    baseline, problem = compared.baseline, compared.problem
    return {
        "suite": compared.suite,
        "baseline": baseline
        and {
            "run": baseline.run,
            "label": baseline.label or None,
            "setAt": baseline.set_at,
            "setBy": baseline.set_by,
        },
        "error": problem
        and {"code": problem.code.name, "number": problem.code, "message": problem.message},
        "tests": [
            {
                "name": test.test.name,
                "target": test.test.target,
                "change": test.change,
                "before": _result(test.before),
                "after": _result(test.after),
                "newFailureCodes": test.new_failure_codes,
                "outputChanged": test.output_changed,
            }
            for test in compared.tests
        ],
    }


def _result(result: TestResult | None) -> dict[str, Any] | None:
    """Return how a test did; None where it is not defined."""
    if result is None:
        return None
    return {
        "passRate": result.pass_rate,
        "executions": result.repeats,
        "status": result.status,
        "failureCodes": sorted(result.failure_codes),
    }
