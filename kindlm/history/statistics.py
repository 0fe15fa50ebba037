"""Statistics on counts of passed executions."""

from __future__ import annotations

from math import sqrt

__all__ = ["wilson_interval"]

_Z_95 = 1.959963984540054
"""The standard normal distribution lies between -z and z in 95 of 100 cases."""


def wilson_interval(successes: int, n: int) -> tuple[float, float] | None:
    """Return the 95 % score interval of a proportion, None if nothing was observed.

    The formula is Wilson's, without continuity correction: E. B. Wilson, "Probable Inference, the
    Law of Succession, and Statistical Inference", JASA 22 (1927), 209-212. It holds its level for
    few observations and for proportions near 0 and 1, where the textbook interval does not.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)
    """
    if n == 0:
        return None
    rate = successes / n
    spread = _Z_95**2 / n
    center = rate + spread / 2
    margin = _Z_95 * sqrt((rate * (1 - rate) + spread / 4) / n)
    low, high = (center - margin) / (1 + spread), (center + margin) / (1 + spread)
    # Rounding may push the ends of 0 of n and n of n out of [0, 1], or off them.
    return (0.0 if successes == 0 else low), (1.0 if successes == n else high)
