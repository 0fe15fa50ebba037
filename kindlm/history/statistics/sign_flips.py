"""The sums that sizes give if each may be added or taken away: how likely it is to get so far.

Many sizes have more choices of signs than can be counted. Those that are equal are counted
together, the largest first, and what is too much for one count in a second one. What is too much
even for two is taken for normal, which it is close to: more than thirty sizes are left then, and
the largest, which would not be, are counted all the same. The work is bounded, whatever the sizes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import erfc, gcd, sqrt
from typing import TypeAlias

__all__ = ["sign_flip_tail"]

_MOST_STEPS = 1 << 17
"""So many sums are formed in a count: enough for sixteen sizes that are all different."""

Tail: TypeAlias = Callable[[int], float]
"""Returns the chance of a sum that is at least so large."""

_Groups: TypeAlias = Sequence[tuple[int, int]]


def sign_flip_tail(sizes: Mapping[int, int]) -> Tail:
    """Return the chances of the sums of some sizes, all choices of signs being equally likely.

    `sizes` tells how often there is each size, a whole number above 0.
    """
    groups = sorted(sizes.items(), reverse=True)
    sums, counted = _count(groups)
    others, more = _count(groups[counted:])
    small = groups[counted:]
    tail = _normal_tail(small) if more < len(small) else _counted_tail(others)
    return lambda least: min(1.0, sum(share * tail(least - s) for s, share in sums.items()))


def _count(groups: _Groups) -> tuple[dict[int, float], int]:
    """Return the chance of each sum of the first groups, and how many groups could be counted."""
    sums, steps = {0: 1.0}, 0
    for number, (size, times) in enumerate(groups):
        steps += len(sums) * (times + 1)
        if steps > _MOST_STEPS:
            return sums, number
        shares = list(_binomial(times))
        grown: dict[int, float] = {}
        for known, chance in sums.items():
            reached = known - times * size
            for share in shares:
                grown[reached] = grown.get(reached, 0.0) + chance * share
                reached += 2 * size
        sums = grown
    return sums, len(groups)


def _binomial(times: int) -> Iterator[float]:
    """Yield the chances of 0, 1, ... of so many signs being positive, C(n, k) / 2^n."""
    ways, everything = 1, 1 << times
    for positive in range(times + 1):
        yield ways / everything
        ways = ways * (times - positive) // (positive + 1)


def _counted_tail(sums: Mapping[int, float]) -> Tail:
    reached = sorted(sums)
    # From the rarest on, so that small chances keep all their digits.
    chances = list(accumulate((sums[s] for s in reversed(reached)), initial=0.0))
    return lambda least: chances[len(reached) - bisect_left(reached, least)]


def _normal_tail(groups: _Groups) -> Tail:
    """Return the tail of a normal distribution, corrected for the steps that the sums come in."""
    largest = groups[0][0]
    spread = sqrt(2 * sum(times * (size / largest) ** 2 for size, times in groups))
    highest = sum(size * times for size, times in groups)
    half_step = gcd(*(size for size, _ in groups))

    def tail(least: int) -> float:
        next_sum = highest - (highest - least) // (2 * half_step) * 2 * half_step
        return erfc((next_sum - half_step) / largest / spread) / 2

    return tail
