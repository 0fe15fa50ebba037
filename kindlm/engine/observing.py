"""Adds the calls that observers see to an agent's answer, with their cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass

from kindlm.dataclass import replace
from kindlm.engine.calls import Calls
from kindlm.errors import KindlmError
from kindlm.events.codec import Payload
from kindlm.ports import AgentReply, CallDesk, Observation, ReplayedModels
from kindlm.same_calls import with_observed
from kindlm.suite import ProviderSettings
from kindlm.transcript import Cost, Usage


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


async def with_what_was_seen(
    reply: AgentReply, observations: Sequence[Observation], *, reports_tools: bool
) -> tuple[AgentReply, Cost | None]:
    """Return an answer with what observers saw, and the cost; None if no model call was seen.

    The agent's own report takes precedence. `reports_tools` means that the agent reports every tool
    call, as the suite says, so that observers cannot miss one.
    """
    cost: Cost | None = None
    says = reply.reports_tools
    reports = reports_tools or bool(reply.tool_uses if says is None else says)
    for observation in observations:
        seen = await observation.seen()
        if cost is None or (cost.usd is None and seen.cost is not None):
            cost = seen.cost
        reply = replace(
            reply,
            tool_uses=tuple(with_observed(reply.tool_uses, seen.tool_uses)),
            usage=seen.usage if reply.usage == Usage() else reply.usage,
            model=reply.model or seen.model,
            reports_tools=reports or reply.reports_tools or seen.missing is None,
            unseen=None if reports else reply.unseen or seen.missing,
        )
    return reply, cost


async def with_trouble(error: KindlmError, observations: Sequence[Observation]) -> KindlmError:
    """Add the cause that observers know, and the remedy, to the error of an agent."""
    for observation in observations:
        if (trouble := await observation.trouble()) is not None:
            return replace(error, message=f"{error.message.rstrip('.')}. {trouble}")
    return error
