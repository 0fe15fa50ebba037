"""The desk of an attempt, as observers of agents see it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from kindlm.events.codec import Payload
from kindlm.events.execution_events import ProviderFailed, ProviderRequested, ProviderResponded
from kindlm.transcript import Cost, CostSource, Usage


@dataclass
class Desk:
    """Implements `ports.CallDesk`; each token costs a cent."""

    subject: str = "1.1"
    recorded: list[Payload] = field(default_factory=list)
    priced: list[str | None] = field(default_factory=list)
    spent: list[tuple[str, Cost]] = field(default_factory=list)
    over: bool = False
    is_unfinished: bool = False
    calls: int = 1
    models: None = None

    def record(self, event: Payload) -> None:
        self.recorded.append(event)

    def next_call(self) -> int:
        self.calls += 1
        return self.calls

    def price(self, provider: str | None, model: str | None, usage: Usage) -> Cost:
        assert provider in (None, "openai", "anthropic")
        self.priced.append(model)
        return Cost(None if usage.total is None else usage.total / 100, CostSource.COMPUTED)

    def spend(self, model: str, cost: Cost) -> None:
        self.spent.append((model, cost))

    def is_over(self) -> bool:
        return self.over

    def leave_unfinished(self) -> None:
        self.is_unfinished = True

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def paced(self, provider: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def unassigned(self) -> Desk:
        return replace(self, recorded=[])

    @property
    def asked(self) -> list[ProviderRequested]:
        return [event for event in self.recorded if isinstance(event, ProviderRequested)]

    @property
    def answers(self) -> list[ProviderResponded]:
        return [event for event in self.recorded if isinstance(event, ProviderResponded)]

    @property
    def failures(self) -> list[ProviderFailed]:
        return [event for event in self.recorded if isinstance(event, ProviderFailed)]
