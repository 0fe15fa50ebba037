"""Trying again: how long to wait before the next try of a call, and doing it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeVar

from kindlm.engine.pace import MAX_RETRY_AFTER_S, Queue
from kindlm.engine.stop import Deadline, Permit
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import Clock

__all__ = [
    "BASE_DELAY_S",
    "MAX_DELAY_S",
    "MAX_RESENDS",
    "call_with_retries",
    "retry_delay",
]

T = TypeVar("T")

BASE_DELAY_S = 0.5
MAX_DELAY_S = 30.0
MAX_RESENDS = 5
"""How often a call is made again at once because its client asks for it, which is no retry."""


def retry_delay(
    attempt: int,
    retry_after_s: float | None,
    jitter: float,
    *,
    base_s: float = BASE_DELAY_S,
    max_s: float = MAX_DELAY_S,
) -> float:
    """Return the seconds to wait after try number `attempt` (from 0) failed.

    A provider's own `Retry-After` is taken as it is; otherwise exponential backoff with full
    jitter, never under half the base. `jitter` is random in [0, 1).
    """
    if retry_after_s:
        return retry_after_s
    return max(base_s / 2, jitter * min(max_s, base_s * 2.0**attempt))


async def call_with_retries(
    started: Callable[[int], int],
    call: Callable[[], Awaitable[Result[T]]],
    failed: Callable[[int, KindlmError, float, float | None], None],
    *,
    queue: Queue,
    retries: int,
    deadline: Deadline,
    permit: Permit,
    clock: Clock,
) -> Result[tuple[int, T]]:
    """Call until there is an answer, an error that no try can mend, or no try or time left.

    Args:
        started: is told of each try (from 1) before it is made, and returns the call's number.
        call: makes one try.
        failed: is told the number of a try that failed, the error, its latency in milliseconds,
            and after how many seconds the next try comes, None if none does.
        queue: where each try waits for its turn; is told how it ended.
        retries: how many tries there are after the first; those that an error with the detail
            `resend` asks for come on top.
        deadline: when the execution is over: no wait of ours goes beyond it. One that a provider
            asks for (`Retry-After`) is none of the execution's time, nor is one for a turn.
        permit: whether a further call may be made; cuts off the execution if not.
        clock: measures and waits.

    Returns:
        The number of the call that was answered, with the answer; or the last error.
    """
    retried = resent = 0
    while True:
        with permit.waiting():
            turn = await queue.turn()
        result: Result[T] | None = None
        try:
            await permit.to_call(is_answered=not queue.is_closed)
            number = started(retried + resent + 1)
            begun = clock.monotonic()
            try:
                result = await call()
            except asyncio.CancelledError:
                failed(number, _cut_off(), (clock.monotonic() - begun) * 1000, None)
                raise
        finally:
            queue.settle(turn, result)
        if isinstance(result, Ok):
            return Ok((number, result.value))
        latency_ms = (clock.monotonic() - begun) * 1000
        resend = bool(result.error.details.get("resend"))
        delay = _resend_delay(resent) if resend else _delay(result.error, retried, retries)
        asked_for = not resend and bool(result.error.details.get("retry_after"))
        if delay is not None and not (asked_for or deadline.leaves(delay)):
            delay = None
        failed(number, result.error, latency_ms, delay)
        if delay is None:
            return Err(result.error)
        with permit.waiting(), deadline.paused() if asked_for else nullcontext():
            await clock.sleep(delay)
        retried, resent = retried + (not resend), resent + resend


def _cut_off() -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_TIMEOUT,
        "The call was cut off before it was answered: the time of the execution was over, or the"
        " run was stopped.",
    )


def _resend_delay(resent: int) -> float | None:
    # A client that never learns must not be called for ever.
    return 0.0 if resent < MAX_RESENDS else None


def _delay(error: KindlmError, attempt: int, retries: int) -> float | None:
    # The adapter knows whether another try may go better, and says so.
    if attempt >= retries or not error.details.get("retryable"):
        return None
    retry_after_s = error.details.get("retry_after")
    if retry_after_s and retry_after_s > MAX_RETRY_AFTER_S:
        return None
    return retry_delay(attempt, retry_after_s, random.random())  # noqa: S311
