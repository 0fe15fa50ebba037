"""Whether a judge and people agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Agreement", "agreement"]


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
