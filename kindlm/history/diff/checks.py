"""The checks of one test over its repeats, before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kindlm.history.compared_attempts import Attempts
from kindlm.history.diff.samples import SCORED, PlannedSamples, Sample, read_checks
from kindlm.history.diff.values import TestDiff
from kindlm.history.evidence.values import CheckEvidence, CheckKey, CheckPair
from kindlm.history.masking import mask_of, masked
from kindlm.history.rows import AssertionView, AttemptView
from kindlm.history.run_view import RunView, read_attempts
from kindlm.history.statistics.tables import Counts
from kindlm.outcome import Status

__all__ = ["CheckChange", "compare_checks", "pair_checks"]

_ROUNDING = 1e-9


def _checked(attempts: Attempts) -> str:
    return f"""
SELECT a.kind, a.label, min(a.position), sum(a.outcome = 'passed'), sum(a.outcome <> 'skipped'),
       avg(a.score),
       e.run || '-' || min(CASE WHEN a.outcome IN ('failed', 'inconclusive') THEN e.number END)
  FROM executions e JOIN assertions a ON a.execution = e.id AND a.attempt = {attempts.checked}
 WHERE e.suite = (SELECT suite FROM executions WHERE id = ?) AND e.test = ? AND e.target = ?
   AND e.status IN ('passed', 'failed', 'errored') AND NOT a.advisory
 GROUP BY a.kind, a.label, e.run
 ORDER BY 3, 1, 2
"""  # noqa: S608 (constants of this package)


class CheckSide(NamedTuple):
    """A check over the repeats of a side: how often it passed of how often it was decided.

    `failed` is an execution that did not pass it.
    """

    passed: int = 0
    of: int = 0
    score: float | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class CheckChange:
    """A check of a test, over all repeats of both sides.

    `message` and `failure_code` are those of a repeat that did not pass it: after, else before.
    `score_dropped`: its mean score fell by more than the threshold. `evidence` tells how sure it is
    that the check passes less often; None if it does not, or demands something else than before.
    """

    kind: str
    label: str
    before: CheckSide
    after: CheckSide
    failure_code: str | None
    message: str | None
    score_dropped: bool = False
    evidence: CheckEvidence | None = None

    @property
    def flipped(self) -> bool:
        """Whether it passes more, or less often than before."""
        before, after = self.before, self.after
        asked = before.of > 0 and after.of > 0
        return asked and before.passed * after.of != after.passed * before.of

    @property
    def worse(self) -> bool:
        """Whether it passes less often than before."""
        return self.after.passed * self.before.of < self.before.passed * self.after.of


def pair_checks(
    before: PlannedSamples, after: PlannedSamples, is_other: Callable[[CheckKey], bool]
) -> dict[CheckKey, CheckPair]:
    """Return the checks that both sides made; none where all of them passed in all repeats.

    `is_other` tells whether a check with the same label demands something else than before. A
    repeat that errored before it decided a check did not pass it, as it did not pass its test.
    Where all repeats of AFTER errored, that goes for all checks.
    """
    samples = *before.samples, *after.samples
    if all(each.status is Status.PASSED and not each.failures for each in samples):
        return {}
    old, new = _counted(before.samples), _counted(after.samples)
    if after.samples and all(sample.status is Status.ERRORED for sample in after.samples):
        failed = Counts(0, len(after.samples))
        new = dict.fromkeys(old, failed) | new
    return {
        check: CheckPair(
            counts,
            new[check],
            was_met=_is_met(counts, before.pass_rate_min),
            is_met=_is_met(new[check], after.pass_rate_min),
        )
        for check, counts in old.items()
        if check in new and not is_other(check)
    }


def _counted(samples: Sequence[Sample]) -> dict[CheckKey, Counts]:
    """Return the checks that a side made, with the repeats that count."""
    errored = sum(sample.status is Status.ERRORED for sample in samples)
    decided: Counter[CheckKey] = Counter()
    passed: Counter[CheckKey] = Counter()
    for sample in samples:
        for check, is_passed in read_checks(sample.checks).items():
            decided[check] += sample.status is not Status.ERRORED
            passed[check] += is_passed
    return {check: Counts(passed[check], times + errored) for check, times in decided.items()}


def _is_met(counts: Counts, pass_rate_min: float) -> bool:
    return counts.passed / counts.n >= pass_rate_min - _ROUNDING


def compare_checks(
    before: RunView,
    after: RunView,
    attempts: Attempts,
    test: TestDiff,
    shown: Sequence[AttemptView],
) -> tuple[CheckChange, ...]:
    """Return all checks of a test, in the order of the newer run, then those that are gone.

    `shown` are the attempts that stand for the test. What must not be shown of them is not shown of
    a check; nor is what was found in the execution that a message is of.
    """
    mask, told = mask_of(shown), test.evidence

    @lru_cache(maxsize=64)
    def wrong(view: RunView, identity: str | None) -> dict[tuple[str, str], AssertionView]:
        """Return the checks that an execution did not pass, as they may be shown."""
        execution = view.execution(identity) if identity else None
        if execution is None:
            return {}
        read = read_attempts(view, execution)
        both = mask_of([*shown, *read])
        return {
            (assertion.kind, assertion.label): masked(assertion, both)
            for assertion in reversed(attempts.of(read).assertions)
            if assertion.is_wrong
        }

    old, new = (
        {
            (row[0], row[1]): CheckSide(*tuple(row)[3:])
            for row in before.db.execute(
                _checked(attempts), (side.usual, test.key.name, test.key.target)
            )
        }
        if side and side.usual
        else {}
        for side in (test.before, test.after)
    )
    # The surest comes first, and stands for all with its label.
    evidence = {(one.check.kind, one.check.label): one for one in reversed(told.dropped_checks)}
    changes = []
    for key in dict.fromkeys([*new, *old]):
        was, now = old.get(key, CheckSide()), new.get(key, CheckSide())
        found = wrong(after, now.failed).get(key) or wrong(before, was.failed).get(key)
        kind, label = key
        changes.append(
            CheckChange(
                kind,
                mask.text(label),
                was,
                now,
                failure_code=found.failure_code if found else None,
                message=found.message if found else None,
                score_dropped=kind in SCORED and label in told.dropped_scores,
                evidence=evidence.get(key),
            )
        )
    return tuple(changes)
