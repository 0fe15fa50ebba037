"""Conversations with an agent, with the calls that observers see and their cost.

Each message of the user gets one answer: the agent calls models and tools itself.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from uuid import uuid4

from kindlm.calls_in_text import MARK, MARK_WARNING
from kindlm.dataclass import replace
from kindlm.engine import FieldLog
from kindlm.engine.calls import Bill, Calls
from kindlm.engine.pace import Callee
from kindlm.engine.talk import LiveTalk, callee, empty_response
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.events.codec import Payload
from kindlm.events.execution_events import AgentReplied, AgentSent
from kindlm.ports import (
    Agent,
    AgentReply,
    AgentRequest,
    CallDesk,
    ConversationSpoilt,
    Observation,
    ReplayedModels,
)
from kindlm.same_calls import with_observed
from kindlm.suite import AgentTarget, Command, ProviderSettings
from kindlm.transcript import Cost, CostSource, Message, Role, Step, Usage, storable_json
from kindlm.wording import shown
from kindlm_store.new_event import scrub

_log = FieldLog(__name__)

_LOGGED_CHARACTERS = 2000
_HIDDEN = "[not shown: record.redactPii]"


@dataclass(eq=False, kw_only=True)
class AgentTalk(LiveTalk):
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
        reports_tools = self.called.reports_tools
        conversation.transcript = replace(conversation.transcript, reports_tools=reports_tools)
        self.models = self.desk.models = None if answers is None else answers.models()
        agent = None if answers is None or self.models else answers.agent()
        async with AsyncExitStack() as opened:
            opened.callback(self._end_observations)
            if agent is None:
                run.budget.before_call()
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
            self.error = empty_response(what)
            return Err(self.error)
        self.messages = (*self.messages, Message(Role.ASSISTANT, answer.text))
        self.new, self.after = (), number
        raw = None if reply.raw is None else scrub(reply.raw)
        return Ok((self.conversation.transcript.steps[-1], raw))

    async def _record_reply(self, number: int, reply: AgentReply) -> AgentReplied:
        """Record an answer of the agent, with what observers saw, and count its cost."""
        transcript, reports_tokens = self.conversation.transcript, reply.usage != Usage()
        reply, seen_cost = await self._with_what_was_seen(reply)
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

    async def _with_what_was_seen(self, reply: AgentReply) -> tuple[AgentReply, Cost | None]:
        """Return an answer with what observers saw, and the cost; None if no model call was seen.

        The agent's own report takes precedence. If the agent reports every tool call, as the suite
        may say, observers cannot miss one. A report that may lack calls is as good as none.
        """
        cost: Cost | None = None
        says, unseen = reply.reports_tools, reply.unseen
        reports = self.conversation.transcript.reports_tools
        reports = reports or bool(unseen is None and (reply.tool_uses if says is None else says))
        missing: str | None = None
        for observation in self.observations:
            seen = await observation.seen()
            missing = missing or (seen.missing and (unseen or seen.missing))
            if cost is None or (cost.usd is None and seen.cost is not None):
                cost = seen.cost
            reply = replace(
                reply,
                tool_uses=tuple(with_observed(reply.tool_uses, seen.tool_uses)),
                usage=seen.usage if reply.usage == Usage() else reply.usage,
                model=reply.model or seen.model,
                reports_tools=reports or reply.reports_tools or seen.missing is None,
                unseen=None if reports else missing,
            )
        return reply, cost

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
        error = result.error
        for observation in self.observations:
            if (trouble := await observation.trouble()) is not None:
                error = replace(error, message=f"{error.message.rstrip('.')}. {trouble}")
                break
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


@dataclass(slots=True)
class ObservedCalls:
    """Implements `ports.CallDesk` for one attempt.

    `spent_usd` is the cost of the observed calls since the last answer of the agent. Calls that are
    not of a known attempt (`is_assigned`) count against limits, but are not recorded.
    """

    subject: str
    calls: Calls
    is_assigned: bool = True
    spent_usd: float = 0.0
    models: ReplayedModels | None = None

    def record(self, event: Payload) -> None:
        if self.is_assigned:
            self.calls.recorder.record(event)

    def next_call(self) -> int:
        if not self.is_assigned:
            return 0
        self.calls.last += 1
        return self.calls.last

    def price(self, provider: str | None, model: str | None, usage: Usage) -> Cost:
        return self.calls.pricing.cost(provider, model, usage, requested=model)

    def spend(self, model: str, cost: Cost) -> None:
        self.spent_usd += cost.usd or 0.0
        self.calls.spend(model, cost)

    def is_over(self) -> bool:
        return self.calls.permit.is_over

    def leave_unfinished(self) -> None:
        self.calls.permit.has_refused |= self.is_assigned

    def waiting(self) -> AbstractContextManager[None]:
        return self.calls.waiting()

    @asynccontextmanager
    async def paced(self, provider: str) -> AsyncIterator[None]:
        run = self.calls.run
        if run.max_rpm is None:
            yield
            return
        pace = run.paces.get(ProviderSettings(f"{provider} (agents)", provider))
        # No attempt waits for a call that is not assigned.
        turn = await (self.calls.turn(pace) if self.is_assigned else pace.turn())
        try:
            yield
        finally:
            pace.ended(turn)

    def unassigned(self) -> CallDesk:
        return ObservedCalls(self.subject, self.calls, is_assigned=False)
