"""Runs a plan: a pool of workers takes executions in order, suite after suite."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from kindlm.engine.clients import Clients
from kindlm.engine.execution import Doers, Finished, run_execution, skip_execution
from kindlm.plan import Execution, Plan, PlannedSuite
from kindlm.ports import (
    AgentFactory,
    BaselineLookup,
    Checker,
    ClientFactory,
    Clock,
    EmbedderFactory,
    Pricing,
    Recorder,
    SimulatorFactory,
)
from kindlm.suite import Price, Suite
from kindlm.transcript import Usage

__all__ = ["Observer", "Ports", "Stop", "run_plan"]

Observer = Callable[[Finished], None]
"""Is told of each execution once its end is on disk."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the engine is given to work with; see `ports` for each."""

    clients: ClientFactory
    pricing: Callable[[Mapping[str, Price]], Pricing]
    simulators: SimulatorFactory
    agents: AgentFactory
    checker: Checker
    baselines: BaselineLookup
    embedders: EmbedderFactory
    recorder: Recorder
    clock: Clock


class Stop:
    """Asks a run to stop: nothing new starts, and what is in flight gets a grace period."""

    def __init__(self, grace_s: float = 5.0) -> None:
        self.reason: str | None = None
        self._grace_s = grace_s
        self._requested = asyncio.Event()
        self._at_once = asyncio.Event()

    def request(self, reason: str) -> None:
        """Ask to stop, from the event loop's thread; the first reason stays."""
        self.reason = self.reason or reason
        self._requested.set()

    def wind_down(self, reason: str) -> None:
        """Ask that nothing new starts; what is in flight takes the time that it needs."""
        self.reason = self.reason or reason

    @property
    def is_requested(self) -> bool:
        """Whether what is in flight has been asked to end, too."""
        return self._requested.is_set()

    async def requested(self) -> None:
        """Return when what is in flight is asked to end."""
        await self._requested.wait()

    def at_once(self) -> None:
        """End the grace period now."""
        self._at_once.set()

    async def grace_over(self) -> None:
        """Return when a stop was requested and the grace period has passed or was ended."""
        await self._requested.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._at_once.wait(), self._grace_s)


async def run_plan(plan: Plan, ports: Ports, observer: Observer, stop: Stop) -> bool:
    """Run all executions of a plan; return whether it was completed.

    Raises what the recorder raises when events can no longer be written.
    """
    async with Clients(ports.clients, ports.embedders) as clients:
        for ordinal, executions in groupby(plan, key=lambda execution: execution.suite.ordinal):
            suite = plan.suites[ordinal].suite
            doers = _doers(suite, clients, ports)
            _warm_up(plan.suites[ordinal], doers)
            if not await _run_suite(suite, executions, doers, observer, stop):
                return False
    return True


def _doers(suite: Suite, clients: Clients, ports: Ports) -> Doers:
    return Doers(
        clients=clients,
        pricing=ports.pricing(suite.prices),
        simulators=ports.simulators,
        agents=ports.agents,
        checker=ports.checker,
        baselines=ports.baselines,
        recorder=ports.recorder,
        clock=ports.clock,
    )


def _warm_up(planned: PlannedSuite, doers: Doers) -> None:
    """Make what the executions will share before the first one starts.

    Loading an SDK takes up to a second, in which nothing else moves: it would count as latency of
    the calls that are in flight then.
    """
    suite = planned.suite
    used = {target for case in planned.cases if case.selected for target in case.targets}
    for model in filter(None, (*used, suite.judge_model)):
        target = suite.models.get(model)
        if target is None:
            continue  # an agent: it has a connection of its own for each conversation
        doers.clients.get(suite.providers[target.provider])
        doers.pricing.cost(target.provider, target.model, Usage(0, 0))


async def _run_suite(
    suite: Suite, executions: Iterator[Execution], doers: Doers, observer: Observer, stop: Stop
) -> bool:
    """Return whether all executions of the suite were finished."""
    workers = [
        asyncio.create_task(_work(executions, doers, observer, stop))
        for _ in range(suite.concurrency)
    ]
    grace = asyncio.create_task(stop.grace_over())
    try:
        await _wait(workers, grace)
        finished = all(worker.done() and not worker.cancelled() for worker in workers)
    finally:
        await _cancel([*workers, grace])
    return finished and next(executions, None) is None


async def _wait(workers: list[asyncio.Task[None]], grace: asyncio.Task[None]) -> None:
    """Wait until all workers are done, the grace period is over, or a worker raised."""
    pending: set[asyncio.Task[None]] = set(workers)
    while pending and not grace.done():
        done, pending = await asyncio.wait({*pending, grace}, return_when=asyncio.FIRST_COMPLETED)
        pending.discard(grace)
        for task in done:
            task.result()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _work(
    executions: Iterator[Execution], doers: Doers, observer: Observer, stop: Stop
) -> None:
    # All workers draw from one iterator; between two awaits nobody else runs.
    while stop.reason is None and (execution := next(executions, None)) is not None:
        if execution.case.skip:
            observer(await skip_execution(execution, doers.recorder))
        else:
            observer(await run_execution(execution, doers))
