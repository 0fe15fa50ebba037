"""How long to wait before the next try of a call that failed."""

from __future__ import annotations

from kindlm.errors import KindlmError

__all__ = ["BASE_DELAY_S", "MAX_DELAY_S", "is_retryable", "retry_delay"]

BASE_DELAY_S = 0.5
MAX_DELAY_S = 30.0


def is_retryable(error: KindlmError) -> bool:
    """Tell whether another try may go better: the provider adapter knows, and says so."""
    return bool(error.details.get("retryable"))


def retry_delay(
    attempt: int,
    retry_after_s: float | None,
    random: float,
    *,
    base_s: float = BASE_DELAY_S,
    max_s: float = MAX_DELAY_S,
) -> float:
    """Return the seconds to wait after try number `attempt` (from 0) failed.

    A provider's own `Retry-After` is taken as it is; otherwise exponential backoff with full
    jitter, never under half the base. `random` is in [0, 1).
    """
    if retry_after_s:
        return retry_after_s
    return max(base_s / 2, random * min(max_s, base_s * 2.0**attempt))
