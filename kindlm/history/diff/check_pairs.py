"""The checks of a test that both runs made, with how often they passed on each side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from kindlm.history.diff.samples import PlannedSamples, Sample, read_checks
from kindlm.history.evidence import CheckKey, CheckPair
from kindlm.history.statistics import Counts
from kindlm.outcome import Status

__all__ = ["pair_checks"]

_ROUNDING = 1e-9


def pair_checks(
    before: PlannedSamples, after: PlannedSamples, is_other: Callable[[CheckKey], bool]
) -> dict[CheckKey, CheckPair]:
    """Return the checks that both sides made; none where all of them passed in all repeats.

    `is_other` tells whether a check with the same label demands something else than before. A
    repeat that errored before it decided a check did not pass it, as it did not pass its test.
    Where all repeats of AFTER errored, that goes for all checks.
    """
    if not any(_has_failed(sample) for sample in (*before.samples, *after.samples)):
        return {}
    old, new = dict(_counted(before.samples)), dict(_counted(after.samples))
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


def _counted(samples: Sequence[Sample]) -> Iterator[tuple[CheckKey, Counts]]:
    """Yield the checks that a side made, with the repeats that count."""
    errored = sum(sample.status is Status.ERRORED for sample in samples)
    made: Counter[CheckKey] = Counter()
    passed: Counter[CheckKey] = Counter()
    lost: Counter[CheckKey] = Counter()
    for sample in samples:
        for check, is_passed in read_checks(sample.checks).items():
            made[check] += 1
            passed[check] += is_passed
            lost[check] += sample.status is Status.ERRORED
    for check, times in made.items():
        yield check, Counts(passed[check], times + errored - lost[check])


def _has_failed(sample: Sample) -> bool:
    return sample.status is not Status.PASSED or bool(sample.failures)


def _is_met(counts: Counts, pass_rate_min: float) -> bool:
    return counts.passed / counts.n >= pass_rate_min - _ROUNDING
