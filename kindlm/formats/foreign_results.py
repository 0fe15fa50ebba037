"""Results that other programs recorded, as far as they carry the facts; no file says all of them.

A fact that a file does not carry is None, never a guess. Fields are read leniently: whatever is in
them, a value of ours or nothing comes out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


@dataclass(frozen=True, slots=True)
class ForeignCall:
    """A tool call that an agent made."""

    name: str
    arguments: Mapping[str, Any]
    response: Any


@dataclass(frozen=True, slots=True)
class ForeignExecution:
    """One repeat of a test. `passed` is None if the file does not say; `score` is in [0, 1]."""

    passed: bool | None
    output: str | None = None
    query: str | None = None
    calls: tuple[ForeignCall, ...] = ()
    failures: tuple[str, ...] = ()
    score: float | None = None
    threshold: float | None = None
    latency_ms: float | None = None
    cost_usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignTest:
    """A test with its repeats; without a target, the file does not say what was tested."""

    name: str
    target: str | None
    executions: tuple[ForeignExecution, ...]


@dataclass(frozen=True, slots=True)
class ForeignResults:
    """What a file holds.

    Attributes:
        format: Whose format it is: kindlm or evalview.
        suite: Name of the suite; None if the file does not say.
        at: When it was recorded, UTC, ISO 8601 with microseconds; None if the file does not say.
        tests: The tests, in the order of the file.
        warnings: What could not be carried over.
    """

    format: str
    suite: str | None
    at: str | None
    tests: tuple[ForeignTest, ...]
    warnings: tuple[str, ...] = field(default=())


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
