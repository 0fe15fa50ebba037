"""Words for network errors, and how long to wait after them."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from kindlm.bounds import MAX_RETRY_AFTER_S


def unreachable_reason(error: BaseException) -> str:
    """Return the deepest cause of an error in plain words."""
    causes = [error]
    while (before := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(before)
    deepest = causes[-1]
    for cause in reversed(causes):
        if isinstance(cause, socket.gaierror):
            return f"unknown host name ({cause.strerror})"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed ({cause.strerror or cause})"
        if _is_refused(cause):
            return "connection refused"
    # The text of aiohttp's errors about invalid responses begins with a 400 that no server sent.
    message = getattr(deepest, "message", None)
    text = " ".join(message.split()) if isinstance(message, str) else str(deepest)
    return text or type(deepest).__name__


def _is_refused(cause: BaseException) -> bool:
    # All addresses of a host were tried.
    if isinstance(cause, BaseExceptionGroup):
        return all(_is_refused(tried) for tried in cause.exceptions)
    return isinstance(cause, ConnectionRefusedError)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait according to the headers, or None.

    `retry-after-ms` is finer and wins. `Retry-After` is a number of seconds or an HTTP date
    (RFC 9110, 10.2.3), where a date in the past means 0.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # an invalid date or time zone
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def rate_limit_hint(wait_s: float | None) -> str:
    """Return the hint for a rate limit, by the requested wait."""
    if wait_s is not None and wait_s > MAX_RETRY_AFTER_S:
        return (
            "Try again later: the wait that it asks for is longer than the"
            f" {MAX_RETRY_AFTER_S:.0f} s that kindlm waits by itself"
        )
    return (
        "Reduce concurrency with --concurrency 1, or raise defaults.retries of kindlm.yaml, or try"
        " again later"
    )


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
