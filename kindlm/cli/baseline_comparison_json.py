"""A run beside its baselines, as a value and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kindlm.errors import KindlmError
from kindlm.history.baselines import Baseline
from kindlm.history.compared_attempts import Attempts
from kindlm.history.diff.details import CheckChange
from kindlm.history.diff.values import TestDiff
from kindlm.history.evidence.values import Change, Side, Strength
from kindlm.reports.diff.json import check_evidence
from kindlm.reports.printed_json import printed_json

__all__ = ["ComparedTest", "SuiteComparison", "comparison_json"]


@dataclass(frozen=True, slots=True)
class ComparedTest:
    """A test beside its baseline; `diff` is what `kindlm diff` of the two runs says of it.

    `change` differs from the diff where a side was not run: what the baseline has no result of is
    added. `checks` are those that pass less often. `output_changed`: another text stands for the
    test. A side is None where the test is not defined.
    """

    diff: TestDiff
    change: Change
    after: Side | None
    checks: tuple[CheckChange, ...] = ()
    output_changed: bool = False

    @property
    def before(self) -> Side | None:
        """The test in the baseline."""
        return self.diff.before

    @property
    def strength(self) -> Strength | None:
        """How good the evidence for the change is; None where there is nothing to doubt."""
        return self.diff.strength if self.diff.compared else None

    @property
    def fails(self) -> bool:
        """Whether this makes the comparison fail."""
        return self.diff.fails if self.diff.compared else self.change is Change.REMOVED

    @property
    def new_failure_codes(self) -> list[str]:
        """Reasons to fail that the test did not have in the baseline."""
        if self.after is None:
            return []
        known = self.before.failure_codes if self.before else frozenset()
        return sorted(self.after.failure_codes - known)


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
    tests: tuple[ComparedTest, ...] = ()
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


def _test(test: ComparedTest) -> dict[str, Any]:
    return {
        "name": test.diff.key.name,
        "target": test.diff.key.target,
        "change": test.change,
        "strength": test.strength,
        "fails": test.fails,
        "before": _side(test.before),
        "after": _side(test.after),
        "newFailureCodes": test.new_failure_codes,
        "outputChanged": test.output_changed,
        "turnsChanged": list(test.diff.behaviour.turns),
        "droppedChecks": [
            {"kind": check.kind, "label": check.label, **check_evidence(check.evidence)}
            for check in test.checks
            if check.evidence is not None
        ],
    }


def _side(side: Side | None) -> dict[str, Any] | None:
    """Return how a test did; None where it is not defined."""
    if side is None:
        return None
    return {
        "passRate": side.pass_rate,
        "executions": side.counts.n,
        "status": side.status,
        "failureCodes": sorted(side.failure_codes),
    }
