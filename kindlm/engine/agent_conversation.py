"""The conversation with a live agent: the user's messages, and what the agent answers to each."""

from __future__ import annotations

from kindlm.engine.calls import CallCounter
from kindlm.engine.conversation import Conversation, first_messages, follow_ups, system_text
from kindlm.engine.deadline import Deadline
from kindlm.engine.log import FieldLog
from kindlm.engine.permits import Permit
from kindlm.engine.recording import (
    answer_facts,
    as_recorded,
    failure_facts,
    json_text,
    message_data,
    tool_call_data,
)
from kindlm.engine.retry import call_with_retries
from kindlm.engine.turns import Queue
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.events import AgentFailed, AgentReplied, AgentSent, AgentToolCallData
from kindlm.ports import Agent, AgentReply, AgentRequest, Clock, Pricing, Recorder
from kindlm.suite import Case, Suite
from kindlm.transcript import Cost, CostSource, Message, Role, Step, ToolUse, Transcript
from kindlm_store.payload import scrub

__all__ = ["AgentConversation"]

_log = FieldLog(__name__)


class AgentConversation:
    """One conversation with an agent; `state` is what came of it so far.

    `adapter` and `name` say in the record how the agent was reached, and which it is.
    """

    def __init__(
        self,
        case: Case,
        suite: Suite,
        agent: Agent,
        *,
        name: str,
        adapter: str,
        conversation: str,
        recorder: Recorder,
        clock: Clock,
        counter: CallCounter,
        pricing: Pricing,
        queue: Queue,
        deadline: Deadline,
        permit: Permit,
    ) -> None:
        self._case = case
        self._suite = suite
        self._agent = agent
        self._name = name
        self._adapter = adapter
        self._conversation = conversation
        self._recorder = recorder
        self._clock = clock
        self._counter = counter
        self._pricing = pricing
        self._queue = queue
        self._deadline = deadline
        self._permit = permit
        self._messages = first_messages(case)
        self._new: tuple[Message, ...] = ()
        self._after = 0
        self._transcript = Transcript(system_text(case))
        self._warnings: dict[str, None] = {}
        self._error: KindlmError | None = None

    @property
    def state(self) -> Conversation:
        """What came of the conversation so far."""
        return Conversation(self._transcript, self._error, tuple(self._warnings))

    async def hold(self) -> None:
        """Hold the conversation to its end; its first messages are recorded already."""
        async with self._agent:
            await self._say(self._case.prompt.user)
            for message in follow_ups(self._case):
                if self._error is not None:
                    return
                self._messages, self._new = (*self._messages, message), (message,)
                await self._say(message.text)

    async def _say(self, user: str) -> None:
        self._transcript = self._transcript.with_turn(scrub(user))
        request = AgentRequest(self._conversation, self._messages, self._suite.timeout_ms / 1000)
        result = await call_with_retries(
            self._record_sent,
            lambda: self._agent.send(request),
            self._record_failed,
            queue=self._queue,
            retries=self._suite.retries,
            deadline=self._deadline,
            permit=self._permit,
            clock=self._clock,
        )
        if isinstance(result, Err):
            self._error = result.error
            return
        number, reply = result.value
        reply = as_recorded(reply)
        self._record_replied(number, reply)
        self._warnings.update(dict.fromkeys(reply.warnings))
        if not reply.text and not reply.tool_uses:
            self._error = _empty_response(self._name)
            return
        self._take(number, reply)

    def _take(self, number: int, reply: AgentReply) -> None:
        step = Step(
            text=reply.text,
            tool_uses=reply.tool_uses,
            usage=reply.usage,
            cost=self._cost(reply),
            latency_ms=reply.latency_ms,
            model=reply.model,
            recorded=reply.recorded is not None,
        )
        self._transcript = self._transcript.with_step(step)
        self._messages = (*self._messages, Message(Role.ASSISTANT, reply.text))
        self._after = number

    def _cost(self, reply: AgentReply) -> Cost:
        """Return what the agent reports, else what `prices` says of its model or of itself."""
        if reply.recorded is not None:
            return reply.recorded.cost
        if reply.reported_cost_usd is not None:
            return Cost(reply.reported_cost_usd, CostSource.REPORTED)
        return self._pricing.cost(
            self._adapter, reply.model or self._name, reply.usage, requested=self._name
        )

    def _record_sent(self, attempt: int) -> int:
        number = self._counter.next()
        self._recorder.record(
            AgentSent(
                agent=self._name,
                adapter=self._adapter,
                call=number,
                attempt=attempt,
                after=self._after,
                messages=[message_data(message) for message in self._new],
            )
        )
        _log.debug("Calling an agent", agent=self._name, call=number, attempt=attempt)
        return number

    def _record_replied(self, number: int, reply: AgentReply) -> None:
        first = len(self._transcript.tool_uses)
        cost = self._cost(reply)
        facts = answer_facts(number, reply, cost, keep_raw=self._suite.record_raw_bodies)
        self._counter.spend(reply.model or self._name, Cost(facts["cost_usd"]))
        self._recorder.record(
            AgentReplied(
                **facts,
                tool_calls=[
                    _tool_call(index, use) for index, use in enumerate(reply.tool_uses, first)
                ],
            )
        )
        _log.debug(
            "The agent answered",
            agent=self._name,
            call=number,
            latency_ms=round(reply.latency_ms, 3),
        )

    def _record_failed(
        self, number: int, error: KindlmError, latency_ms: float, delay_s: float | None
    ) -> None:
        payload = AgentFailed(
            **failure_facts(
                number, error, latency_ms, delay_s, keep_raw=self._suite.record_raw_bodies
            )
        )
        self._recorder.record(payload)
        _log.warning(
            "The call failed",
            code=error.code.name,
            agent=self._name,
            call=number,
            http_status=payload.status,
            latency_ms=payload.latency_ms,
            retry_in_ms=payload.retry_in_ms,
        )


def _tool_call(index: int, use: ToolUse) -> AgentToolCallData:
    call = tool_call_data(use.call)
    return AgentToolCallData(
        index=index,
        id=call.id,
        name=call.name,
        arguments=call.arguments,
        malformed=call.malformed,
        response=json_text(use.response),
    )


def _empty_response(name: str) -> KindlmError:
    return KindlmError(
        ErrorCode.ENGINE_EMPTY_RESPONSE,
        f"The agent {name} answered with neither text nor a tool call.",
        "Look at the recorded body: kindlm show RUN EXECUTION --verbose",
    )
