"""Runs a plan: wires what its executions work with, and keeps the limits of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from kindlm.engine.budget import Budget
from kindlm.engine.clients import Clients
from kindlm.engine.execution import Doers, Finished, run_execution, skip_execution
from kindlm.engine.pace import Pace, PaceChange
from kindlm.engine.pool import run_pool
from kindlm.engine.recording import paced_event
from kindlm.engine.stop import Stop
from kindlm.engine.turns import Callee, Paces, Reservation
from kindlm.plan import Earlier, Execution, Plan, PlannedSuite
from kindlm.ports import (
    AgentFactory,
    AnswerSource,
    BaselineLookup,
    Checker,
    ClientFactory,
    Clock,
    EmbedderFactory,
    Pricing,
    Recorder,
    SimulatorFactory,
    TranscriptSource,
)
from kindlm.suite import AgentTarget, Price, Suite
from kindlm.transcript import Usage

__all__ = ["Limits", "Observer", "Ports", "run_plan"]

Observer = Callable[[Finished], None]
"""Is told of each execution once its end is on disk."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the engine is given to work with; see `ports` for each.

    With `transcripts` of an earlier run nobody converses, and what was said then is checked again;
    with `answers` of it, targets say what they said then.
    """

    clients: ClientFactory
    pricing: Callable[[Mapping[str, Price]], Pricing]
    simulators: SimulatorFactory
    agents: AgentFactory
    checker: Checker
    baselines: BaselineLookup
    embedders: EmbedderFactory
    recorder: Recorder
    clock: Clock
    transcripts: TranscriptSource | None = None
    answers: AnswerSource | None = None


_LONG_PAUSE_S = 30.0
"""A pause that somebody who looks on would take for a run that hangs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may take; None is no limit. `max_rpm` is calls a minute towards each callee."""

    max_cost_usd: float | None = None
    max_time_s: float | None = None
    max_rpm: float | None = None


async def run_plan(
    plan: Plan,
    ports: Ports,
    observer: Observer,
    stop: Stop,
    *,
    limits: Limits = Limits(),
    earlier: Earlier = Earlier(),  # noqa: B008 - a value
    unpriced: Callable[[str], None] = lambda _: None,
    held_up: Callable[[str, float], None] = lambda _name, _seconds: None,
) -> bool:
    """Run all executions of a plan that are left; return whether it was completed.

    `unpriced` is told of each model whose calls count for no limit of costs, since nobody knows
    their price, `held_up` of each provider or agent that wants to be left alone for long, and for
    how many seconds. Raises what the recorder raises when events can no longer be written.
    """

    def used_up() -> None:
        spent = f"${budget.total_usd:.4f} spent"
        stop.abort(f"{spent}, more than --max-cost {limits.max_cost_usd:g} allows")

    budget = Budget(
        _suite_limits(plan),
        limits.max_cost_usd,
        earlier.spent_usd,
        used_up=used_up,
        unpriced=unpriced,
    )
    paces = Paces(partial(_make_pace, ports, limits, plan, held_up))
    async with Clients(ports.clients, ports.embedders) as clients:
        doers = {
            planned.ordinal: _doers(planned.suite, clients, paces, budget, ports)
            for planned in plan.suites
        }

        async def work(execution: Execution, reserved: Reservation | None) -> None:
            observer(await _do(execution, doers[execution.suite.ordinal], earlier, reserved))

        def calls(execution: Execution) -> bool:
            ordinal = execution.suite.ordinal
            is_live = doers[ordinal].call_targets and not execution.case.skip
            return is_live and not budget.limit_exceeded(ordinal)

        for planned in plan.suites:
            if doers[planned.ordinal].call_targets:
                _warm_up(planned, doers[planned.ordinal])
        if budget.is_used_up:
            used_up()
        with _time_limit(limits, stop):
            return await run_pool(plan, earlier.finished, calls, work, paces, stop)


async def _do(
    execution: Execution, doers: Doers, earlier: Earlier, reserved: Reservation | None
) -> Finished:
    attempt = earlier.attempts.get(execution.id, 0) + 1
    limit = doers.budget.limit_exceeded(execution.suite.ordinal)
    if execution.case.skip:
        return await skip_execution(execution, doers.recorder, attempt=attempt)
    if limit is None:
        return await run_execution(execution, doers, attempt=attempt, reserved=reserved)
    if reserved is not None:
        reserved.pace.ended(reserved.turn)
    reason = f"the suite had spent more than its costMaxUsd of ${limit:g}"
    return await skip_execution(execution, doers.recorder, attempt=attempt, reason=reason)


def _suite_limits(plan: Plan) -> dict[int, float]:
    return {
        planned.ordinal: gate.threshold
        for planned in plan.suites
        for gate in planned.suite.gates
        if gate.name == "costMaxUsd"
    }


def _make_pace(
    ports: Ports,
    limits: Limits,
    plan: Plan,
    held_up: Callable[[str, float], None],
    callee: Callee,
) -> Pace:
    name = callee.id if isinstance(callee, AgentTarget) else callee.name

    def changed(change: PaceChange) -> None:
        ports.recorder.record(paced_event(name, change))
        if change.pause_s >= _LONG_PAUSE_S:
            held_up(name, change.pause_s)

    most = max((planned.suite.concurrency for planned in plan.suites), default=1)
    return Pace(ports.clock, changed, max_rpm=limits.max_rpm, most=most)


@contextmanager
def _time_limit(limits: Limits, stop: Stop) -> Iterator[None]:
    if limits.max_time_s is None:
        yield
        return
    reason = f"the run took longer than {limits.max_time_s:g} s (--max-time)"
    over = partial(stop.abort, reason, cut_off=True)
    if limits.max_time_s <= 0:
        over()
    timer = asyncio.get_running_loop().call_later(limits.max_time_s, over)
    try:
        yield
    finally:
        timer.cancel()


def _doers(suite: Suite, clients: Clients, paces: Paces, budget: Budget, ports: Ports) -> Doers:
    return Doers(
        clients=clients,
        paces=paces,
        budget=budget,
        pricing=ports.pricing(suite.prices),
        simulators=ports.simulators,
        agents=ports.agents,
        checker=ports.checker,
        baselines=ports.baselines,
        recorder=ports.recorder,
        clock=ports.clock,
        transcripts=ports.transcripts,
        answers=ports.answers,
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
        priced = doers.pricing.cost(target.provider, target.model, Usage(0, 0))
        doers.budget.spend(planned.ordinal, target.model, priced)
