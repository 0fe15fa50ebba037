"""The answers of a recorded run, for the same suite run again without calling anybody.

A model is known by the fingerprint of its request, so a suite may have changed around it. An agent
is known by the messages that it is sent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple, Self

from kindlm.errors import Err, Ok, Result
from kindlm.events import AgentReplied, CallFailed, ProviderRequested
from kindlm.history.recorded_answers import (
    Calls,
    Place,
    RecordedAnswers,
    RecordedCall,
    answer_facts,
    not_found,
    read_calls,
)
from kindlm.history.recorded_attempts import PurgedError, RecordedAttempt, recorded_executions
from kindlm.history.request_differences import differences, is_as_recorded, text_difference
from kindlm.plan import Execution
from kindlm.ports import Agent, AgentReply, AgentRequest, Asked, ModelReply, Purpose
from kindlm.transcript import Message, Role
from kindlm.wording import count, shown


class ReplayedRun:
    """A run whose answers are given again; `db` is a read-only connection."""

    def __init__(self, db: sqlite3.Connection, run: str, *, asks_judges: bool) -> None:
        self.db = db
        self.id = run
        self.asks_judges = asks_judges

    @cached_property
    def calls(self) -> Calls:
        """The calls of all its tests."""
        return read_calls(self.db, [self.id])


_TOLD = 3
_NEAREST = 50
_ASKED = {Purpose.TEST: "request", Purpose.SIMULATE: "question to a simulated user"}


class ReplayedAnswers(RecordedAnswers):
    """Gives the answers of a run to the same suite, without calling anybody.

    Its tests may have changed around the requests. Each repeat gets the answers of its own; where
    there are none, those of another repeat of the test stand in, then those of another test.
    """

    def __init__(self, run: ReplayedRun, execution: Execution) -> None:
        super().__init__(run.db, run.calls)
        self._run = run
        self._execution = execution
        self._place = Place.of(execution)

    def agent(self) -> Agent:
        """Return an agent that answers as it did then."""
        return ReplayedAgent(self._db, self._run.id, self._execution)

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return what was answered then; None if a judge is to be asked."""
        number, like_it = self._calls_like(asked)
        calls = [call for call in like_it if call.number == number]
        if calls:
            return self._answer_of(min(calls, key=self._distance), asked)
        if asked.purpose is not Purpose.TEST and self._run.asks_judges:
            return None
        what = _ASKED.get(asked.purpose, "question to a judge")
        nearest = self._differences(asked)
        if nearest is None:
            why = "nothing like it was recorded of this test"
        else:
            more = f"; and {len(nearest) - _TOLD} more" if len(nearest) > _TOLD else ""
            why = "; ".join(nearest[:_TOLD]) + more or "it was asked less often"
        judge = "" if asked.purpose is Purpose.TEST else "; ask the judge: --judge live"
        return not_found(
            f"Run {self._run.id} never recorded this {what}: {why}.",
            f"Record it: kindlm test; or put it back as it was{judge}",
        )

    def _answer_of(self, call: RecordedCall, asked: Asked) -> Result[ModelReply]:
        given = self._reply(call)
        if given is None:
            message = f"The answer of {call.execution}, call {call.call}, was purged or withheld."
            return not_found(message, "Record it again: kindlm test")
        if isinstance(given, Err):
            hint = f"So it was in run {self._run.id}; run it again: kindlm test"
            return Err(replace(given.error, hint=hint))
        then, now = call.place, self._place
        if asked.purpose is not Purpose.TEST or then == now:
            return given
        warning = f"Answered as the test {shown(then.test)} on {shown(then.target)} was."
        if then[:-1] == now[:-1]:
            warning = _as_repeat(then.repeat, now.repeat)
        return Ok(replace(given.value, warnings=(*given.value.warnings, warning)))

    def _distance(self, call: RecordedCall) -> tuple[Any, ...]:
        return (*call.place.distance(self._place), call.call)

    def _differences(self, asked: Asked) -> list[str] | None:
        """Return how a request differs from the recorded one of the test that comes closest."""
        calls = [
            call
            for calls in self._run.calls.values()
            for call in calls
            if call.purpose == asked.purpose and call.place[:-1] == self._place[:-1]
        ]
        found: list[tuple[ProviderRequested, list[dict[str, Any]]]] = []
        for call in sorted(calls, key=self._distance)[:_NEAREST]:
            attempt = self._attempt(call)
            try:
                request = attempt.request(call.call)
            except PurgedError:
                continue
            # A judge has no tools.
            found.append((request, [] if request.after is None else attempt.tools()))
        turn = _answers(asked.request.messages)
        same_turn = [each for each in found if _answers(each[0].messages) == turn]
        differing = [list(differences(asked, *each)) for each in same_turn or found]
        return min(differing, key=len, default=None)


def _answers(messages: Sequence[Message]) -> int:
    return sum(message.role is Role.ASSISTANT for message in messages)


def _as_repeat(then: int, now: int) -> str:
    return f"Answered as repeat {then} was: of repeat {now} nothing was recorded."


class _Held(NamedTuple):
    """A conversation with an agent: what the user said, and the call that each message ended with.

    `system` is the system text.
    """

    repeat: int
    attempt: RecordedAttempt
    system: str | None
    exchanges: tuple[tuple[str, int], ...]


class ReplayedAgent:
    """Answers one conversation from the record; implements `ports.Agent`.

    It is that of the same repeat, or of the one that began with most of the same messages. What is
    answered goes by the messages that the agent was sent.
    """

    def __init__(self, db: sqlite3.Connection, run: str, execution: Execution) -> None:
        self._run = run
        self._execution = execution
        self._sent = 0
        self._held = max(self._conversations(db), key=self._matching, default=None)

    def _conversations(self, db: sqlite3.Connection) -> Iterator[_Held]:
        """Yield the conversations of the test whose messages are all there."""
        for row in recorded_executions(db, self._run, self._execution):
            if row["status"] == "skipped":
                continue
            attempt = RecordedAttempt(db, row["source"], row["source_attempt"])
            try:
                first = attempt.started.messages if attempt.started else ()
                exchanges = tuple(attempt.exchanges())
            except PurgedError:
                continue
            system = next((m.text for m in first if m.role is Role.SYSTEM), None)
            yield _Held(row["repeat"], attempt, system, exchanges)

    def _matching(self, held: _Held) -> int:
        """Return how many messages of the case were sent then, one after the other."""
        case = self._execution.case
        written = case.written or case
        texts = zip(
            (case.prompt.user, *case.follow_ups),
            (written.prompt.user, *written.follow_ups),
            (user for user, _ in held.exchanges),
            strict=False,
        )
        same = takewhile(
            lambda both: is_as_recorded(Message(Role.USER, both[0], written=both[1]), both[2]),
            texts,
        )
        return len(list(same))

    async def __aenter__(self) -> Self:
        """Open nothing: there is nobody to talk to."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Return what was answered to the same message then."""
        held, number = self._held, self._sent
        self._sent += 1
        if held is None:
            return self._miss("nothing was recorded of this test")
        system = next((m for m in request.messages if m.role is Role.SYSTEM), None)
        if (system is None) != (held.system is None) or (
            system is not None and not is_as_recorded(system, held.system or "")
        ):
            return self._miss("the system text is another one")
        if number >= len(held.exchanges):
            return self._miss(f"the user sent {count(len(held.exchanges), 'message')} then")
        (user, call), message = held.exchanges[number], request.messages[-1]
        if not is_as_recorded(message, user):
            difference = text_difference(message.text, user)
            return self._miss(f"message {number + 1} of the user is {difference}")
        try:
            outcome = held.attempt.outcome(call)
        except PurgedError:
            outcome = None
        if isinstance(outcome, CallFailed):
            return Err(outcome.failure())
        if not isinstance(outcome, AgentReplied):
            return self._miss("the answer was purged or withheld, or never came")
        reply = agent_reply(held.attempt, outcome)
        if self._execution.case.script is not None:
            reply = replace(reply, raw=held.attempt.body(call))
        if held.repeat != self._execution.repeat:
            warning = _as_repeat(held.repeat, self._execution.repeat)
            reply = replace(reply, warnings=(*reply.warnings, warning))
        return Ok(reply)

    def _miss(self, why: str) -> Err:
        message = f"Run {self._run} never recorded what the agent says to this: {why}."
        return not_found(message, "Record it: kindlm test; or put it back as it was")


def agent_reply(attempt: RecordedAttempt, event: AgentReplied) -> AgentReply:
    """Return what an agent answered, and the tools it used."""
    step = event.step()
    return AgentReply(
        raw=None,
        tool_uses=step.tool_uses,
        reported=step.reported,
        reports_tools=step.reports_tools,
        **answer_facts(attempt, event),
    )
