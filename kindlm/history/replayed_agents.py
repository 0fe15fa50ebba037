"""Agents that answer as they did in a recorded run: known by the messages that they are sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Self

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.as_written import is_as_recorded
from kindlm.history.recorded_answers import CallKey, read_agent_reply
from kindlm.history.recorded_requests import text_difference
from kindlm.history.transcripts import PurgedError, body_of, read_messages
from kindlm.plan import Execution
from kindlm.ports import AgentReply, AgentRequest
from kindlm.transcript import Message, Role
from kindlm.wording import count

__all__ = ["ReplayedAgent"]

_CONVERSATIONS = """
SELECT e.source, e.source_attempt, e.repeat, e.messages
  FROM suites s
  JOIN executions e ON e.suite = s.id
 WHERE s.run = ? AND s.project = ? AND s.name = ? AND e.test = ? AND e.target = ?
   AND e.status IS NOT 'skipped'
 ORDER BY abs(e.repeat - ?), e.repeat
"""

_CALLS = """
SELECT c.call, c.try, c.status, c.messages, c.retry_in_ms, c.error_code, c.http_status,
       x.body AS error
  FROM provider_calls c
  LEFT JOIN contents x ON x.ref = c.error_ref
 WHERE c.execution = ? AND c.attempt = ? AND c.purpose = 'test'
 ORDER BY c.call
"""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A message as it was sent then, the last call for it, and the error that it ended with."""

    user: str
    key: CallKey
    error: KindlmError | None = None


@dataclass(frozen=True, slots=True)
class _Conversation:
    repeat: int
    system: str | None
    exchanges: tuple[_Exchange, ...]


class ReplayedAgent:
    """Answers one conversation from the record; implements `ports.Agent`.

    It is that of the same repeat, or of the one that began with most of the same messages.
    """

    def __init__(self, db: sqlite3.Connection, run: str, execution: Execution) -> None:
        self._db = db
        self._run = run
        self._execution = execution
        self._sent = 0
        suite, case = execution.suite.suite, execution.case
        key = (run, suite.project, suite.name, case.name, execution.target, execution.repeat)
        rows = db.execute(_CONVERSATIONS, key).fetchall()
        self._held = max(_conversations(db, rows), key=self._matching, default=None)

    async def __aenter__(self) -> Self:
        """Open nothing: there is nobody to talk to."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Return what was answered to the same message then."""
        number = self._sent
        self._sent += 1
        if self._held is None:
            return Err(self._miss("nothing was recorded of this test"))
        system = _system(request.messages)
        if not _same(system, self._held.system):
            return Err(self._miss("the system text is another one"))
        if number >= len(self._held.exchanges):
            then = count(len(self._held.exchanges), "message")
            return Err(self._miss(f"the user sent {then} then"))
        exchange, message = self._held.exchanges[number], request.messages[-1]
        if not is_as_recorded(message, exchange.user):
            difference = text_difference(message.text, exchange.user)
            return Err(self._miss(f"message {number + 1} of the user is {difference}"))
        if exchange.error is not None:
            return Err(exchange.error)
        reply = read_agent_reply(self._db, exchange.key)
        if reply is None:
            return Err(self._miss("the answer was purged or withheld, or never came"))
        if self._execution.case.script is not None and reply.recorded is not None:
            reply = replace(reply, raw=body_of(self._db, reply.recorded.call))
        return Ok(self._told(reply))

    def _told(self, reply: AgentReply) -> AgentReply:
        assert self._held is not None
        if self._held.repeat == self._execution.repeat:
            return reply
        warning = (
            f"Answered as repeat {self._held.repeat} was:"
            f" of repeat {self._execution.repeat} nothing was recorded."
        )
        return replace(reply, warnings=(*reply.warnings, warning))

    def _matching(self, held: _Conversation) -> int:
        """Return how many messages of the case were sent then, one after the other."""
        case = self._execution.case
        written = case.written or case
        texts = zip(
            (case.prompt.user, *case.follow_ups),
            (written.prompt.user, *written.follow_ups),
            (exchange.user for exchange in held.exchanges),
            strict=False,
        )
        same = takewhile(
            lambda both: is_as_recorded(Message(Role.USER, both[0], written=both[1]), both[2]),
            texts,
        )
        return len(list(same))

    def _miss(self, why: str) -> KindlmError:
        return KindlmError(
            ErrorCode.PROVIDER_NOT_FOUND,
            f"Run {self._run} never recorded what the agent says to this: {why}.",
            "Record it: kindlm test; or put it back as it was",
        )


def _conversations(db: sqlite3.Connection, rows: Sequence[sqlite3.Row]) -> Iterator[_Conversation]:
    """Yield conversations whose messages are all there."""
    for row in rows:
        with suppress(PurgedError):
            yield _conversation(db, row)


def _conversation(db: sqlite3.Connection, row: sqlite3.Row) -> _Conversation:
    place = (row["source"], row["source_attempt"])
    first = list(read_messages(db, row["messages"]))
    users = [message.text for message in first if message.role is Role.USER]
    exchanges: list[_Exchange] = []
    for call in db.execute(_CALLS, place):
        if call["try"] == 1:
            users += [message.text for message in read_messages(db, call["messages"])]
        if call["status"] is not None and call["retry_in_ms"] is None:
            key = CallKey(*place, call["call"])
            exchanges.append(_Exchange(users[len(exchanges)], key, _error(call)))
    system = next((message.text for message in first if message.role is Role.SYSTEM), None)
    return _Conversation(row["repeat"], system, tuple(exchanges))


def _error(call: sqlite3.Row) -> KindlmError | None:
    if call["status"] != "failed":
        return None
    code = ErrorCode.__members__.get(call["error_code"], ErrorCode.UNKNOWN_ERROR)
    details = {"status": call["http_status"], "retryable": False}
    return KindlmError(code, call["error"] or "(erased or withheld)", details=details)


def _system(messages: Sequence[Message]) -> Message | None:
    return next((message for message in messages if message.role is Role.SYSTEM), None)


def _same(now: Message | None, then: str | None) -> bool:
    if now is None or then is None:
        return now is None and then is None
    return is_as_recorded(now, then)
