"""Fields of files of other programs: whatever is in them, a value of ours or nothing comes out."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

_MOST = 2**53


class ForeignModel(BaseModel):
    """An object of such a file; what it holds besides is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MOST and math.isfinite(value) else None


def _count(value: Any) -> int | None:
    amount = _amount(value)
    return None if amount is None else int(amount)


def _share(value: Any) -> float | None:
    amount = _amount(value)
    return amount if amount is not None and amount <= 1 else None


Amount = Annotated[float | None, BeforeValidator(_amount)]
"""A finite number that is not negative; anything else is None."""

Count = Annotated[int | None, BeforeValidator(_count)]
"""Such a number, whole."""

Share = Annotated[float | None, BeforeValidator(_share)]
"""Such a number, at most 1."""


def utc(text: str | None, now: datetime) -> str | None:
    """Return a time as events have it; a time without a zone is local, none is in the future."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return min(moment, now).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment.year >= 1970 else None
