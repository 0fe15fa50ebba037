"""A run beside its baselines, as a value and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kindlm.errors import KindlmError
from kindlm.history.baselines import Baseline
from kindlm.history.compared_attempts import Attempts
from kindlm.history.comparison import Change, TestComparison, TestResult
from kindlm.history.diff.values import CheckChange, TestDiff
from kindlm.history.evidence import Strength
from kindlm.reports.diff.json import check_evidence
from kindlm.reports.printed_json import printed_json

__all__ = ["JudgedTest", "SuiteComparison", "comparison_json"]


@dataclass(frozen=True, slots=True)
class JudgedTest:
    """A test beside its baseline, and what `kindlm diff` makes of it where it ran in both.

    `checks` are those that pass less often.
    """

    figures: TestComparison
    judged: TestDiff | None = None
    checks: tuple[CheckChange, ...] = ()

    @property
    def change(self) -> Change:
        """What became of it."""
        return self.judged.change if self.judged else self.figures.change

    @property
    def strength(self) -> Strength | None:
        """How good the evidence for that is; None where there is nothing to doubt."""
        return self.judged.strength if self.judged else None

    @property
    def fails(self) -> bool:
        """Whether this is what a comparison looks out for."""
        return self.judged.fails if self.judged else self.figures.fails


@dataclass(frozen=True, slots=True)
class SuiteComparison:
    """A suite of a run beside its baseline; no tests where there is none, or it is unusable.

    `run_regressed`: the run as a whole passes less often than the baseline, for certain.
    `attempts`: by which executions count that were run again; None if none was. `not_comparable`
    says how many tests the baseline has no result of, since its run did not come to its end.
    """

    suite: str
    baseline: Baseline | None
    problem: KindlmError | None = None
    tests: tuple[JudgedTest, ...] = ()
    run_regressed: bool = False
    attempts: Attempts | None = None
    not_comparable: str | None = None

    @property
    def fails(self) -> bool:
        """Whether a test or the run got worse, or it could not be found out."""
        lost = self.run_regressed or any(test.fails for test in self.tests)
        return self.problem is not None or lost


def comparison_json(
    run: str,
    compared: Sequence[SuiteComparison],
    unloaded: Sequence[str],
    *,
    complete: bool,
    fails: bool,
) -> str:
    """Return the comparison for programs. `complete`: the run came to its end."""
    report = {
        "schemaVersion": 1,
        "run": run,
        "fails": fails,
        "complete": complete,
        "suites": [_suite(one) for one in compared],
        "unloadedSuites": list(unloaded),
    }
    return printed_json(report, indent=2) + "\n"


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
        "runRegressed": compared.run_regressed,
        "attempts": compared.attempts,
        "tests": [_test(test) for test in compared.tests],
    }


def _test(test: JudgedTest) -> dict[str, Any]:
    figures = test.figures
    return {
        "name": figures.test.name,
        "target": figures.test.target,
        "change": test.change,
        "strength": test.strength,
        "fails": test.fails,
        "before": _result(figures.before),
        "after": _result(figures.after),
        "newFailureCodes": figures.new_failure_codes,
        "outputChanged": figures.output_changed,
        "turnsChanged": list(test.judged.behaviour.turns) if test.judged else [],
        "droppedChecks": [
            {"kind": check.kind, "label": check.label, **check_evidence(check.evidence)}
            for check in test.checks
            if check.evidence is not None
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
