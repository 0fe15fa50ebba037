"""Answers tool calls of models and agents: with simulated results, or by calling MCP servers.

The suite defines the tool result of each call. A result may contain placeholders:
`{{args.order_id}}`, `{{state.items[0].price}}`. A string that is one placeholder becomes the value
it names, of any type. Inside a longer string, a string is inserted as it is and any other value as
JSON. Inserted values are not expanded again. Something that looks like a placeholder but names
neither `args` nor `state` stays as it is.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import field
from itertools import count, islice
from operator import attrgetter
from typing import Any

from kindlm.dataclass import dataclass, replace
from kindlm.engine.stop import Clock
from kindlm.errors import Err, Raised
from kindlm.events.codec import Payload
from kindlm.events.execution_events import AgentToolUse, ToolCalled, ToolSimulated
from kindlm.json_schema import schema_issues
from kindlm.json_schema_keywords import UndecidableSchemaError
from kindlm.matching import ABSENT, equal, matches, path_parts, state_matches, value_at
from kindlm.ports import (
    NO_PARAMETERS,
    Agent,
    AgentFactory,
    AgentRequest,
    AnsweredCall,
    Aside,
    ToolDefinition,
    here,
)
from kindlm.stored_form import bounded
from kindlm.strict_json import parts_of
from kindlm.suite import TOOL_PLACEHOLDER, Fault, SimulatedTool, Suite, ToolAnswer
from kindlm.transcript import (
    Message,
    Role,
    ToolCall,
    ToolProblem,
    ToolProblemKind,
    ToolUse,
    storable_json,
)
from kindlm.values import filled
from kindlm.wording import listed, shown

_PATTERNS = {"pattern", "patternProperties"}
_SMALL = 200
_MAX_LISTED = 5

_OF_SERVER = "mcp"
"""The rule of a result of the tool's server, which may be recorded: a replay calls no server."""

_MALFORMED = '{"status": "ok", "result": {"items": ['
"""JSON that is cut off."""


class SimulatedTools:
    """The simulated tools of one execution.

    The first of these answers a call:

    - an answer of the tool that matches the arguments and the state
    - a recorded answer to equal arguments
    - the default answer
    - the server of the tool, by `call_server`

    A call without an answer gets an error object as its result, and a problem. The conversation
    continues, as it would with a real tool that failed.

    All tools share one state, which lasts as long as the execution. Calls are answered in order, so
    a parallel call sees the state that earlier ones set. Schemas that can take long are validated
    `aside`. `definitions` are the tool definitions sent to the model.
    """

    def __init__(
        self,
        tools: Sequence[SimulatedTool],
        aside: Aside = here,
        call_server: Callable[[str, ToolCall], Awaitable[Any]] | None = None,
    ) -> None:
        self._tools: dict[str, SimulatedTool] = {}
        definitions: dict[str, ToolDefinition] = {}
        for tool in tools:
            self._tools[tool.name] = tool
            parameters = NO_PARAMETERS if tool.parameters is None else tool.parameters
            definitions[tool.name] = ToolDefinition(tool.name, tool.description, parameters)
        self.definitions = tuple(definitions.values())
        self._aside = aside
        self._call_server = call_server
        self._state: dict[str, Any] = {}
        self._answered: Counter[Hashable] = Counter()

    async def answer(self, call: ToolCall) -> AnsweredCall:
        """Answer one call; names compare exactly. Calls must not overlap.

        Arguments that break the tool's `parameters` are a problem, but are answered all the same.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            # Bounded as in the record, so that a replay gives the same answer.
            problem = f"There is no tool named {bounded(call.name)!r}."
            return _unmatched(call, "unknown tool", problem)
        if call.malformed is not None:
            message = f"The arguments of {call.name!r} were not a JSON object."
            return _unmatched(call, "malformed arguments", message)
        problems = await self._checked(ToolProblemKind.ARGUMENTS, tool, call.arguments)
        chosen = self._choose(tool, call.arguments)
        if chosen is None and tool.server is not None and self._call_server is not None:
            chosen = ToolAnswer(then=await self._call_server(tool.server, call)), _OF_SERVER
        if chosen is None:
            why = f"{tool.name!r} has no response for these arguments."
            if tool.server is not None:
                why += " Its server is not called in a replay, and was not asked this then."
            elif tool.cassette is not None:
                why += (
                    f" Its cassette ({shown(tool.cassette)}) holds no call with equal arguments in"
                    " the test of this name."
                )
            return _unmatched(call, "no response", why, problems)
        answer, rule = chosen
        response, delay_s = answer.then, answer.delay_ms / 1000
        if rule.startswith("responses"):  # only these are templates
            scope = {"args": call.arguments, "state": self._state}
            try:
                response = fill(response, scope)
                self._state.update(fill(answer.set_state, scope))
            except MissingValueError as missing:
                message = f"{call.name!r} cannot answer: there is no {missing}."
                return _unmatched(call, rule, message, problems, delay_s)
        # A server's `outputSchema` does not describe failures.
        is_error = isinstance(response, dict) and response.keys() == {"error"}
        if answer.fault is not None:
            # The record must show that the answer is broken on purpose.
            rule = f"{rule}, fault: {answer.fault.value}"
            is_late = answer.fault is Fault.TIMEOUT
            failed = "timed out" if is_late else "failed with an internal error"
            response = {"error": f"The tool {shown(call.name)} {failed}.", "tool": call.name}
            if answer.fault is Fault.MALFORMED:
                response = _MALFORMED
        elif not (rule == _OF_SERVER and is_error):
            wrong = await self._checked(ToolProblemKind.RESULT, tool, response)
            problems = (*problems, *wrong)
        return _answered(call, response, rule, problems, delay_s)

    async def _checked(
        self, kind: ToolProblemKind, tool: SimulatedTool, value: Any
    ) -> tuple[ToolProblem, ...]:
        """Return how the arguments or the result of a call break the tool's schema, if any."""
        schema, name = tool.parameters, "parameters"
        if kind is ToolProblemKind.RESULT:
            schema = tool.result_schema
            name = "resultSchema" if tool.server is None else "outputSchema"
        if schema is None:
            return ()

        def find() -> tuple[ToolProblem, ...]:
            try:
                issues = schema_issues(schema, value)
            except UndecidableSchemaError as error:
                broken = f"it could not be checked: {error}".removesuffix(".")
            else:
                if not issues:
                    return ()
                broken = listed(issues, _MAX_LISTED, lambda issue: f"{issue.path}: {issue.message}")
            message = f"The {kind.value} of {shown(tool.name)} must fit its {name}: {broken}."
            return (ToolProblem(kind, message),)

        # Values of many parts and patterns can take long. A property named "pattern" also counts.
        has_many_parts = len(list(islice(parts_of(value), _SMALL + 1))) > _SMALL
        has_patterns = any(
            isinstance(part, Mapping) and not _PATTERNS.isdisjoint(part)
            for part in parts_of(schema)
        )
        if has_many_parts or has_patterns:
            return await self._aside(find)
        return find()

    def _choose(
        self, tool: SimulatedTool, arguments: Mapping[str, Any]
    ) -> tuple[ToolAnswer, str] | None:
        """Return the answer to a call, and the rule that chose it."""
        for index, answer in enumerate(tool.answers):
            if answer.when is not None and not matches(answer.when, arguments):
                continue
            if answer.when_state is not None and not state_matches(answer.when_state, self._state):
                continue
            rule = f"responses[{index}]"
            if not answer.sequence:
                return answer, rule
            turn = self._turn((tool.name, index), len(answer.sequence))
            in_turn = answer.sequence[turn]
            # The keys beside `sequence` apply to each answer in it.
            in_turn = replace(
                in_turn,
                set_state={**answer.set_state, **in_turn.set_state},
                fault=in_turn.fault or answer.fault,
                delay_ms=in_turn.delay_ms or answer.delay_ms,
            )
            return in_turn, f"{rule}.sequence[{turn}]"
        same = [i for i, each in enumerate(tool.recorded) if equal(each.arguments, arguments)]
        if same:
            turn = self._turn((tool.name, "cassette", same[0]), len(same))
            rule = "cassette" if tool.server is None else _OF_SERVER
            return ToolAnswer(then=tool.recorded[same[turn]].response), rule
        if tool.has_default:
            return ToolAnswer(then=tool.default), "defaultResponse"
        return None

    def _turn(self, key: Hashable, length: int) -> int:
        """Return the current position among `length` answers, and advance it up to the last."""
        turn = self._answered[key]
        self._answered[key] += 1
        return min(turn, length - 1)


def _unmatched(
    call: ToolCall,
    rule: str,
    message: str,
    problems: tuple[ToolProblem, ...] = (),
    delay_s: float = 0.0,
) -> AnsweredCall:
    """Return the answer to a call that matches no answer: an error object, and a problem."""
    unmatched = ToolProblem(ToolProblemKind.UNMATCHED, message)
    response = {"error": message, "tool": bounded(call.name)}
    return _answered(call, response, rule, (*problems, unmatched), delay_s)


def _answered(
    call: ToolCall, response: Any, rule: str, problems: tuple[ToolProblem, ...], delay_s: float
) -> AnsweredCall:
    use = ToolUse(call, storable_json(response), rule, problems)
    return AnsweredCall(use, as_text(use.response), delay_s)


class MissingValueError(Exception):
    """A placeholder whose path does not exist; the path is the message."""


def fill(template: Any, scope: Mapping[str, Any]) -> Any:
    """Return a JSON value with all placeholders in its texts replaced; keys stay as they are.

    `scope` holds `args` and `state`. Raises `MissingValueError`.
    """

    def fill_text(text: str) -> Any:
        if whole := TOOL_PLACEHOLDER.fullmatch(text):
            return _value(whole[1], scope)
        return TOOL_PLACEHOLDER.sub(lambda found: as_text(_value(found[1], scope)), text)

    return filled(template, fill_text)


def _value(path: str, scope: Mapping[str, Any]) -> Any:
    value = value_at(scope, path_parts(path))
    if value is ABSENT:
        raise MissingValueError(path)
    return value


def as_text(value: Any) -> str:
    """Return the text that replaces a placeholder: a string as it is, another value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(slots=True)
class Tools:
    """Answers the tool calls of a model or an agent, and numbers them from 0 in order.

    A model's answer holds its calls, and all of them are answered then. An agent calls tools while
    it works on its answer. Calls to its own tools become known only with its answer, which also
    says where they belong. `simulated` are the calls that were answered since the call began.
    """

    simulator: SimulatedTools
    _record: Callable[[Payload], None]
    _clock: Clock
    _one_by_one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _call: int = 0
    _first: int = 0
    _next: int = 0
    simulated: dict[int, ToolUse] = field(default_factory=dict)

    def begin(self, call: int) -> None:
        """Begin with a call to the model or agent; it has the number `call`."""
        self._call = call
        self._first = self._next
        self.simulated = {}

    async def answer_all(self, calls: Sequence[ToolCall]) -> list[AnsweredCall]:
        """Answer the calls of a model's reply, in order, within the time of the slowest answer."""
        answered: list[AnsweredCall] = []
        slowest_s = 0.0
        for call in calls:
            answered.append(await self._answer(call))
            slowest_s = max(slowest_s, answered[-1].delay_s)
        if slowest_s:
            await self._clock.sleep(slowest_s)
        return answered

    async def answer(self, call: ToolCall, own: int) -> AnsweredCall:
        """Answer a tool call of a waiting agent; implements `ports.AnswerTool`."""
        async with self._one_by_one:
            answered = await self._answer(call.storable(), own)
        if answered.delay_s:
            await self._clock.sleep(answered.delay_s)
        return answered

    async def _answer(self, call: ToolCall, own: int = 0) -> AnsweredCall:
        """Record a tool call and its result; return them at once."""
        index = max(self._next, self._first + len(self.simulated) + own)
        self._next = index + 1
        called = ToolCalled(
            index=index, call=self._call, name=call.name, call_id=call.id, arguments=call.written
        )
        self._record(called)
        answered = await self.simulator.answer(call)
        use = answered.use
        simulated = ToolSimulated(
            index=index,
            call_id=call.id,
            rule=use.rule,
            response=use.response,
            problems=use.problems,
        )
        self._record(simulated)
        self.simulated[index] = use
        return answered

    def place(self, reported: Sequence[ToolUse]) -> list[AgentToolUse]:
        """Return all tool calls of an agent's answer, in order and in their stored form.

        Those `reported` that were not simulated are calls to the agent's own tools. They fill the
        gaps between the simulated calls; the rest follows.
        """
        simulated = {use.call.id for use in self.simulated.values()}
        free = (index for index in count(self._first) if index not in self.simulated)
        placed = [
            AgentToolUse(index=index, use=use, simulated=True)
            for index, use in self.simulated.items()
        ]
        for use in reported:
            call = use.call.storable()
            if call.id not in simulated:
                own = replace(use, call=call, response=storable_json(use.response))
                placed.append(AgentToolUse(index=next(free), use=own))
        placed.sort(key=attrgetter("index"))
        self._next = placed[-1].index + 1 if placed else self._next
        return placed


@dataclass(slots=True)
class ToolServers:
    """The MCP servers whose tools a model calls in one conversation.

    A server is an agent of the suite that takes a call as a message, and answers with its result.
    It is opened at the first call to one of its tools, and closed with the conversation.
    """

    _suite: Suite
    _agents: AgentFactory
    _opened: dict[str, Agent] = field(default_factory=dict)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def aclose(self) -> None:
        """Close the servers that were opened."""
        await self._stack.aclose()

    async def call(self, server: str, call: ToolCall) -> Any:
        """Return the result of a call as JSON; raise `Raised` if there is none."""
        target = self._suite.agents[server]
        if server not in self._opened:
            opened = self._agents(target, {})
            if isinstance(opened, Err):
                raise Raised(opened.error)
            self._opened[server] = await self._stack.enter_async_context(opened.value)
        text = json.dumps({"tool": call.name, "arguments": call.arguments}, ensure_ascii=False)
        timeout_s = (target.timeout_ms or self._suite.timeout_ms) / 1000
        request = AgentRequest(server, (Message(Role.USER, text),), timeout_s)
        answered = await self._opened[server].send(request)
        if isinstance(answered, Err):
            raise Raised(answered.error)
        return answered.value.tool_uses[0].response
