"""Conversations: with a model, with an agent, or repeated from an earlier run.

With a model, tool calls are answered in order, parallel calls in one round, until the model answers
without one; then the user's next message is sent. `max_turns` bounds the model calls of the whole
conversation. An agent does all that itself: each message of the user gets one answer.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import ChainMap
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from uuid import uuid4

from kindlm.calls_in_text import MARK, MARK_WARNING, MAY_BE_CALL, SET_UP_THE_SERVER, tool_called_in
from kindlm.dataclass import replace
from kindlm.engine import FieldLog
from kindlm.engine.calls import Bill, Calls
from kindlm.engine.observing import ObservedCalls, with_trouble, with_what_was_seen
from kindlm.engine.pace import Callee
from kindlm.engine.simulation import Tools
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Raised, Result
from kindlm.events.execution_events import AgentReplied, AgentSent, Conversation
from kindlm.outcome import NOTHING_CHECKED, NOTHING_COMPARED
from kindlm.plan import Execution
from kindlm.ports import (
    Agent,
    AgentReply,
    AgentRequest,
    ConversationSpoilt,
    HeldConversation,
    ModelRequest,
    Observation,
    Purpose,
    ReplayedModels,
)
from kindlm.suite import AgentTarget, Case, Command
from kindlm.transcript import (
    Cost,
    CostSource,
    FinishReason,
    Message,
    Role,
    Step,
    Transcript,
    Usage,
    storable_json,
)
from kindlm.wording import shown
from kindlm_store.new_event import scrub

_log = FieldLog(__name__)

_LOGGED_CHARACTERS = 2000
_HIDDEN = "[not shown: record.redactPii]"


def first_messages(case: Case) -> tuple[Message, ...]:
    """Return the first messages of a conversation; a script sends its own."""
    if case.script is not None:
        return ()
    prompt, written = case.prompt, (case.written or case).prompt
    messages = [Message(Role.USER, prompt.user, written=written.user)]
    if prompt.system:
        messages.insert(0, Message(Role.SYSTEM, prompt.system, written=written.system))
    if prompt.prefill:
        prefill = Message(Role.ASSISTANT, prompt.prefill, prefill=True, written=written.prefill)
        messages.append(prefill)
    return tuple(messages)


def agent_of(execution: Execution) -> AgentTarget | Command | None:
    """Return the agent, or the program that is the agent, of an execution; None on a model."""
    case, suite = execution.case, execution.suite.suite
    if case.command is not None:
        return case.command
    if execution.target in suite.models and (case.script is None or case.agent is None):
        return None
    return case.agent or suite.agents[execution.target]


def callee(execution: Execution) -> Callee | None:
    """Return the provider or agent that an execution calls, None if it starts a command."""
    suite, agent = execution.suite.suite, agent_of(execution)
    if agent is None:
        return suite.providers[suite.models[execution.target].provider]
    return None if isinstance(agent, Command) else agent


def seen_from(agent: AgentTarget | Command, transcript: Transcript) -> Transcript:
    """Return a transcript with what the current suite, and no record, says of its agent."""
    return replace(transcript, reports_tools=agent.reports_tools, prints_calls=agent.prints_calls)


@dataclass(eq=False)
class Talk(AbstractAsyncContextManager["Talk"]):
    """A conversation, open while its context is. The base class has no target.

    `error` is the error that ended it. `warnings` are for the user: an answer that was cut off, a
    parameter that was dropped. `converse` holds the whole conversation of a case. A script sends
    messages one by one with `say`.
    """

    conversation: Conversation = field(default_factory=Conversation)
    error: KindlmError | None = None
    warnings: dict[str, None] = field(default_factory=dict)

    async def __aexit__(self, *exception: object) -> None:
        """Close the conversation."""

    async def converse(self) -> None:
        """Hold the conversation to its end."""

    async def say(self, message: Message) -> Result[tuple[Step, str | None]]:
        """Send another message of the user; return its answer, and the body if it is kept."""
        error = f"There is no agent that {shown(message.text)} could be sent to."
        return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, error))


class HeldTalk(Talk):
    """Repeats a recorded conversation: the same messages get the same answers."""

    def __init__(self, held: HeldConversation, agent: AgentTarget | Command | None = None) -> None:
        past = held.transcript.from_record()
        held = replace(held, transcript=past if agent is None else seen_from(agent, past))
        # The checks of now give their own warnings.
        of_checks = (NOTHING_CHECKED, NOTHING_COMPARED)
        super().__init__(
            Conversation(held.transcript.prefix(0)),
            warnings=dict.fromkeys(w for w in held.warnings if not w.startswith(of_checks)),
        )
        self._held = held

    async def __aexit__(self, *exception: object) -> None:
        """Report an agent that invalidated its answers after the last message."""
        error, reached = self._held.error, self.conversation.transcript.turns
        # An error of the recorded script is ignored: today's may be correct. `say` reports an error
        # at one of the messages.
        of_conversation = error is not None and error.code.value // 100 in (2, 4)
        if of_conversation and reached and all(turn.steps for turn in self._held.transcript.turns):
            self.error = self.error or error

    async def converse(self) -> None:
        """Take the conversation as it was recorded."""
        self.conversation.transcript, self.error = self._held.transcript, self._held.error

    async def say(self, message: Message) -> Result[tuple[Step, str | None]]:
        """Return the recorded answer to this message."""
        held, number = self._held, len(self.conversation.transcript.turns)
        turns = held.transcript.turns
        is_same = number < len(turns) and turns[number].user == scrub(message.text)
        if is_same:
            self.conversation.transcript = held.transcript.prefix(number + 1)
            if turns[number].steps:
                raw = held.bodies[number] if number < len(held.bodies) else None
                return Ok((turns[number].steps[-1], raw))
        # A purged conversation has no turns.
        error = held.error if is_same or not turns else None
        self.error = error or KindlmError(
            ErrorCode.PROVIDER_NOT_FOUND,
            f"The scenario no longer sends what it sent in {held.source}: its message"
            f" {number + 1} has no recorded answer.",
            "Run the test: kindlm test",
        )
        return Err(self.error)


@dataclass(eq=False, kw_only=True)
class _LiveTalk(Talk):
    """A conversation with a live target: `new` are the messages since the answer `after`."""

    calls: Calls
    tools: Tools
    messages: tuple[Message, ...]
    new: tuple[Message, ...] = ()
    after: int = 0

    async def converse(self) -> None:
        """Send the messages of the case; the first ones are recorded already."""
        case = self.calls.execution.case
        contexts = iter(case.contexts)
        written = (case.written or case).follow_ups
        await self._exchange(next(contexts, None))
        for text, as_written in zip(case.follow_ups, written, strict=True):
            if self.error is not None:
                return
            self._add(Message(Role.USER, text, written=as_written))
            await self._exchange(next(contexts, None))

    def _add(self, message: Message) -> None:
        self.messages = (*self.messages, message)
        self.new = (*self.new, message)

    @abstractmethod
    async def _exchange(self, _: Mapping[str, Any] | None) -> object:
        """Get the answer to the user's last message; only agents get the context."""


@dataclass(eq=False, kw_only=True)
class ModelTalk(_LiveTalk):
    """One conversation with a model; `calls_made` counts towards `maxTurns`."""

    calls_made: int = 0

    async def _exchange(self, _: Mapping[str, Any] | None) -> None:
        """Call the model, and answer its tool calls, until it answers without one."""
        suite, tools = self.calls.suite, self.tools
        target, timeout_s = suite.models[self.calls.execution.target], suite.timeout_ms / 1000
        most = self.calls.execution.case.max_turns
        while self.calls_made < most:
            self.calls_made += 1
            request = ModelRequest(
                target.model, self.messages, target.params, timeout_s, tools.simulator.definitions
            )
            result = await self.calls.to_model(
                target, request, Purpose.TEST, self.new, after=self.after
            )
            if isinstance(result, Err):
                self.error = result.error
                return
            reply, answer = result.value
            self.warnings.update(dict.fromkeys(answer.warnings))
            if answer.finish_reason in _FINISH_WARNINGS:
                self.warnings[_FINISH_WARNINGS[answer.finish_reason]] = None
            if not answer.tool_calls and not answer.text.strip():
                ended = answer.finish_reason
                why = f" (finish reason: {ended})" if ended else ""
                is_filtered = ended is FinishReason.CONTENT_FILTER
                hint = "Look" if is_filtered else "Raise maxTokens, or look"
                what = f"The model returned neither text nor a tool call{why}."
                self.error = _empty_response(what, hint)
                return
            self.after = answer.call
            # The answer begins with the prefill, and so replaces the assistant's message.
            before = self.messages[:-1] if self.messages[-1].prefill else self.messages
            calls = tuple(answer.tool_calls)
            answered = Message(Role.ASSISTANT, answer.text, tool_calls=calls, echo=reply.echo)
            self.messages, self.new = (*before, answered), ()
            if not answer.tool_calls:
                # A search costs little, and few texts have what may be a call.
                if request.tools and MAY_BE_CALL.search(answer.text):
                    self.error = _call_left_in_text(answer.text, request)
                return
            tools.begin(answer.call)
            try:
                results = await tools.answer_all(answer.tool_calls)
            except Raised as failed:
                self.error = failed.error
                return
            for each in results:
                call = each.use.call
                self._add(Message(Role.TOOL, each.text, tool_call_id=call.id, tool_name=call.name))
        self.error = KindlmError(
            ErrorCode.ENGINE_MAX_TURNS,
            f"The conversation was not over when maxTurns ({most}) was reached.",
            "Check the simulated answers for a loop, or raise maxTurns of this test.",
        )


@dataclass(eq=False, kw_only=True)
class AgentTalk(_LiveTalk):
    """One conversation with an agent, or with its recorded answers.

    `called` says how to reach it. The `observations` pass the calls that they see to the `desk`.
    `models` supplies recorded answers to its model calls, if there are any. `failed` counts the
    failed tries of the current message.
    """

    called: AgentTarget | Command
    agent: Agent | None = None
    callee: Callee | None = None
    observations: Sequence[Observation] = ()
    models: ReplayedModels | None = None
    failed: int = 0
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    conversation_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        self.desk = ObservedCalls(self.calls.subject, self.calls)

    @property
    def target(self) -> AgentTarget | None:
        """The settings of the agent; None for a command."""
        return self.called if isinstance(self.called, AgentTarget) else None

    async def __aenter__(self) -> Self:
        """Begin to observe, and open the conversation; end the observations if that fails."""
        run, answers, conversation = self.calls.run, self.calls.answers, self.conversation
        conversation.transcript = seen_from(self.called, conversation.transcript)
        self.models = self.desk.models = None if answers is None else answers.models()
        agent = None if answers is None or self.models else answers.agent()
        async with AsyncExitStack() as opened:
            opened.callback(self._end_observations)
            if agent is None:
                run.budget.ask()
                found = [each.observe(self.called, self.desk) for each in run.ports.observers]
                self.observations = [each for each in found if each is not None]
                variables = dict(ChainMap(*[dict(each.environ) for each in self.observations]))
                made = run.ports.agents(self.called, variables)
                if isinstance(made, Err):
                    self.error = made.error
                    return self
                agent, self.callee = made.value, callee(self.calls.execution)
            self.agent = await opened.enter_async_context(agent)
            self.opened = opened.pop_all()
        return self

    async def __aexit__(self, *exception: Any) -> None:  # noqa: PYI036 - handed on
        """Close it; some agents report only now that an answer did not belong to its question."""
        try:
            await self.opened.__aexit__(*exception)
        except ConversationSpoilt as spoilt:
            self.error = self.error or spoilt.error

    def _end_observations(self) -> None:
        for observation in self.observations:
            if (late := observation.close()) is not None:
                self.warnings[late] = None

    async def say(self, message: Message) -> Result[tuple[Step, str | None]]:
        """Send another message of the user; return its answer, and the body if it is kept."""
        self._add(message)
        return await self._exchange(None)

    async def _exchange(self, context: Mapping[str, Any] | None) -> Result[tuple[Step, str | None]]:
        calls, target = self.calls, self.target
        own = None if target is None else target.timeout_ms
        timeout_s = (calls.suite.timeout_ms if own is None else own) / 1000
        answer_tool = self.tools.answer if self.calls.execution.case.tools else None
        request = AgentRequest(self.conversation_id, self.messages, timeout_s, context, answer_tool)
        sent = AgentSent(
            agent=self.calls.execution.target,
            adapter=target.adapter if target else "command",
            call=0,
            after=self.after,
            messages=self.new,
            context=context,
        )
        send = partial(self._send, request)
        result = await calls.make(self.callee, sent, send, calls.conversation.record, self._billed)
        if isinstance(result, Err):
            self.error = result.error
            return result
        number, reply = result.value
        answer = await self._record_reply(number, reply)
        self.warnings.update(dict.fromkeys(answer.warnings))
        if not answer.tool_calls and not answer.text.strip():
            what = f"The agent {self.calls.execution.target} returned neither text nor a tool call."
            self.error = _empty_response(what, "Look")
            return Err(self.error)
        self.messages = (*self.messages, Message(Role.ASSISTANT, answer.text))
        self.new, self.after = (), number
        raw = None if reply.raw is None else scrub(reply.raw)
        return Ok((self.conversation.transcript.steps[-1], raw))

    async def _record_reply(self, number: int, reply: AgentReply) -> AgentReplied:
        """Record an answer of the agent, with what observers saw, and count its cost."""
        transcript, reports_tokens = self.conversation.transcript, reply.usage != Usage()
        reply, seen_cost = await with_what_was_seen(
            reply, self.observations, reports_tools=transcript.reports_tools
        )
        mark = None if transcript.reports_tools else MARK.search(reply.text)
        if mark is not None:
            why = MARK_WARNING.format(shown(mark[0]))
            reply = replace(reply, unseen=why, warnings=(*reply.warnings, why))
        before = None
        if self.models is not None:
            message = len(transcript.turns) - 1
            before, then_ms = self.models.then(message, self.failed)
            warnings = (*reply.warnings, *self.models.warnings)
            # Recorded answers of models come at once, so the measured time is meaningless.
            took_ms = reply.latency_ms if then_ms is None else then_ms
            reply = replace(reply, latency_ms=took_ms, warnings=warnings)
        cost = self._cost(
            reply.reported_cost_usd,
            reply.model,
            reply.usage,
            seen_cost,
            reports_tokens=reports_tokens,
        )
        answer = AgentReplied(
            **self.calls.answer_facts(
                number,
                reply,
                cost,
                self.calls.execution.target,
                counted_usd=self.desk.spent_usd,
                paid_before=before,
            ),
            tool_calls=self.tools.place(reply.tool_uses),
            reported=storable_json(dict(reply.reported)),
            reports_tools=bool(
                reply.tool_uses if reply.reports_tools is None else reply.reports_tools
            ),
            unseen=reply.unseen,
            models_of=self.models.source if self.models else None,
        )
        self.desk.spent_usd, self.failed = 0.0, 0
        self.calls.conversation.record(answer)
        return answer

    async def _send(self, request: AgentRequest) -> Result[AgentReply]:
        # Kept, since a judge may call a model meanwhile.
        number = self.calls.last
        self.tools.begin(number)
        for observation in self.observations:
            await observation.begin(number)
        headers = {name: text for each in self.observations for name, text in each.headers.items()}
        request = replace(request, headers=headers)
        text = next(message.text for message in reversed(request.messages) if not message.prefill)
        if request.context is not None:
            text = f"{text} {json.dumps(request.context, ensure_ascii=False)}"
        self._log_body("Sent to the agent", number, text)
        assert self.agent is not None, "a conversation is open while its context is"
        result = await self.agent.send(request)
        if self.models is not None and self.models.missed is not None:
            # The agent got no answer from its model, so its own answer is worthless.
            missed = replace(self.models.missed, details={"retryable": False})
            return Err(missed)
        if isinstance(result, Ok):
            self._log_body("The agent sent", number, result.value.raw or result.value.text)
            return result
        self._log_body("The agent sent", number, result.error.details.get("body") or "")
        error = await with_trouble(result.error, self.observations)
        if not self.tools.simulated:
            return Err(error)
        # Simulated tools have counts and state, so they would answer differently the second time.
        return Err(replace(error, details={**error.details, "retryable": False}))

    def _cost(
        self,
        reported_usd: float | None,
        model: str | None,
        usage: Usage,
        seen: Cost | None,
        *,
        reports_tokens: bool = True,
    ) -> Cost:
        """Return the cost that the agent reports, else the cost that observers saw.

        Without either, it is the cost of its tokens at the price of its model: the one that the
        agent names, or the one it is known to run. `prices` may also name the agent. Only this
        price applies if observers saw the tokens, and a call of unknown cost: they may be of
        several models, and their sum does not show other fees. A reported 0 is ignored if observers
        saw calls that cost something, since many agents report 0 when they do not know. The cost is
        then unknown if the cost of one of these calls is.
        """
        if reported_usd or (reported_usd is not None and (seen is None or seen.usd == 0)):
            return Cost(reported_usd, CostSource.REPORTED)
        if seen is not None and (reported_usd is not None or seen.usd is not None):
            return seen
        if seen is not None and not reports_tokens:
            model = None
        elif model is None and self.target is not None:
            model = self.target.model
        return self.calls.pricing.cost(None, model, usage, requested=self.calls.execution.target)

    def _billed(self, error: KindlmError) -> Bill | None:
        """Return the cost that the agent reports although it failed.

        What observers saw is counted already, with the calls of its models.
        """
        seen_usd, self.desk.spent_usd = self.desk.spent_usd, 0.0
        self.failed += 1
        tokens, model = error.details.get("tokens"), error.details.get("model")
        if tokens is None or self.models is not None:
            return None
        usage = Usage(*tokens)
        cost = self._cost(error.details.get("cost_usd"), model, usage, None)
        if seen_usd:
            usage = Usage()
            cost = replace(cost, usd=max((cost.usd or 0.0) - seen_usd, 0.0))
        return model, usage, cost

    def _log_body(self, message: str, number: int, body: str) -> None:
        """Log a body if the target is `verbose`; hide it if the suite hides personal data."""
        if self.target is None or not self.target.verbose:
            return
        text = _HIDDEN if self.calls.suite.redact_pii else body[:_LOGGED_CHARACTERS]
        _log.info(message, agent=self.calls.execution.target, call=number, body=text)


_FINISH_WARNINGS: Mapping[FinishReason | None, str] = {
    FinishReason.MAX_TOKENS: "The answer was cut off at maxTokens.",
    FinishReason.CONTENT_FILTER: "The provider's content filter ended the answer.",
}


def _call_left_in_text(text: str, request: ModelRequest) -> KindlmError | None:
    """Return the error that a text calls one of the tools; None if it does not."""
    called = tool_called_in(text, [tool.name for tool in request.tools])
    if called is None:
        return None
    message = f"The text of the answer calls the tool {shown(called)}, but the answer has no call."
    return KindlmError(ErrorCode.PROVIDER_API_ERROR, message, SET_UP_THE_SERVER)


def _empty_response(message: str, hint: str) -> KindlmError:
    hint = f"{hint} at the recorded body: show this execution with --verbose"
    return KindlmError(ErrorCode.ENGINE_EMPTY_RESPONSE, message, hint)
