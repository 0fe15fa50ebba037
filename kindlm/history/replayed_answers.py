"""Answers of a recorded run, for a replay that calls no target.

The fingerprint of its request identifies a call to a model, so other parts of the suite may change.
The messages identify a call to an agent. If no answer fits, the error shows how the request differs
from the recorded one.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from kindlm.dataclass import replace
from kindlm.errors import Err, Ok, Result
from kindlm.history.recorded_answers import (
    FoundAnswers,
    RecordedCall,
    RecordedCalls,
    not_found,
    reply_fields,
)
from kindlm.history.recorded_attempts import PurgedError, recorded_repeats, transcript_of
from kindlm.plan import Execution
from kindlm.ports import (
    NO_PARAMETERS,
    Agent,
    AgentReply,
    AgentRequest,
    Asked,
    ModelReply,
    Purpose,
    ReplayedModels,
)
from kindlm.stored_form import bounded
from kindlm.suite import RecordedAnswer
from kindlm.transcript import Message, Role
from kindlm.wording import count, differences, nearest_differences, shown

# References to the environment, whose values are not recorded.
_DEFERRED = re.compile("\ufdd0\\{\\{[\\w.]+\\}\\}")

_NUMBERS = ("temperature", "max_tokens", "top_p", "seed")
_ASKED = {Purpose.TEST: "request", Purpose.SIMULATE: "question to a simulated user"}


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


def as_asked(recorded: Sequence[Message], now: Sequence[Message]) -> list[Message]:
    """Return recorded messages, with the values of the environment that they have now."""
    pairs = zip_longest(recorded, now[: len(recorded)])
    return [
        replace(then, text=message.text) if message and is_as_recorded(message, then.text) else then
        for then, message in pairs
    ]


def form_of(
    provider: str,
    model: str,
    parameters: Mapping[str, Any],
    tools: Iterable[Mapping[str, Any]],
    messages: Iterable[Message],
) -> dict[str, Any]:
    """Return the parts of a request to a model that are compared, as a JSON value."""
    return {
        "provider": provider,
        "model": model,
        **{name: parameters.get(name) for name in _NUMBERS},
        "tools": {
            tool["name"]: {**tool, "parameters": tool.get("parameters") or NO_PARAMETERS}
            for tool in tools
        },
        "messages": list(map(_form_of_message, messages)),
    }


def _form_of_message(message: Message) -> dict[str, Any]:
    form = {
        "role": message.role,
        "content": message.text,
        "prefill": message.prefill,
        "tool_call_id": message.tool_call_id and bounded(message.tool_call_id),
        "tool_calls": [
            [bounded(call.id), bounded(call.name), call.malformed or call.arguments]
            for call in message.tool_calls
        ],
    }
    return {name: value for name, value in form.items() if value}


class ReplayedAnswers(FoundAnswers):
    """Gives the recorded answers of a run, without any calls.

    A repeat gets its own answers, else those of another repeat of the test, else those of another
    test. Judges are asked what the record does not answer if the replay `asks_judges`. `models`
    finds the answers for the models of an agent that runs again.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        run: str,
        calls: RecordedCalls,
        asks_judges: bool,
        models: Callable[[Execution], ReplayedModels | None],
        execution: Execution,
    ) -> None:
        super().__init__(db, calls, execution)
        self._run = run
        self._asks_judges = asks_judges
        self._models = models

    def agent(self) -> Agent:
        """Return an agent that gives the recorded answers."""
        return ReplayedAgent(self._db, self._run, self._execution)

    def models(self) -> ReplayedModels | None:
        """Return the recorded answers for the models of an agent behind the gateway, if any."""
        execution = self._execution
        agent = execution.case.agent or execution.suite.suite.agents.get(execution.target)
        return self._models(execution) if agent and agent.gateway else None

    def tool_results(self) -> Mapping[str, Sequence[RecordedAnswer]]:
        """Return the recorded results of MCP servers' tools, from the nearest repeat."""
        found: dict[str, list[RecordedAnswer]] = {}
        for repeat in recorded_repeats(self._db, self._run, self._execution):
            with suppress(PurgedError):
                for use in transcript_of(repeat.source.talk()).tool_uses:
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
        if asked.purpose is not Purpose.TEST and self._asks_judges:
            return None
        what = _ASKED.get(asked.purpose, "question to a judge")
        if like_it:
            why = "it was asked fewer times"
        elif (differs := self._differences(asked)) is None:
            why = "no similar request was recorded for this test"
        else:
            why = differs or "its stop sequences, its response schema or the order of tools differ"
        judge = "" if asked.purpose is Purpose.TEST else "; ask the judge: --judge live"
        return not_found(
            f"Run {self._run} never recorded this {what}: {why}.",
            f"Record it: kindlm test; or undo the change{judge}",
        )

    def _answer_of(self, call: RecordedCall, asked: Asked) -> Result[ModelReply]:
        given = self._reply(call, asked)
        if given is None:
            message = f"The answer of {call.execution}, call {call.call}, was purged or withheld."
            return not_found(message, "Record it again: kindlm test")
        if isinstance(given, Err):
            hint = f"It failed the same way in run {self._run}. Run the test: kindlm test"
            return Err(replace(given.error, hint=hint))
        test, repeat = call.test, self._execution.repeat
        is_own = test == self._execution.test
        if asked.purpose is not Purpose.TEST or (is_own and call.repeat == repeat):
            return given
        warning = f"This is the answer of the test {shown(test.name)} on {shown(test.target)}."
        warning = as_repeat(call.repeat, repeat) if is_own else warning
        return Ok(replace(given.value, warnings=(*given.value.warnings, warning)))

    def _distance(self, call: RecordedCall) -> tuple[Any, ...]:
        """Return a sort key: the own repeat, then others of the test, then other tests."""
        own, apart = self._execution.test, abs(call.repeat - self._execution.repeat)
        return call.test != own, apart, call.test, call.repeat, call.call

    def _differences(self, asked: Asked) -> str | None:
        """Return how a request differs from the nearest one of the nearest repeat, if any."""
        known = (each for calls in self._calls.values() for each in calls)
        wanted = self._execution.test, asked.purpose
        found = [each for each in known if (each.test, each.purpose) == wanted]
        found.sort(key=self._distance)
        request = asked.request
        forms = list[dict[str, Any]]()
        for call in found:
            if call.repeat != found[0].repeat:
                break
            attempt = self._attempt(call.execution, call.attempt)
            with suppress(PurgedError):
                then = attempt.request(call.call)
                # A judge has no tools.
                tools = [] if then.after is None else attempt.tools()
                messages = as_asked(then.messages, request.messages)
                forms.append(form_of(then.provider, then.model, then.parameters, tools, messages))
        offered = map(asdict, request.tools)
        parameters = asdict(request.params)
        now = form_of(asked.provider, request.model, parameters, offered, request.messages)
        return nearest_differences(forms, now)


def as_repeat(then: int, now: int) -> str:
    """Return the warning that answers come from another repeat."""
    return f"This is the answer of repeat {then}: repeat {now} was not recorded."


def _system_of(messages: Sequence[Message]) -> Message:
    """Return the system message, or an empty one if there is none."""
    found = (message for message in messages if message.role is Role.SYSTEM)
    return next(found, Message(Role.SYSTEM, ""))


class ReplayedAgent(Agent):
    """Gives the answers of a recorded conversation.

    It is the conversation of the nearest repeat whose messages are all available.
    """

    def __init__(self, db: sqlite3.Connection, run: str, execution: Execution) -> None:
        self._run = run
        self._execution = execution
        self._sent = 0
        self._held = None
        for repeat in recorded_repeats(db, run, execution):
            with suppress(PurgedError):
                started, exchanges = repeat.source.started, repeat.source.exchanges()
                if started is not None:
                    self._held = repeat, started.messages, exchanges
                    break

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Return the recorded answer to the same message."""
        number = self._sent
        self._sent += 1
        if self._held is None:
            return self._miss("nothing was recorded for this test")
        repeat, first, exchanges = self._held
        attempt = repeat.source
        if not is_as_recorded(_system_of(request.messages), _system_of(first).text):
            return self._miss("the system text is different")
        if number >= len(exchanges):
            return self._miss(f"the user sent {count(len(exchanges), 'message')} then")
        (user, call), message = exchanges[number], request.messages[-1]
        if not is_as_recorded(message, user):
            return self._miss(*differences(user, message.text, f"message {number + 1} of the user"))
        answer = attempt.answer(call)
        if answer is None:
            return self._miss("the answer was purged or withheld, or never came")
        if isinstance(answer, Err):
            return answer
        facts, step = reply_fields(attempt, answer.value), answer.value.step()
        if repeat.number != self._execution.repeat:
            warning = as_repeat(repeat.number, self._execution.repeat)
            facts["warnings"] = (*facts["warnings"], warning)
        return Ok(
            AgentReply(
                raw=None if self._execution.case.script is None else attempt.body(call),
                tool_uses=step.tool_uses,
                reported=step.reported,
                reports_tools=step.reports_tools,
                unseen=step.unseen,
                **facts,
            )
        )

    def _miss(self, why: str) -> Err:
        message = f"Run {self._run} has no recorded answer of the agent to this: {why}."
        return not_found(message, "Record it: kindlm test; or undo the change")
