"""Reads rate limit headers, which are untrusted; unreadable values are ignored.

The reset of a limit is a duration at OpenAI (`20ms`, `6m0s`), a time at Anthropic (RFC 3339), and
in seconds in the IETF's drafts up to 06 (draft-ietf-httpapi-ratelimit-headers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from kindlm.ports import Quota

_Kind = Literal["requests", "tokens"]

# The limits and the names of their headers; `{}` stands for `remaining`, `limit` or `reset`.
_HEADERS: tuple[tuple[_Kind, str], ...] = (
    ("requests", "x-ratelimit-{}-requests"),
    ("tokens", "x-ratelimit-{}-tokens"),
    ("requests", "anthropic-ratelimit-requests-{}"),
    ("tokens", "anthropic-ratelimit-tokens-{}"),
    ("tokens", "anthropic-ratelimit-input-tokens-{}"),
    ("tokens", "anthropic-ratelimit-output-tokens-{}"),
    ("requests", "ratelimit-{}"),
)
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}

# Bounded, so that no number overflows and no text takes long.
_MAX_LENGTH = 200
_COUNT = re.compile(r"[0-9]{1,15}")
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|us|µs|ns|h|m|s))+")
_STEP = re.compile(r"([0-9.]+)([a-zµ]+)")


def quotas(headers: Mapping[str, str], now: datetime) -> tuple[Quota, ...]:
    """Return the remaining quota of each limit in the headers; header names may have any case."""
    found = list[Quota]()
    for kind, name in _HEADERS:
        left = _count(headers.get(name.format("remaining")))
        if left is None:
            continue
        limit = _count(headers.get(name.format("limit")))
        # Some providers send a limit of 0 for no limit.
        if limit == 0 or (limit is not None and left > limit):
            continue
        found.append(Quota(kind, left, limit, _reset_s(headers.get(name.format("reset")), now)))
    return tuple(found)


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and _COUNT.fullmatch(text) else None


def _reset_s(text: str | None, now: datetime) -> float | None:
    """Return the seconds until a limit resets, given a number, a duration or a time."""
    if text is None or len(text) > _MAX_LENGTH:
        return None
    if _SECONDS.fullmatch(text):
        return float(text)
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNITS_S[unit] for number, unit in _STEP.findall(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else max(0.0, (moment - now).total_seconds())
