"""Compares costs with a limit."""

from __future__ import annotations

import math
from decimal import Decimal

_SMALLEST = 0.0001
"""Smaller amounts, in dollars, are shown with more than four decimals."""

_ROUNDING = 1e-9
"""Sums of prices have rounding errors: 60 calls at $0.01 cost $0.6000000000000003. After n
additions of positive numbers, the relative error is at most n · 1.2e-16 (Higham, Accuracy and
Stability of Numerical Algorithms, 4.2), so this is enough for eight million calls."""


def plain_usd(usd: float) -> str:
    """Return an amount with four decimals, or a smaller one with two digits; no exponent."""
    if usd == 0 or usd >= _SMALLEST:
        return f"{usd:.4f}"
    return f"{Decimal(f'{usd:.2g}'):f}"


def exceeds(spent_usd: float, limit_usd: float) -> bool:
    """Return whether a cost is above its limit, apart from rounding errors.

    All limits of costs use this function.
    """
    return spent_usd > limit_usd and not math.isclose(spent_usd, limit_usd, rel_tol=_ROUNDING)
