"""Conversations: with a model and simulated tools, with a live agent, or held in an earlier run.

With a model, tool calls are answered in order, parallel calls in one round, until the model answers
without one; then the user's next message is sent. `max_turns` bounds the model calls of the whole
conversation. An agent does all that itself: each message of the user gets one answer.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self
from uuid import uuid4

from kindlm.engine.calls import Answered, Calls, answer_facts
from kindlm.engine.log import FieldLog
from kindlm.engine.pace import Callee
from kindlm.engine.tools import AgentTools, Tools
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import AgentFailed, AgentReplied, AgentSent, AgentToolUse
from kindlm.ports import (
    Agent,
    AgentReply,
    AgentRequest,
    AnsweredCall,
    ConversationSpoilt,
    HeldConversation,
    ModelReply,
    ModelRequest,
    Provenance,
    Purpose,
)
from kindlm.suite import AgentTarget, Case, Command, ModelTarget, Suite
from kindlm.transcript import Cost, CostSource, FinishReason, Message, Role, Transcript
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

    def __init__(self, case: Case, calls: Calls, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._case = case
        self._calls = calls
        self._messages = first_messages(case)
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

    def _add(self, *messages: Message) -> None:
        self._messages = (*self._messages, *messages)
        self._new = (*self._new, *messages)

    @abstractmethod
    async def _exchange(self, user: str, context: Mapping[str, Any] | None) -> Result[Any]:
        """Get the answer to the user's message, which was added already."""


class ModelTalk(_LiveTalk):
    """One conversation with a model."""

    def __init__(self, case: Case, target: ModelTarget, calls: Calls, tools: Tools) -> None:
        super().__init__(case, calls, Transcript(_system_text(case)))
        self._target = target
        self._tools = tools
        self._calls_left = case.max_turns

    async def _exchange(
        self,
        user: str,
        context: Mapping[str, Any] | None,  # noqa: ARG002 - for agents only
    ) -> Result[ModelReply]:
        """Call the model, and answer its tool calls, until it answers without one."""
        if not self._calls_left:
            return self._ended(_too_many_turns(self._case, "The user had more to say"))
        self.transcript = self.transcript.with_turn(scrub(user))
        timeout_s = self._calls.suite.timeout_ms / 1000
        target, tools = self._target, self._tools.definitions
        while self._calls_left:
            self._calls_left -= 1
            request = ModelRequest(target.model, self._messages, target.params, timeout_s, tools)
            result = await self._calls.to_model(
                target, request, Purpose.TEST, self._new, after=self._after
            )
            if isinstance(result, Err):
                return self._ended(result.error)
            reply = result.value.reply
            self._warnings.update(dict.fromkeys(reply.warnings))
            if reply.finish_reason in _FINISH_WARNINGS:
                self._warnings[_FINISH_WARNINGS[reply.finish_reason]] = None
            if not reply.text.strip() and not reply.tool_calls:
                return self._ended(_empty_model_response(reply))
            used = await self._tools.answer(reply.tool_calls, result.value.event.call)
            self._take(result.value, used)
            if not used:
                return Ok(reply)
        return self._ended(_too_many_turns(self._case, "The model still called tools"))

    def _take(self, answered: Answered, used: Sequence[AnsweredCall]) -> None:
        """Add an answer, and the results of its tool calls, to the conversation."""
        reply = answered.reply
        event = answered.event
        self.transcript = self.transcript.with_step(event.step([one.use for one in used]))
        self._after = event.call
        # The reply begins with the prefill, so that the assistant's message replaces it.
        before = self._messages[:-1] if self._messages[-1].prefill else self._messages
        said = Message(Role.ASSISTANT, reply.text, tool_calls=reply.tool_calls)
        self._messages, self._new = (*before, said), ()
        for one in used:
            call = one.use.call
            self._add(Message(Role.TOOL, one.text, tool_call_id=call.id, tool_name=call.name))

    def _ended(self, error: KindlmError) -> Err:
        self.error = error
        return Err(error)


class AgentTalk(_LiveTalk):
    """One conversation with an agent.

    `target` is the agent, `name` what it is called in the record, and `callee` whose pace its calls
    keep to. `tools` are its tool calls.
    """

    def __init__(
        self,
        case: Case,
        agent: Agent,
        calls: Calls,
        *,
        name: str,
        target: AgentTarget | Command,
        callee: Callee | None,
        tools: AgentTools,
    ) -> None:
        transcript = Transcript(
            _system_text(case),
            reports_tools=target.reports_tools,
            prints_calls=target.prints_calls,
        )
        super().__init__(case, calls, transcript)
        self._agent = agent
        self._name = name
        self._target = target if isinstance(target, AgentTarget) else None
        self._callee = callee
        self._tools = tools
        self._conversation = uuid4().hex
        self._timeout_s = _timeout_ms(self._target, calls.suite) / 1000

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
        request = AgentRequest(
            self._conversation, self._messages, self._timeout_s, context, self._tools.answer
        )
        result = await self._calls.turns.call(
            self._callee,
            partial(self._record_sent, request),
            partial(self._send, request),
            self._record_failed,
            retries=self._calls.suite.retries,
        )
        if isinstance(result, Err):
            self.error = result.error
            return result
        number, answer = result.value
        reply = answer.storable()
        uses = self._tools.place(reply.tool_uses)
        reply = replace(reply, tool_uses=tuple(placed.use for placed in uses))
        cost = self._cost(reply)
        event = self._record_replied(number, reply, cost, uses)
        self._warnings.update(dict.fromkeys(reply.warnings))
        if not reply.text.strip() and not reply.tool_uses:
            self.error = _empty_agent_response(self._name)
            return Err(self.error)
        self.transcript = self.transcript.with_step(event.step())
        self._messages = (*self._messages, Message(Role.ASSISTANT, reply.text))
        self._new, self._after = (), number
        return Ok(reply)

    async def _send(self, request: AgentRequest) -> Result[AgentReply]:
        result = await self._agent.send(request)
        if isinstance(result, Err) and self._tools.has_answered:
            # Simulated tools count calls and keep state: asked again, they would answer otherwise.
            details = {**result.error.details, "retryable": False}
            return Err(replace(result.error, details=details))
        return result

    def _cost(self, reply: AgentReply) -> Cost:
        """Return what the agent reports, else what its tokens cost at the price of its model.

        That is the one it names, else the one it is known to run; `prices` may name the agent, too.
        """
        if reply.recorded is not None:
            return reply.recorded.cost
        if reply.reported_cost_usd is not None:
            return Cost(reply.reported_cost_usd, CostSource.REPORTED)
        model = reply.model or (self._target.model if self._target else None)
        return self._calls.pricing.cost(None, model, reply.usage, requested=self._name)

    def _record_sent(self, request: AgentRequest, attempt: int) -> int:
        number = self._calls.next_number()
        self._tools.begin(number)
        context = request.context
        self._calls.recorder.record(
            AgentSent(
                agent=self._name,
                adapter=self._target.adapter if self._target else "command",
                call=number,
                attempt=attempt,
                after=self._after,
                messages=self._new,
                context=context,
            )
        )
        _log.debug("Calling an agent", agent=self._name, call=number, attempt=attempt)
        self._log_body("Sent to the agent", number, _sent_text(request))
        return number

    def _record_replied(
        self, number: int, reply: AgentReply, cost: Cost, uses: Sequence[AgentToolUse]
    ) -> AgentReplied:
        calls = self._calls
        facts = answer_facts(number, reply, cost, keep_raw=calls.suite.record_raw_bodies)
        calls.spend(reply.model or self._name, Cost(facts["cost_usd"]))
        event = AgentReplied(
            **facts,
            tool_calls=uses,
            reported=reply.reported,
            reports_tools=reply.reports_tools,
        )
        calls.recorder.record(event)
        _log.debug(
            "The agent answered",
            agent=self._name,
            call=number,
            latency_ms=round(reply.latency_ms, 3),
        )
        self._log_body("The agent sent", number, reply.raw or reply.text)
        return event

    def _record_failed(
        self, number: int, error: KindlmError, latency_ms: float, delay_s: float | None
    ) -> None:
        keep_raw = self._calls.suite.record_raw_bodies
        payload = AgentFailed.of(number, error, latency_ms, delay_s, keep_raw=keep_raw)
        self._calls.recorder.record(payload)
        _log.warning(
            "The call failed",
            code=error.code.name,
            agent=self._name,
            call=number,
            http_status=payload.status,
            latency_ms=payload.latency_ms,
            retry_in_ms=payload.retry_in_ms,
        )
        self._log_body("The agent sent", number, error.details.get("body") or "")

    def _log_body(self, message: str, number: int, body: str) -> None:
        """Log what was said, as far as the target asks for it and nothing in it is to be hidden."""
        if self._target is None or not self._target.verbose:
            return
        text = _HIDDEN if self._calls.suite.redact_pii else body[:_LOGGED_CHARACTERS]
        _log.info(message, agent=self._name, call=number, body=text)


def _system_text(case: Case) -> str | None:
    """Return the system text as a transcript holds it, None without one."""
    return scrub(case.prompt.system) if case.prompt.system else None


def _timeout_ms(target: AgentTarget | None, suite: Suite) -> int:
    own = None if target is None else target.timeout_ms
    return suite.timeout_ms if own is None else own


def _sent_text(request: AgentRequest) -> str:
    said = next(message.text for message in reversed(request.messages) if not message.prefill)
    if request.context is None:
        return said
    return f"{said} {json.dumps(request.context, ensure_ascii=False)}"


_FINISH_WARNINGS: Mapping[FinishReason | None, str] = {
    FinishReason.MAX_TOKENS: "The answer was cut off at maxTokens.",
    FinishReason.CONTENT_FILTER: "The provider's content filter ended the answer.",
}


def _empty_model_response(reply: ModelReply) -> KindlmError:
    reason = f" (finish reason: {reply.finish_reason})" if reply.finish_reason else ""
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
