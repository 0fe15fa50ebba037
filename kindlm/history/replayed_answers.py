"""The answers of a recorded run, for the same suite run again without calling anybody.

A request is known by its fingerprint, so that a suite may have changed around it. Each repeat gets
the answers of its own; where there are none, those of another repeat of the test stand in, then
those of another test. The same question asked again gets the next answer that was recorded.
An agent is known by the messages that it is sent.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple, Self

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.recorded_answers import CallKey, read_agent_reply, read_reply
from kindlm.history.recorded_requests import (
    RecordedRequest,
    differences,
    is_as_recorded,
    read_request,
    text_difference,
)
from kindlm.history.transcripts import PurgedError, body_of, read_messages
from kindlm.plan import Execution
from kindlm.ports import Agent, AgentReply, AgentRequest, Asked, ModelReply, Purpose
from kindlm.transcript import Message, Role
from kindlm.wording import count, shown

__all__ = ["RecordedRun"]

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


# Of a call that was tried again, the last try is its outcome. A conversation that is looked at
# again was held in another run.
_OUTCOMES = """
SELECT c.fingerprint, c.purpose, c.status, s.name AS suite, e.test, e.target, e.repeat,
       c.execution, c.attempt, c.call
  FROM executions e
  JOIN suites s ON s.id = e.suite
  JOIN provider_calls c ON c.execution IN (e.id, e.source)
   AND ((c.execution = e.id AND c.attempt = e.attempt)
        OR (c.execution = e.source AND c.attempt = e.source_attempt AND c.purpose = 'test'))
 WHERE e.run = ? AND c.fingerprint IS NOT NULL
   AND (c.status = 'responded' OR (c.status = 'failed' AND c.retry_in_ms IS NULL))
 ORDER BY e.number, c.call
"""

_FAILURE = """
SELECT c.error_code, c.http_status, x.body AS error
  FROM provider_calls c
  LEFT JOIN contents x ON x.ref = c.error_ref
 WHERE c.execution = ? AND c.attempt = ? AND c.call = ?
"""

_TOLD = 3

_ASKED = {Purpose.TEST: "request", Purpose.SIMULATE: "question to a simulated user"}


class Place(NamedTuple):
    """Where an answer was recorded, or is wanted."""

    suite: str
    test: str
    target: str
    repeat: int


class Outcome(NamedTuple):
    """How a recorded call ended."""

    place: Place
    key: CallKey
    purpose: str
    responded: bool


class RecordedRun:
    """All answers of a run, by fingerprint; `db` is a read-only connection."""

    def __init__(self, db: sqlite3.Connection, run: str, *, asks_judges: bool) -> None:
        self._db = db
        self._run = run
        self._asks_judges = asks_judges
        self._outcomes: dict[str, list[Outcome]] = {}
        self._own: dict[tuple[str, Place], list[Outcome]] = {}
        self._of_test: dict[tuple[str, str, str], list[Outcome]] = {}
        for row in db.execute(_OUTCOMES, (run,)):
            place = Place(row["suite"], row["test"], row["target"], row["repeat"])
            key = CallKey(row["execution"], row["attempt"], row["call"])
            outcome = Outcome(place, key, row["purpose"], row["status"] == "responded")
            self._outcomes.setdefault(row["fingerprint"], []).append(outcome)
            self._own.setdefault((row["fingerprint"], place), []).append(outcome)
            self._of_test.setdefault(place[:3], []).append(outcome)

    def answers(self, execution: Execution) -> ReplayedAnswers:
        """Return the answers for one execution; a `ports.AnswerSource`."""
        return ReplayedAnswers(self, execution)

    def find(self, fingerprint: str, place: Place, number: int) -> Outcome | None:
        """Return what the `number`-th asking, from 0, of a request was answered."""
        own = self._own.get((fingerprint, place), ())
        if len(own) > number:
            return own[number]
        groups: dict[str, list[Outcome]] = {}
        for outcome in self._outcomes.get(fingerprint, ()):
            groups.setdefault(outcome.key.execution, []).append(outcome)
        able = [group for group in groups.values() if len(group) > number]
        able.sort(key=lambda group: _distance(group[0].place, place))
        return able[0][number] if able else None

    def reply(self, outcome: Outcome) -> Result[ModelReply]:
        """Return what a call was answered, or the error that it ended with."""
        if outcome.responded:
            reply = read_reply(self._db, outcome.key)
            return Err(_purged(outcome)) if reply is None else Ok(reply)
        row = self._db.execute(_FAILURE, outcome.key).fetchone()
        code = ErrorCode.__members__.get(row["error_code"], ErrorCode.UNKNOWN_ERROR)
        details = {"status": row["http_status"], "retryable": False}
        hint = f"So it was in run {self._run}; run it again: kindlm test"
        return Err(KindlmError(code, row["error"] or "(erased or withheld)", hint, details=details))

    def miss(self, asked: Asked, place: Place) -> KindlmError | None:
        """Return that a request was never recorded, and why; None if a judge is to be asked."""
        if asked.purpose is not Purpose.TEST and self._asks_judges:
            return None
        what = _ASKED.get(asked.purpose, "question to a judge")
        nearest = self._nearest(asked, place)
        if nearest is None:
            why = "nothing like it was recorded of this test"
        else:
            found = list(differences(asked, nearest))
            more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
            why = "; ".join(found[:_TOLD]) + more or "it was asked less often"
        judge = "" if asked.purpose is Purpose.TEST else "; ask the judge: --judge live"
        return KindlmError(
            ErrorCode.PROVIDER_NOT_FOUND,
            f"Run {self._run} never recorded this {what}: {why}.",
            f"Record it: kindlm test; or put it back as it was{judge}",
        )

    def agent(self, execution: Execution) -> Agent:
        """Return an agent that answers as the one of the run did."""
        return ReplayedAgent(self._db, self._run, execution)

    def _nearest(self, asked: Asked, place: Place) -> RecordedRequest | None:
        """Return the recorded request of the test that comes closest."""
        candidates = [
            outcome
            for outcome in self._of_test.get(place[:3], ())
            if outcome.purpose == asked.purpose
        ]
        candidates.sort(key=lambda outcome: _distance(outcome.place, place))
        requests = list(self._requests(candidates))
        turn = _answers(asked.request.messages)
        same_turn = [each for each in requests if _answers(each.messages) == turn]
        near = same_turn or requests
        return min(near, key=lambda each: len(list(differences(asked, each))), default=None)

    def _requests(self, outcomes: Sequence[Outcome]) -> Iterator[RecordedRequest]:
        for outcome in outcomes[:50]:
            try:
                yield read_request(self._db, *outcome.key)
            except PurgedError:
                continue


class ReplayedAnswers:
    """The answers for one execution; a `ports.RecordedAnswers`."""

    def __init__(self, run: RecordedRun, execution: Execution) -> None:
        self._run = run
        self._execution = execution
        suite = execution.suite.suite.name
        self._place = Place(suite, execution.case.name, execution.target, execution.repeat)
        self._asked: Counter[str] = Counter()

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return what was answered then, or why nothing was; None if a judge is to be asked."""
        number = self._asked[asked.fingerprint]
        found = self._run.find(asked.fingerprint, self._place, number)
        if found is None:
            miss = self._run.miss(asked, self._place)
            return None if miss is None else Err(miss)
        self._asked[asked.fingerprint] += 1
        reply = self._run.reply(found)
        is_own = found.place == self._place or asked.purpose is not Purpose.TEST
        if isinstance(reply, Err) or is_own:
            return reply
        warning = _stands_in(found.place, self._place)
        return Ok(replace(reply.value, warnings=(*reply.value.warnings, warning)))

    def agent(self) -> Agent:
        """Return an agent that answers as it did then."""
        return self._run.agent(self._execution)


def _distance(then: Place, now: Place) -> tuple[bool, int, str, str, str, int]:
    """Return what orders places: the same one, other repeats of the test, other tests."""
    other_test = then[:3] != now[:3]
    return (other_test, abs(then.repeat - now.repeat), *then)


def _answers(messages: Sequence[object]) -> int:
    return sum(getattr(message, "role", None) is Role.ASSISTANT for message in messages)


def _stands_in(then: Place, now: Place) -> str:
    if then[:3] == now[:3]:
        return f"Answered as repeat {then.repeat} was: of repeat {now.repeat} nothing was recorded."
    return f"Answered as the test {shown(then.test)} on {shown(then.target)} was."


def _purged(outcome: Outcome) -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        f"The answer of {outcome.key.execution}, call {outcome.key.call}, was purged or withheld.",
        "Record it again: kindlm test",
    )
