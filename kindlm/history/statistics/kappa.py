"""What Cohen's kappa may really be, and how many reviews it takes to know."""

from __future__ import annotations

from kindlm.history.statistics.agreement import Agreement
from kindlm.history.statistics.intervals import wilson_interval

__all__ = ["kappa_interval", "reviews_needed"]

_MOST_REVIEWS = 500


def kappa_interval(table: Agreement) -> tuple[float, float] | None:
    """Return the 95 % interval of kappa, None where there is no kappa.

    As in Cohen's own standard error, the agreement by chance is taken for known: J. Cohen (1960),
    cited at `agreement`, equation 8. The interval of the observed agreement is Wilson's, so that
    full agreement of a few reviews does not pass for certainty.

        (w - expected) / (1 - expected), for both ends w of Wilson's interval
    """
    return _interval(table, _reviews(table))


def reviews_needed(table: Agreement, limit: float) -> int | None:
    """Return how many reviews more would tell on which side of a limit kappa is.

    Provided that they come out like those that are there. 0 if these tell already; None if there
    is no kappa, or it is so close to the limit that 500 reviews would not tell.
    """
    n = _reviews(table)
    for total in range(n, _MOST_REVIEWS + 1):
        interval = _interval(table, total)
        if interval is None:
            return None
        if interval[0] >= limit or interval[1] < limit:
            return total - n
    return None


def _reviews(table: Agreement) -> int:
    return (
        table.both_passed + table.judge_passed_only + table.person_passed_only + table.both_failed
    )


def _interval(table: Agreement, n: int) -> tuple[float, float] | None:
    """Return the interval if n reviews came out like those of the table."""
    if table.kappa is None:
        return None
    seen = _reviews(table)
    judge = table.both_passed + table.judge_passed_only
    person = table.both_passed + table.person_passed_only
    chance = (judge * person + (seen - judge) * (seen - person)) / seen**2
    ends = wilson_interval(round(table.observed * n), n)
    if ends is None:
        return None
    low, high = ((end - chance) / (1 - chance) for end in ends)
    return max(-1.0, low), high
