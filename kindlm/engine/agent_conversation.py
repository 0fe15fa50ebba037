"""The conversation with a live agent: the user's messages, and what the agent answers to each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from kindlm.engine.agent_tools import AgentTools, PlacedUse
from kindlm.engine.calls import Means
from kindlm.engine.conversation import Conversation, first_messages, follow_ups, system_text
from kindlm.engine.log import FieldLog
from kindlm.engine.pace import Queue
from kindlm.engine.recording import (
    answer_facts,
    as_recorded,
    failure_facts,
    json_text,
    message_data,
    problem_data,
    tool_call_data,
)
from kindlm.engine.retry import call_with_retries
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import AgentFailed, AgentReplied, AgentSent, AgentToolCallData
from kindlm.ports import (
    Agent,
    AgentReply,
    AgentRequest,
    ConversationSpoilt,
)
from kindlm.suite import AgentTarget, Case, Command, Suite
from kindlm.transcript import Cost, CostSource, Message, Role, Step, Transcript
from kindlm_store.payload import scrub

__all__ = ["AgentConversation"]

_log = FieldLog(__name__)

_LOGGED_CHARACTERS = 2000
_HIDDEN = "[not shown: record.redactPii]"


class AgentConversation:
    """One conversation with an agent; `state` is what came of it so far.

    `target` is the agent, `name` what it is called in the record; `tools` are its tool calls.
    """

    def __init__(
        self,
        case: Case,
        suite: Suite,
        agent: Agent,
        *,
        name: str,
        target: AgentTarget | Command,
        tools: AgentTools,
        conversation: str,
        means: Means,
        queue: Queue,
    ) -> None:
        self._case = case
        self._suite = suite
        self._agent = agent
        self._name = name
        self._adapter = target.adapter if isinstance(target, AgentTarget) else "command"
        self._timeout_s = _timeout_ms(target, suite) / 1000
        self._model = target.model if isinstance(target, AgentTarget) else None
        self._verbose = isinstance(target, AgentTarget) and target.verbose
        self._tools = tools
        self._conversation = conversation
        self._means = means
        self._queue = queue
        self._messages = first_messages(case)
        self._new: tuple[Message, ...] = ()
        self._after = 0
        self._transcript = Transcript(
            system_text(case),
            reports_tools=target.reports_tools,
            prints_calls=target.prints_calls,
        )
        self._warnings: dict[str, None] = {}
        self._error: KindlmError | None = None

    @property
    def state(self) -> Conversation:
        """What came of the conversation so far."""
        return Conversation(self._transcript, self._error, tuple(self._warnings))

    async def hold(self) -> None:
        """Hold the conversation to its end; its first messages are recorded already."""
        contexts = iter(self._case.contexts)
        async with self:
            await self._say(self._case.prompt.user, next(contexts, None))
            for message in follow_ups(self._case):
                if self._error is not None:
                    return
                await self.say(message, next(contexts, None))

    async def __aenter__(self) -> Self:
        """Open the conversation."""
        await self._agent.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it; only then some agents show that they did not answer what they were asked."""
        try:
            await self._agent.__aexit__(*exception)
        except ConversationSpoilt as spoilt:
            self._error = self._error or spoilt.error

    async def say(
        self, message: Message, context: Mapping[str, Any] | None = None
    ) -> Result[AgentReply]:
        """Send one more message of the user, and return its answer."""
        self._messages, self._new = (*self._messages, message), (message,)
        return await self._say(message.text, context)

    async def _say(self, user: str, context: Mapping[str, Any] | None) -> Result[AgentReply]:
        self._transcript = self._transcript.with_turn(scrub(user))
        request = AgentRequest(
            self._conversation, self._messages, self._timeout_s, context, self._tools.answer
        )
        result = await call_with_retries(
            partial(self._record_sent, request),
            partial(self._send, request),
            self._record_failed,
            queue=self._queue,
            retries=self._suite.retries,
            deadline=self._means.deadline,
            permit=self._means.permit,
            clock=self._means.clock,
        )
        if isinstance(result, Err):
            self._error = result.error
            return result
        number, reply = result.value
        reply = as_recorded(reply)
        uses = self._tools.place(reply.tool_uses)
        reply = replace(reply, tool_uses=tuple(placed.use for placed in uses))
        self._record_replied(number, reply, uses)
        self._warnings.update(dict.fromkeys(reply.warnings))
        if not reply.text.strip() and not reply.tool_uses:
            self._error = _empty_response(self._name)
            return Err(self._error)
        self._take(number, reply)
        return Ok(reply)

    async def _send(self, request: AgentRequest) -> Result[AgentReply]:
        result = await self._agent.send(request)
        if isinstance(result, Err) and self._tools.has_answered:
            # Simulated tools count calls and keep state: asked again, they would answer otherwise.
            details = {**result.error.details, "retryable": False}
            return Err(replace(result.error, details=details))
        return result

    def _take(self, number: int, reply: AgentReply) -> None:
        step = Step(
            text=reply.text,
            tool_uses=reply.tool_uses,
            usage=reply.usage,
            cost=self._cost(reply),
            latency_ms=reply.latency_ms,
            model=reply.model,
            recorded=reply.recorded is not None,
            reported=reply.reported,
            reports_tools=bool(reply.reports_tools),
        )
        self._transcript = self._transcript.with_step(step)
        self._messages = (*self._messages, Message(Role.ASSISTANT, reply.text))
        self._after = number

    def _cost(self, reply: AgentReply) -> Cost:
        """Return what the agent reports, else what its tokens cost at the price of its model.

        That is the one it names, else the one it is known to run; `prices` may name the agent, too.
        """
        if reply.recorded is not None:
            return reply.recorded.cost
        if reply.reported_cost_usd is not None:
            return Cost(reply.reported_cost_usd, CostSource.REPORTED)
        return self._means.pricing.cost(
            None, reply.model or self._model, reply.usage, requested=self._name
        )

    def _record_sent(self, request: AgentRequest, attempt: int) -> int:
        number = self._means.counter.next()
        self._tools.begin(number)
        context = request.context
        self._means.recorder.record(
            AgentSent(
                agent=self._name,
                adapter=self._adapter,
                call=number,
                attempt=attempt,
                after=self._after,
                messages=[message_data(message) for message in self._new],
                context=None if context is None else json_text(context),
            )
        )
        _log.debug("Calling an agent", agent=self._name, call=number, attempt=attempt)
        self._tell("Sent to the agent", number, _sent_text(request))
        return number

    def _record_replied(self, number: int, reply: AgentReply, uses: Sequence[PlacedUse]) -> None:
        cost = self._cost(reply)
        facts = answer_facts(number, reply, cost, keep_raw=self._suite.record_raw_bodies)
        self._means.counter.spend(reply.model or self._name, Cost(facts["cost_usd"]))
        self._means.recorder.record(
            AgentReplied(
                **facts,
                tool_calls=[_tool_call(placed) for placed in uses],
                reported=json_text(reply.reported) if reply.reported else None,
                reports_tools=reply.reports_tools,
            )
        )
        _log.debug(
            "The agent answered",
            agent=self._name,
            call=number,
            latency_ms=round(reply.latency_ms, 3),
        )
        self._tell("The agent sent", number, reply.raw or reply.text)

    def _record_failed(
        self, number: int, error: KindlmError, latency_ms: float, delay_s: float | None
    ) -> None:
        payload = AgentFailed(
            **failure_facts(
                number, error, latency_ms, delay_s, keep_raw=self._suite.record_raw_bodies
            )
        )
        self._means.recorder.record(payload)
        _log.warning(
            "The call failed",
            code=error.code.name,
            agent=self._name,
            call=number,
            http_status=payload.status,
            latency_ms=payload.latency_ms,
            retry_in_ms=payload.retry_in_ms,
        )
        self._tell("The agent sent", number, error.details.get("body") or "")

    def _tell(self, message: str, number: int, body: str) -> None:
        """Log what was said, as far as the target asks for it and nothing in it is to be hidden."""
        if not self._verbose:
            return
        shown = _HIDDEN if self._suite.redact_pii else body[:_LOGGED_CHARACTERS]
        _log.info(message, agent=self._name, call=number, body=shown)


def _timeout_ms(target: AgentTarget | Command, suite: Suite) -> int:
    own = target.timeout_ms if isinstance(target, AgentTarget) else None
    return suite.timeout_ms if own is None else own


def _sent_text(request: AgentRequest) -> str:
    said = next(message.text for message in reversed(request.messages) if not message.prefill)
    if request.context is None:
        return said
    return f"{said} {json.dumps(request.context, ensure_ascii=False)}"


def _tool_call(placed: PlacedUse) -> AgentToolCallData:
    use, call = placed.use, tool_call_data(placed.use.call)
    return AgentToolCallData(
        index=placed.index,
        id=call.id,
        name=call.name,
        arguments=call.arguments,
        malformed=call.malformed,
        response=json_text(use.response),
        rule=use.rule,
        simulated=placed.simulated,
        problems=[problem_data(problem) for problem in use.problems],
    )


def _empty_response(name: str) -> KindlmError:
    return KindlmError(
        ErrorCode.ENGINE_EMPTY_RESPONSE,
        f"The agent {name} answered with neither text nor a tool call.",
        "Look at the recorded body: kindlm show RUN EXECUTION --verbose",
    )
