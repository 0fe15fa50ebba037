"""Answers of a recorded run, for a replay that calls no target.

The fingerprint of its request identifies a call to a model, so other parts of the suite may change.
The messages identify a call to an agent. If no answer fits, the error shows how the request differs
from the recorded one.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple, Self

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok, Result
from kindlm.events.execution_events import AgentReplied, CallFailed, ProviderRequested
from kindlm.history.recorded_answers import (
    Place,
    RecordedAnswers,
    RecordedCall,
    RecordedCalls,
    not_found,
    read_calls,
    reply_fields,
)
from kindlm.history.recorded_attempts import (
    PurgedError,
    RecordedAttempt,
    recorded_executions,
    transcript_of,
)
from kindlm.plan import Execution
from kindlm.ports import Agent, AgentReply, AgentRequest, Asked, ModelReply, Purpose, ReplayedModels
from kindlm.stored_form import bounded
from kindlm.suite import RecordedAnswer
from kindlm.transcript import Message, Role, ToolCall
from kindlm.wording import around_difference, count, listed, shown

# References to the environment, whose values are not recorded.
_DEFERRED = re.compile("\ufdd0\\{\\{[\\w.]+\\}\\}")


def is_as_recorded(message: Message, then: str) -> bool:
    """Return whether a message is a recorded text, with any values from the environment."""
    if message.text == then:
        return True
    first, *rest = map(re.escape, _DEFERRED.split(message.written or ""))
    if not rest:
        return False
    # In an atomic group, only the next occurrence of a piece counts.
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return re.fullmatch(f"{first}{middle}.*{rest[-1]}", then, re.DOTALL) is not None


def request_differences(
    asked: Asked, then: ProviderRequested, tools_then: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """Yield the differences between a request and a recorded one, the most important first.

    `then` has all messages of the recorded request.
    """
    now = asked.request
    numbers = (
        (name, getattr(now.params, name), then.parameters.get(name))
        for name in ("temperature", "max_tokens", "top_p", "seed")
    )
    callee = ("the provider", asked.provider, then.provider), ("the model", now.model, then.model)
    for what, value, before in (*callee, *numbers):
        if value != before:
            yield f"{what} is {shown(value)}, it was {shown(before)}"
    tools = {tool.name: (tool.description, tool.parameters) for tool in now.tools}
    earlier = {tool["name"]: (tool["description"], tool["parameters"]) for tool in tools_then}
    for name in {**tools, **earlier}:
        if tools.get(name) != earlier.get(name):
            how = "gone" if name not in tools else "different" if name in earlier else "new"
            yield f"the tool {shown(name)} is {how}"
    if tools.keys() == earlier.keys() and list(tools) != list(earlier):
        yield "the tools are in a different order"
    yield from _messages(now.messages, then.messages)


def text_difference(now: str, then: str) -> str:
    """Return both texts around the first character in which they differ."""
    return ", it was ".join(map(shown, around_difference(now, then)))


def _messages(now: Sequence[Message], then: Sequence[Message]) -> Iterator[str]:
    for number, (new, old) in enumerate(zip_longest(now, then), start=1):
        if new is None:
            yield f"message {number}, {_who(old)}, is gone"
        elif old is None:
            yield f"message {number}, {_who(new)}, is new: {shown(new.text)}"
        elif (new.role, new.prefill) != (old.role, old.prefill):
            yield f"message {number} is {_who(new)}, it was {_who(old)}"
        elif not is_as_recorded(new, old.text):
            yield f"message {number}, {_who(new)}, is {text_difference(new.text, old.text)}"
        elif list(map(_call, new.tool_calls)) != list(map(_call, old.tool_calls)):
            yield f"message {number}, {_who(new)}, has other tool calls"
        elif bounded(new.tool_call_id or "") != bounded(old.tool_call_id or ""):
            yield f"message {number}, {_who(new)}, is for another tool call"
        else:
            continue
        return  # Later differences follow from it.


def _who(message: Message) -> str:
    match message.role:
        case Role.SYSTEM:
            return "the system text"
        case Role.USER:
            return "by the user"
        case Role.TOOL:
            return f"the result of the tool {shown(message.tool_name or '')}"
        case Role.ASSISTANT:
            return "the prefill" if message.prefill else "by the model"


def _call(call: ToolCall) -> tuple[Any, ...]:
    return (bounded(call.id), bounded(call.name), call.arguments, call.malformed)


@dataclass(eq=False)
class ReplayedRun:
    """A run whose answers are replayed; `models` finds those for an agent that runs again."""

    db: sqlite3.Connection
    id: str
    asks_judges: bool
    models: Callable[[Execution], ReplayedModels | None] | None = None

    @cached_property
    def calls(self) -> RecordedCalls:
        """The calls of all its tests."""
        return read_calls(self.db, [self.id])


_SHOWN_DIFFERENCES = 3
_NEAREST = 50
_ASKED = {Purpose.TEST: "request", Purpose.SIMULATE: "question to a simulated user"}


class ReplayedAnswers(RecordedAnswers):
    """Gives the recorded answers of a run, without any calls.

    A repeat gets its own answers, else those of another repeat of the test, else those of another
    test.
    """

    def __init__(self, run: ReplayedRun, execution: Execution) -> None:
        super().__init__(run.db, run.calls)
        self._run = run
        self._execution = execution
        self._place = Place(execution.test, execution.repeat)

    def agent(self) -> Agent:
        """Return an agent that gives the recorded answers."""
        return ReplayedAgent(self._db, self._run.id, self._execution)

    def models(self) -> ReplayedModels | None:
        """Return the recorded answers for the models of an agent behind the gateway, if any."""
        execution, find = self._execution, self._run.models
        agent = execution.case.agent or execution.suite.suite.agents.get(execution.target)
        return find(execution) if find is not None and agent and agent.gateway else None

    def tool_results(self) -> Mapping[str, Sequence[RecordedAnswer]]:
        """Return the recorded results of MCP servers' tools, from the nearest repeat."""
        found: dict[str, list[RecordedAnswer]] = {}
        for row in recorded_executions(self._db, self._run.id, self._execution):
            attempt = RecordedAttempt(self._db, row["source"], row["source_attempt"])
            try:
                uses = transcript_of(attempt.talk()).tool_uses
            except PurgedError:
                continue
            for use in uses:
                if use.rule == "mcp":
                    answer = RecordedAnswer(use.call.arguments, use.response)
                    found.setdefault(use.call.name, []).append(answer)
            break
        return found

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return the recorded answer or an error; None if a judge has to be called."""
        number, like_it = self._equal_requests(asked)
        calls = [call for call in like_it if call.number == number]
        if calls:
            return self._answer_of(min(calls, key=self._distance), asked)
        if asked.purpose is not Purpose.TEST and self._run.asks_judges:
            return None
        what = _ASKED.get(asked.purpose, "question to a judge")
        if like_it:
            why = "it was asked fewer times"
        elif (nearest := self._differences(asked)) is None:
            why = "no similar request was recorded for this test"
        else:
            why = listed(nearest, _SHOWN_DIFFERENCES)
            why = why or "its stop sequences or its response schema are different"
        judge = "" if asked.purpose is Purpose.TEST else "; ask the judge: --judge live"
        return not_found(
            f"Run {self._run.id} never recorded this {what}: {why}.",
            f"Record it: kindlm test; or undo the change{judge}",
        )

    def _answer_of(self, call: RecordedCall, asked: Asked) -> Result[ModelReply]:
        given = self._reply(call)
        if given is None:
            message = f"The answer of {call.execution}, call {call.call}, was purged or withheld."
            return not_found(message, "Record it again: kindlm test")
        if isinstance(given, Err):
            hint = f"It failed the same way in run {self._run.id}. Run the test: kindlm test"
            return Err(replace(given.error, hint=hint))
        then, now = call.place, self._place
        if asked.purpose is not Purpose.TEST or then == now:
            return given
        test = then.test
        warning = f"This is the answer of the test {shown(test.name)} on {shown(test.target)}."
        if test == now.test:
            warning = as_repeat(then.repeat, now.repeat)
        return Ok(replace(given.value, warnings=(*given.value.warnings, warning)))

    def _distance(self, call: RecordedCall) -> tuple[Any, ...]:
        return (*call.place.distance(self._place), call.call)

    def _differences(self, asked: Asked) -> list[str] | None:
        """Return how a request differs from the closest recorded one; None if there is none."""
        known = (each for calls in self._run.calls.values() for each in calls)
        of_test = (each for each in known if each.place.test == self._place.test)
        calls = [each for each in of_test if each.purpose == asked.purpose]
        found: list[tuple[bool, int, list[str]]] = []
        turn = [message.role for message in asked.request.messages].count(Role.ASSISTANT)
        for call in sorted(calls, key=self._distance)[:_NEAREST]:
            attempt = self._attempt(call.execution, call.attempt)
            with suppress(PurgedError):
                then = attempt.request(call.call)
                # A judge has no tools.
                tools = [] if then.after is None else attempt.tools()
                differences = list(request_differences(asked, then, tools))
                turn_then = [message.role for message in then.messages].count(Role.ASSISTANT)
                found.append((turn_then != turn, len(differences), differences))
        return min(found, key=itemgetter(0, 1))[2] if found else None


def as_repeat(then: int, now: int) -> str:
    """Return the warning that answers come from another repeat."""
    return f"This is the answer of repeat {then}: repeat {now} was not recorded."


class _Held(NamedTuple):
    """A conversation with an agent: the user's messages, each with the last call for it."""

    repeat: int
    attempt: RecordedAttempt
    system: str | None
    exchanges: tuple[tuple[str, int], ...]


class ReplayedAgent:
    """Gives the answers of a recorded conversation; implements `ports.Agent`.

    It uses the conversation that begins with the most messages of the case, of the nearest repeat.
    """

    def __init__(self, db: sqlite3.Connection, run: str, execution: Execution) -> None:
        self._run = run
        self._execution = execution
        self._sent = 0
        self._held = max(self._conversations(db), key=self._matching, default=None)

    def _conversations(self, db: sqlite3.Connection) -> Iterator[_Held]:
        """Yield the conversations of the test whose messages are all available."""
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
        """Return how many messages of the case the conversation begins with."""
        case = self._execution.case
        written = case.written or case
        texts = (case.prompt.user, *case.follow_ups), (written.prompt.user, *written.follow_ups)
        now = (Message(Role.USER, text, written=own) for text, own in zip(*texts, strict=False))
        then = (user for user, _ in held.exchanges)
        same = (is_as_recorded(*both) for both in zip(now, then, strict=False))
        return sum(takewhile(bool, same))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Return the recorded answer to the same message."""
        held, number = self._held, self._sent
        self._sent += 1
        if held is None:
            return self._miss("nothing was recorded for this test")
        system = next((m for m in request.messages if m.role is Role.SYSTEM), None)
        if (system is None) != (held.system is None) or (
            system is not None and not is_as_recorded(system, held.system or "")
        ):
            return self._miss("the system text is different")
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
            return Err(outcome.failure(held.attempt.paid_before(call)))
        if not isinstance(outcome, AgentReplied):
            return self._miss("the answer was purged or withheld, or never came")
        reply = agent_reply(held.attempt, outcome)
        if self._execution.case.script is not None:
            reply = replace(reply, raw=held.attempt.body(call))
        if held.repeat != self._execution.repeat:
            warning = as_repeat(held.repeat, self._execution.repeat)
            reply = replace(reply, warnings=(*reply.warnings, warning))
        return Ok(reply)

    def _miss(self, why: str) -> Err:
        message = f"Run {self._run} has no recorded answer of the agent to this: {why}."
        return not_found(message, "Record it: kindlm test; or undo the change")


def agent_reply(attempt: RecordedAttempt, event: AgentReplied) -> AgentReply:
    """Return a recorded answer of an agent, with its tool calls."""
    step = event.step()
    return AgentReply(
        tool_uses=step.tool_uses,
        reported=step.reported,
        reports_tools=step.reports_tools,
        unseen=step.unseen,
        **reply_fields(attempt, event),
    )
