"""Conversations: with a model and simulated tools, with a live agent, or held in an earlier run.

With a model, tool calls are answered in order, parallel calls in one round, until the model answers
without one; then the user's next message is sent. `max_turns` bounds the model calls of the whole
conversation. An agent does all that itself: each message of the user gets one answer.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self
from uuid import uuid4

from kindlm.engine.calls import Calls
from kindlm.engine.log import FieldLog
from kindlm.engine.pace import Callee
from kindlm.engine.tools import Tools
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import AgentFailed, AgentReplied, AgentSent
from kindlm.ports import (
    Agent,
    AgentReply,
    AgentRequest,
    ConversationSpoilt,
    HeldConversation,
    ModelRequest,
    Provenance,
    Purpose,
)
from kindlm.suite import AgentTarget, Case, Command, ModelTarget
from kindlm.transcript import (
    Cost,
    CostSource,
    FinishReason,
    Message,
    Role,
    ToolUse,
    Transcript,
    storable_json,
)
from kindlm.wording import shown
from kindlm_store.payload import scrub

__all__ = ["AgentTalk", "HeldTalk", "ModelTalk", "Talk", "first_messages"]

_log = FieldLog(__name__)

_LOGGED_CHARACTERS = 2000
_HIDDEN = "[not shown: record.redactPii]"


def first_messages(case: Case) -> tuple[Message, ...]:
    """Return the messages a conversation begins with."""
    if case.script is not None:
        return ()
    prompt, written = case.prompt, case.written.prompt if case.written else case.prompt
    messages = [Message(Role.USER, prompt.user, written=written.user)]
    if prompt.system:
        messages.insert(0, Message(Role.SYSTEM, prompt.system, written=written.system))
    if prompt.prefill:
        prefill = Message(Role.ASSISTANT, prompt.prefill, prefill=True, written=written.prefill)
        messages.append(prefill)
    return tuple(messages)


class Talk:
    """A conversation as far as it was held; this class itself is one with nobody.

    `error` is what ended it, if anything did. A case is held as a whole; a script says one message
    after the other, within `async with`.
    """

    def __init__(
        self,
        transcript: Transcript = Transcript(None),  # noqa: B008 - a value
        error: KindlmError | None = None,
        warnings: Iterable[str] = (),
    ) -> None:
        self.transcript = transcript
        self.error = error
        self._warnings = dict.fromkeys(warnings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know: an answer cut off, a parameter that was dropped."""
        return tuple(self._warnings)

    @property
    def is_checkable(self) -> bool:
        """Whether there is something to check: an answer, or all turns used up by tool calls."""
        return self.error is None or self.error.code is ErrorCode.ENGINE_MAX_TURNS

    async def __aenter__(self) -> Self:
        """Open the conversation."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it."""

    async def hold(self) -> None:
        """Hold the conversation to its end."""

    async def say(self, message: Message) -> Result[AgentReply]:
        """Send one more message of the user, and return its answer."""
        error = f"There is no agent that {shown(message.text)} could be sent to."
        return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, error))


class HeldTalk(Talk):
    """A conversation of an earlier run; a script gets the answers to the same messages again."""

    def __init__(self, held: HeldConversation) -> None:
        super().__init__(replace(held.transcript, turns=()), warnings=held.warnings)
        self._held = held

    async def __aexit__(self, *exception: object) -> None:
        """Close it; an agent that spoilt its answers after the last one has spoilt them still."""
        turns, error = self._held.transcript.turns, self._held.error
        if self.error is not None or error is None or error.code not in _OF_CONVERSATIONS:
            return
        # What ended it at one of its messages comes with that message.
        if self.transcript.turns and all(turn.steps for turn in turns):
            self.error = error

    async def hold(self) -> None:
        """Take the conversation as it was."""
        self.transcript, self.error = self._held.transcript, self._held.error

    async def say(self, message: Message) -> Result[AgentReply]:
        """Return what was answered to this message then."""
        held, number = self._held, len(self.transcript.turns)
        turns = held.transcript.turns
        if number >= len(turns):
            purged = None if turns else held.error
            return self._ended(purged or _diverged(held, f"it sent {number} messages then"))
        turn = turns[number]
        if turn.user != scrub(message.text):
            return self._ended(_diverged(held, f"message {number + 1} was another one then"))
        self.transcript = self.transcript.with_turn(turn.user)
        if not turn.steps:
            return self._ended(held.error or _diverged(held, "nobody answered then"))
        for step in turn.steps:
            self.transcript = self.transcript.with_step(step)
        last = turn.steps[-1]
        return Ok(
            AgentReply(
                text=last.text,
                raw=held.bodies[number] if number < len(held.bodies) else None,
                latency_ms=last.latency_ms,
                tool_uses=last.tool_uses,
                usage=last.usage,
                model=last.model,
                reported=last.reported,
                reports_tools=last.reports_tools,
                recorded=Provenance(held.source, last.cost),
            )
        )

    def _ended(self, error: KindlmError) -> Err:
        self.error = error
        return Err(error)


_OF_CONVERSATIONS = {
    ErrorCode.PROVIDER_AUTH_ERROR,
    ErrorCode.PROVIDER_RATE_LIMIT,
    ErrorCode.PROVIDER_TIMEOUT,
    ErrorCode.PROVIDER_API_ERROR,
    ErrorCode.PROVIDER_NETWORK_ERROR,
    ErrorCode.ENGINE_EMPTY_RESPONSE,
}
"""Errors of a conversation; what a script did wrong, the script of now may do right."""


def _diverged(held: HeldConversation, why: str) -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        f"The scenario no longer says what it said in {held.source}: {why}.",
        "What the agent answers to this was never recorded; run it: kindlm test",
    )


class _LiveTalk(Talk):
    """A conversation that goes on: `_new` are the messages since the answer of call `_after`."""

    def __init__(
        self, case: Case, calls: Calls, tools: Tools, messages: tuple[Message, ...]
    ) -> None:
        system = scrub(case.prompt.system) if case.prompt.system else None
        super().__init__(Transcript(system))
        self._case = case
        self._calls = calls
        self._tools = tools
        self._messages = messages
        self._new: tuple[Message, ...] = ()
        self._after = 0

    async def hold(self) -> None:
        """Hold the conversation to its end; its first messages are recorded already."""
        case, contexts = self._case, iter(self._case.contexts)
        written = case.written.follow_ups if case.written else case.follow_ups
        async with self:
            await self._exchange(case.prompt.user, next(contexts, None))
            for text, as_written in zip(case.follow_ups, written, strict=True):
                if self.error is not None:
                    return
                self._add(Message(Role.USER, text, written=as_written))
                await self._exchange(text, next(contexts, None))

    def _add(self, message: Message) -> None:
        self._messages = (*self._messages, message)
        self._new = (*self._new, message)

    @abstractmethod
    async def _exchange(self, user: str, context: Mapping[str, Any] | None) -> object:
        """Get the answer to the user's message, which was added already."""


class ModelTalk(_LiveTalk):
    """One conversation with a model."""

    def __init__(
        self,
        case: Case,
        target: ModelTarget,
        calls: Calls,
        tools: Tools,
        messages: tuple[Message, ...],
    ) -> None:
        super().__init__(case, calls, tools, messages)
        self._target = target
        self._calls_left = case.max_turns

    async def _exchange(
        self,
        user: str,
        context: Mapping[str, Any] | None,  # noqa: ARG002 - for agents only
    ) -> None:
        """Call the model, and answer its tool calls, until it answers without one."""
        if not self._calls_left:
            self.error = _too_many_turns(self._case, "The user had more to say")
            return
        self.transcript = self.transcript.with_turn(scrub(user))
        timeout_s = self._calls.suite.timeout_ms / 1000
        target, tools = self._target, self._tools
        while self._calls_left:
            self._calls_left -= 1
            request = ModelRequest(
                target.model, self._messages, target.params, timeout_s, tools.definitions
            )
            result = await self._calls.to_model(
                target, request, Purpose.TEST, self._new, after=self._after
            )
            if isinstance(result, Err):
                self.error = result.error
                return
            _, answer = result.value
            self._warnings.update(dict.fromkeys(answer.warnings))
            if answer.finish_reason in _FINISH_WARNINGS:
                self._warnings[_FINISH_WARNINGS[answer.finish_reason]] = None
            if not answer.tool_calls and not answer.text.strip():
                self.error = _empty_model_response(answer.finish_reason)
                return
            self._after = answer.call
            # The answer begins with the prefill, so that the assistant's message replaces it.
            before = self._messages[:-1] if self._messages[-1].prefill else self._messages
            said = Message(Role.ASSISTANT, answer.text, tool_calls=tuple(answer.tool_calls))
            self._messages, self._new = (*before, said), ()
            uses: list[ToolUse] = []
            if answer.tool_calls:
                tools.begin(answer.call)
                for one in await tools.answer_all(answer.tool_calls):
                    uses.append(one.use)
                    call = one.use.call
                    self._add(
                        Message(Role.TOOL, one.text, tool_call_id=call.id, tool_name=call.name)
                    )
            self.transcript = self.transcript.with_step(answer.step(uses))
            if not uses:
                return
        self.error = _too_many_turns(self._case, "The model still called tools")


class AgentTalk(_LiveTalk):
    """One conversation with an agent.

    `target` is the agent, `name` what it is called in the record, and `callee` whose pace its calls
    keep to.
    """

    def __init__(
        self,
        case: Case,
        agent: Agent,
        calls: Calls,
        tools: Tools,
        messages: tuple[Message, ...],
        *,
        name: str,
        target: AgentTarget | Command,
        callee: Callee | None,
    ) -> None:
        super().__init__(case, calls, tools, messages)
        self.transcript = replace(
            self.transcript,
            reports_tools=target.reports_tools,
            prints_calls=target.prints_calls,
        )
        self._agent = agent
        self._name = name
        self._target = target if isinstance(target, AgentTarget) else None
        self._callee = callee
        self._conversation = uuid4().hex

    async def __aenter__(self) -> Self:
        """Open the conversation."""
        await self._agent.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it; only then some agents show that they did not answer what they were asked."""
        try:
            await self._agent.__aexit__(*exception)
        except ConversationSpoilt as spoilt:
            self.error = self.error or spoilt.error

    async def say(self, message: Message) -> Result[AgentReply]:
        """Send one more message of the user, and return its answer."""
        self._add(message)
        return await self._exchange(message.text, None)

    async def _exchange(self, user: str, context: Mapping[str, Any] | None) -> Result[AgentReply]:
        self.transcript = self.transcript.with_turn(scrub(user))
        calls, target, name = self._calls, self._target, self._name
        own = None if target is None else target.timeout_ms
        timeout_s = (calls.suite.timeout_ms if own is None else own) / 1000
        answer_tool = self._tools.answer if self._case.tools else None
        request = AgentRequest(self._conversation, self._messages, timeout_s, context, answer_tool)
        sent = partial(
            AgentSent,
            agent=name,
            adapter=target.adapter if target else "command",
            after=self._after,
            messages=self._new,
            context=context,
        )
        send = partial(self._send, request)
        result = await calls.make(self._callee, sent, send, AgentFailed, {"agent": name})
        if isinstance(result, Err):
            self.error = result.error
            return result
        number, reply = result.value

        def price(model: str | None) -> Cost:
            """Return what it reports, else what its tokens cost at the price of its model.

            That is the one it names, or the one it is known to run; `prices` may name the agent.
            """
            if reply.reported_cost_usd is not None:
                return Cost(reply.reported_cost_usd, CostSource.REPORTED)
            model = model or (target.model if target else None)
            return calls.pricing.cost(None, model, reply.usage, requested=name)

        answer = AgentReplied(
            **calls.answer_facts(number, reply, price, name),
            tool_calls=self._tools.place(reply.tool_uses),
            reported=storable_json(dict(reply.reported)),
            reports_tools=bool(
                reply.tool_uses if reply.reports_tools is None else reply.reports_tools
            ),
        )
        calls.recorder.record(answer)
        _log.debug("The agent answered", agent=name, call=number, latency_ms=answer.latency_ms)
        self._warnings.update(dict.fromkeys(answer.warnings))
        if not answer.tool_calls and not answer.text.strip():
            self.error = _empty_agent_response(name)
            return Err(self.error)
        step = answer.step()
        self.transcript = self.transcript.with_step(step)
        self._messages = (*self._messages, Message(Role.ASSISTANT, answer.text))
        self._new, self._after = (), number
        return Ok(
            replace(
                reply,
                text=step.text,
                raw=None if reply.raw is None else scrub(reply.raw),
                model=step.model,
                latency_ms=step.latency_ms,
                tool_uses=step.tool_uses,
                reported=step.reported,
                reports_tools=step.reports_tools,
            )
        )

    async def _send(self, request: AgentRequest) -> Result[AgentReply]:
        self._tools.begin(self._calls.last)
        said = next(message.text for message in reversed(request.messages) if not message.prefill)
        if request.context is not None:
            said = f"{said} {json.dumps(request.context, ensure_ascii=False)}"
        self._log_body("Sent to the agent", said)
        result = await self._agent.send(request)
        if isinstance(result, Ok):
            self._log_body("The agent sent", result.value.raw or result.value.text)
            return result
        self._log_body("The agent sent", result.error.details.get("body") or "")
        if not self._tools.has_answered:
            return result
        # Simulated tools count calls and keep state: asked again, they would answer otherwise.
        details = {**result.error.details, "retryable": False}
        return Err(replace(result.error, details=details))

    def _log_body(self, message: str, body: str) -> None:
        """Log what was said, as far as the target asks for it and nothing in it is to be hidden."""
        if self._target is None or not self._target.verbose:
            return
        text = _HIDDEN if self._calls.suite.redact_pii else body[:_LOGGED_CHARACTERS]
        _log.info(message, agent=self._name, call=self._calls.last, body=text)


_FINISH_WARNINGS: Mapping[FinishReason | None, str] = {
    FinishReason.MAX_TOKENS: "The answer was cut off at maxTokens.",
    FinishReason.CONTENT_FILTER: "The provider's content filter ended the answer.",
}


def _empty_model_response(finish_reason: FinishReason | None) -> KindlmError:
    reason = f" (finish reason: {finish_reason})" if finish_reason else ""
    return KindlmError(
        ErrorCode.ENGINE_EMPTY_RESPONSE,
        f"The model answered with neither text nor a tool call{reason}.",
        "Raise maxTokens, or look at the recorded body: kindlm show RUN EXECUTION --verbose",
    )


def _empty_agent_response(name: str) -> KindlmError:
    return KindlmError(
        ErrorCode.ENGINE_EMPTY_RESPONSE,
        f"The agent {name} answered with neither text nor a tool call.",
        "Look at the recorded body: kindlm show RUN EXECUTION --verbose",
    )


def _too_many_turns(case: Case, what: str) -> KindlmError:
    return KindlmError(
        ErrorCode.ENGINE_MAX_TURNS,
        f"{what} when maxTurns ({case.max_turns}) was used up.",
        "Check the simulated answers for a loop, or raise maxTurns of this test.",
    )
