"""Conversations: with a model, or repeated from an earlier run; `agent_talk` has those with agents.

With a model, tool calls are answered in order, parallel calls in one round, until the model answers
without one; then the user's next message is sent. `max_turns` bounds the model calls of the whole
conversation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from kindlm.calls_in_text import MAY_BE_CALL, SET_UP_THE_SERVER, tool_called_in
from kindlm.dataclass import replace
from kindlm.engine.calls import Calls
from kindlm.engine.pace import Callee
from kindlm.engine.simulation import Tools
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Raised, Result
from kindlm.events.execution_events import Conversation
from kindlm.outcome import NOTHING_CHECKED, NOTHING_COMPARED
from kindlm.plan import Execution
from kindlm.ports import HeldConversation, ModelRequest, Purpose
from kindlm.suite import AgentTarget, Case, Command
from kindlm.transcript import FinishReason, Message, Role, Step
from kindlm.wording import shown
from kindlm_store.new_event import scrub


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
        if agent is not None:
            # The current suite says this, not the record.
            past = replace(past, reports_tools=agent.reports_tools)
        held = replace(held, transcript=past)
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
class LiveTalk(Talk):
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
class ModelTalk(LiveTalk):
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
                why = f" (finish reason: {answer.finish_reason})" if answer.finish_reason else ""
                what = f"The model returned neither text nor a tool call{why}."
                self.error = empty_response(what)
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


def empty_response(message: str) -> KindlmError:
    """Return the error of an empty answer."""
    hint = "Show this execution with --verbose to see its body; if it was cut off, raise maxTokens"
    return KindlmError(ErrorCode.ENGINE_EMPTY_RESPONSE, message, hint)
