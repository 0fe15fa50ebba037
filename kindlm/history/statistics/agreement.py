"""Whether a judge and people agree, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kindlm.history.statistics.intervals import wilson_interval

__all__ = ["Agreement", "agreement", "kappa_interval", "reviews_needed"]

_MOST_REVIEWS = 500


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a judge and a person passed or failed the same execution.

    `kappa` is the agreement beyond what chance gives, 1 at best, 0 for chance; None if both always
    said the same one thing, so that chance alone would agree.
    """

    both_passed: int
    judge_passed_only: int
    person_passed_only: int
    both_failed: int
    observed: float
    kappa: float | None

    @property
    def reviews(self) -> int:
        """How many verdicts are compared."""
        return (
            self.both_passed + self.judge_passed_only + self.person_passed_only + self.both_failed
        )


def agreement(verdicts: Iterable[tuple[bool, bool]]) -> Agreement | None:
    """Compare verdicts (the judge passed it, the person passed it); None if there are none.

    kappa = (observed - expected) / (1 - expected): J. Cohen, "A Coefficient of Agreement for
    Nominal Scales", Educational and Psychological Measurement 20 (1960), 37-46.
    """
    table = Counter(verdicts)
    n = table.total()
    if n == 0:
        return None
    both, judge, person, neither = (
        table[key] for key in ((True, True), (True, False), (False, True), (False, False))
    )
    agreed = (both + neither) * n
    chance = (both + judge) * (both + person) + (person + neither) * (judge + neither)
    kappa = (agreed - chance) / (n * n - chance) if chance != n * n else None
    return Agreement(both, judge, person, neither, agreed / (n * n), kappa)


def kappa_interval(table: Agreement) -> tuple[float, float] | None:
    """Return the 95 % interval of kappa, None where there is no kappa.

    As in Cohen's own standard error, the agreement by chance is taken for known: J. Cohen (1960),
    cited at `agreement`, equation 8. The interval of the observed agreement is Wilson's, so that
    full agreement of a few reviews does not pass for certainty.

        (w - expected) / (1 - expected), for both ends w of Wilson's interval
    """
    return _interval(table, table.reviews)


def reviews_needed(table: Agreement, limit: float) -> int | None:
    """Return how many reviews more would tell on which side of a limit kappa is.

    Provided that they come out like those that are there. 0 if these tell already; None if there
    is no kappa, or it is so close to the limit that 500 reviews would not tell.
    """
    n = table.reviews
    for total in range(n, _MOST_REVIEWS + 1):
        interval = _interval(table, total)
        if interval is None:
            return None
        if interval[0] >= limit or interval[1] < limit:
            return total - n
    return None


def _interval(table: Agreement, n: int) -> tuple[float, float] | None:
    """Return the interval if n reviews came out like those of the table."""
    if table.kappa is None:
        return None
    seen = table.reviews
    judge = table.both_passed + table.judge_passed_only
    person = table.both_passed + table.person_passed_only
    chance = (judge * person + (seen - judge) * (seen - person)) / seen**2
    ends = wilson_interval(round(table.observed * n), n)
    if ends is None:
        return None
    low, high = ((end - chance) / (1 - chance) for end in ends)
    return max(-1.0, low), high
