"""Turns: when a call towards a provider or an agent may be made, and what its outcome teaches.

Each provider and each agent of a run has one pace, whatever suite calls it; one execution takes
its turns there and tells how each call went.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kindlm.engine.deadline import Deadline
from kindlm.engine.pace import Pace, Turn
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import ModelReply
from kindlm.suite import AgentTarget, ProviderSettings

__all__ = ["Callee", "Paces", "Queue", "Reservation", "Turns"]

Callee = ProviderSettings | AgentTarget
"""What is called and may have enough of it."""

_OVERLOADED = frozenset({503, 529})
"""Service unavailable (RFC 9110), and what Anthropic answers when it is overloaded."""


class Paces:
    """The pace towards each callee of a run."""

    def __init__(self, make: Callable[[Callee], Pace]) -> None:
        self._make = make
        self._made: list[tuple[Callee, Pace]] = []

    def get(self, callee: Callee) -> Pace:
        """Return the pace of a callee."""
        for known, pace in self._made:
            if known is callee or known == callee:
                return pace
        pace = self._make(callee)
        self._made.append((callee, pace))
        return pace


@dataclass(frozen=True, slots=True)
class Reservation:
    """A turn that was taken before the execution started that makes its first call with it."""

    pace: Pace
    turn: Turn


class Turns:
    """Takes the turns of one execution; used by one task."""

    def __init__(
        self, paces: Paces, deadline: Deadline, reserved: Reservation | None = None
    ) -> None:
        self._paces = paces
        self._deadline = deadline
        self._reserved = reserved

    def at(self, callee: Callee | None) -> Queue:
        """Return the turns at one callee; what runs on this machine is None and has no pace."""
        return Queue(self, None if callee is None else self._paces.get(callee))

    async def take(self, pace: Pace) -> Turn:
        """Wait until one more call may be made; the execution's time stands still meanwhile."""
        reserved = self._reserved
        if reserved is not None and reserved.pace is pace:
            self._reserved = None
            return reserved.turn
        if pace.has_room:
            return await pace.turn()
        with self._deadline.paused():
            return await pace.turn()

    def release(self) -> None:
        """Give back the reserved turn if no call was made."""
        if self._reserved is not None:
            self._reserved.pace.ended(self._reserved.turn)
            self._reserved = None


class Queue:
    """Where one execution waits for its turns at one callee."""

    def __init__(self, turns: Turns, pace: Pace | None) -> None:
        self._turns = turns
        self._pace = pace

    @property
    def is_closed(self) -> bool:
        """Whether nobody is called there any more."""
        return self._pace is not None and self._pace.is_closed

    async def turn(self) -> Turn | None:
        """Wait until one more call may be made."""
        return None if self._pace is None else await self._turns.take(self._pace)

    def settle(self, turn: Turn | None, result: Result[Any] | None) -> None:
        """Tell how the call ended that a turn was for; None if it was given up."""
        if self._pace is None or turn is None:
            return
        match result:
            case Ok(value=reply):
                self._pace.answered(turn, reply.quotas if isinstance(reply, ModelReply) else ())
            case Err(error=error) if _is_refusal(error):
                details = error.details
                self._pace.refused(turn, details.get("retry_after"), details.get("quotas", ()))
            case _:
                self._pace.ended(turn)


def _is_refusal(error: KindlmError) -> bool:
    overloaded = error.details.get("status") in _OVERLOADED
    return error.code is ErrorCode.PROVIDER_RATE_LIMIT or overloaded
