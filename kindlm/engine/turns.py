"""Turns and retries: when one execution may call somebody, and whether it tries again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from kindlm.engine.pace import MAX_RETRY_AFTER_S, Callee, Pace, Paces, Turn
from kindlm.engine.stop import Deadline, Permit
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import Clock, ModelReply

__all__ = [
    "BASE_DELAY_S",
    "MAX_DELAY_S",
    "MAX_RESENDS",
    "Reservation",
    "Turns",
    "retry_delay",
]

T = TypeVar("T")

BASE_DELAY_S = 0.5
MAX_DELAY_S = 30.0
MAX_RESENDS = 5
"""How often a call is made again at once because its client asks for it, which is no retry."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A turn taken before an execution starts, for its first call."""

    pace: Pace
    turn: Turn


class Turns:
    """Makes the calls of one execution, each when its callee's pace allows it.

    Args:
        paces: the paces of the run.
        deadline: when the execution is over: no wait of its own goes beyond it. Waiting for a turn,
            or as long as a provider asks for (`Retry-After`), takes none of its time.
        permit: whether a further call may be made; cuts off the execution if not.
        clock: measures and waits.
        reserved: the turn for the first call, if it was taken already.
    """

    def __init__(
        self,
        paces: Paces,
        deadline: Deadline,
        permit: Permit,
        clock: Clock,
        reserved: Reservation | None = None,
    ) -> None:
        self._paces = paces
        self._deadline = deadline
        self._permit = permit
        self._clock = clock
        self._reserved = reserved

    def release(self) -> None:
        """Give back the reserved turn if no call used it."""
        if self._reserved is not None:
            self._reserved.pace.ended(self._reserved.turn)
            self._reserved = None

    async def call(
        self,
        callee: Callee | None,
        started: Callable[[int], int],
        call: Callable[[], Awaitable[Result[T]]],
        failed: Callable[[int, KindlmError, float, float | None], None],
        *,
        retries: int,
    ) -> Result[tuple[int, T]]:
        """Call until there is an answer, an error that no retry can help, or no try or time left.

        Args:
            callee: whose pace each try keeps to; None is something local, which has no pace.
            started: called with the number of each try (from 1) before it is made; returns the
                number of the call.
            call: makes one try.
            failed: called with the number of a call that failed, the error, its latency in
                milliseconds, and the seconds until the next try, None if there is none.
            retries: how many tries there are after the first; those that an error with the detail
                `resend` asks for come on top.

        Returns:
            The number of the call that was answered, with the answer; or the last error.
        """
        pace = None if callee is None else self._paces.get(callee)
        clock = self._clock
        retried = resent = 0
        while True:
            turn = None if pace is None else await self.take(pace)
            result: Result[T] | None = None
            try:
                await self._permit.to_call(is_answered=pace is None or not pace.is_closed)
                number = started(retried + resent + 1)
                begun = clock.monotonic()
                try:
                    result = await call()
                except asyncio.CancelledError:
                    failed(number, _cut_off(), (clock.monotonic() - begun) * 1000, None)
                    raise
            finally:
                if pace is not None and turn is not None:
                    _settle(pace, turn, result)
            if isinstance(result, Ok):
                return Ok((number, result.value))
            latency_ms = (clock.monotonic() - begun) * 1000
            error = result.error
            resend = bool(error.details.get("resend"))
            # A client that never learns must not be called for ever.
            resend_delay = 0.0 if resent < MAX_RESENDS else None
            delay = resend_delay if resend else _delay(error, retried, retries)
            asked_for = not resend and bool(error.details.get("retry_after"))
            if delay is not None and not (asked_for or self._deadline.leaves(delay)):
                delay = None
            failed(number, error, latency_ms, delay)
            if delay is None:
                return result
            with self._permit.waiting(), self._deadline.paused() if asked_for else nullcontext():
                await clock.sleep(delay)
            retried, resent = retried + (not resend), resent + resend

    async def take(self, pace: Pace) -> Turn:
        """Wait until one more call may start; the deadline is paused meanwhile."""
        reserved = self._reserved
        if reserved is not None and reserved.pace is pace:
            self._reserved = None
            return reserved.turn
        turn = pace.turn_now()
        if turn is not None:
            return turn
        with self._permit.waiting(), self._deadline.paused():
            return await pace.turn()


def _settle(pace: Pace, turn: Turn, result: Result[Any] | None) -> None:
    """Report the outcome of a call to its pace; None means that it was abandoned."""
    match result:
        case Ok(value=reply):
            pace.answered(turn, reply.quotas if isinstance(reply, ModelReply) else ())
        case Err(error=error) if _is_refusal(error):
            pace.refused(turn, error.details.get("retry_after"), error.details.get("quotas", ()))
        case _:
            pace.ended(turn)


def _is_refusal(error: KindlmError) -> bool:
    # 503: service unavailable (RFC 9110); 529: what Anthropic answers when it is overloaded.
    return error.code is ErrorCode.PROVIDER_RATE_LIMIT or error.details.get("status") in (503, 529)


def _delay(error: KindlmError, attempt: int, retries: int) -> float | None:
    # The adapter knows whether another try may go better, and says so.
    if attempt >= retries or not error.details.get("retryable"):
        return None
    retry_after_s = error.details.get("retry_after")
    if retry_after_s and retry_after_s > MAX_RETRY_AFTER_S:
        return None
    return retry_delay(attempt, retry_after_s, random.random())  # noqa: S311


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


def _cut_off() -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_TIMEOUT,
        "The call was cut off before it was answered: the time of the execution was over, or the"
        " run was stopped.",
    )
