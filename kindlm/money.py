"""Compares costs with a limit."""

from __future__ import annotations

import math
from decimal import Decimal

_SMALLEST = 0.0001
"""Dollars: what is less needs more than four decimals."""

_ROUNDING = 1e-9
"""Sums of prices are off by rounding: 60 calls at $0.01 come to $0.6000000000000003. After n
additions of positive numbers by at most n times 1.2e-16 of the sum (Higham, Accuracy and Stability
of Numerical Algorithms, 4.2): with this, limits are exact for eight million calls."""


def plain_usd(usd: float) -> str:
    """Return an amount without an exponent: four decimals, of a smaller one two digits."""
    if usd == 0 or usd >= _SMALLEST:
        return f"{usd:.4f}"
    return f"{Decimal(f'{usd:.2g}'):f}"


def exceeds(spent_usd: float, limit_usd: float) -> bool:
    """Return whether more was spent than may be; to spend exactly the limit is allowed.

    All limits of costs are kept and judged by this. A billionth of the limit more is taken for a
    rounding error of the sum.
    """
    return spent_usd > limit_usd and not math.isclose(spent_usd, limit_usd, rel_tol=_ROUNDING)
