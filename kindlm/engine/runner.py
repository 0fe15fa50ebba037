"""Runs a plan: wires what its executions work with, and keeps the limits of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from kindlm.engine.clients import Clients
from kindlm.engine.execution import Doers, run_execution
from kindlm.engine.finishing import Finished, skip_execution
from kindlm.engine.pace import Callee, Pace, PaceChange, Paces, Reservation
from kindlm.engine.pool import run_pool
from kindlm.engine.recording import paced_event
from kindlm.engine.stop import Budget, Permits, Stop
from kindlm.outcome import Status
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
    with `answers` of earlier runs, targets say what they said then. `asks_what_is_new` tells
    whether they are called for what they were not asked then.
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
    asks_what_is_new: bool = True


_USED_UP = "the limit of costs is passed"
"""Why a run winds down; how much it was in the end is said once what is in flight has ended."""

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
    parts: AsyncIterator[Plan] | None = None,
    unpriced: Callable[[str], None] = lambda _: None,
    held_up: Callable[[str, float], None] = lambda _name, _seconds: None,
) -> bool:
    """Run all executions of a plan that are left; return whether it was completed.

    With `parts`, somebody else says what is run when: one part of the plan after the other, each
    once the one before has ended. Whether they were all of the plan is theirs to know.

    `unpriced` is told of each model whose calls count for no limit of costs, since nobody knows
    their price, `held_up` of each provider or agent that wants to be left alone for long, and for
    how many seconds. Raises what the recorder raises when events can no longer be written.
    """
    async with Clients(ports.clients, ports.embedders) as clients:
        run = _PlanRun(plan, ports, observer, stop, clients, limits, earlier, unpriced, held_up)
        run.warm_up()
        run.look_at_limits()
        try:
            with _time_limit(limits, stop), run.nobody_waits():
                complete = True
                async for part in parts or _whole(plan):
                    done = await run.work_off(part)
                    complete = complete and done
                return complete
        finally:
            if stop.reason == _USED_UP:
                stop.reason = _used_up(run.spent_usd, limits)


async def _whole(plan: Plan) -> AsyncIterator[Plan]:
    yield plan


class _PlanRun:
    """A plan that is run: the limits that its executions share, and what those work with."""

    def __init__(
        self,
        plan: Plan,
        ports: Ports,
        observer: Observer,
        stop: Stop,
        clients: Clients,
        limits: Limits,
        earlier: Earlier,
        unpriced: Callable[[str], None],
        held_up: Callable[[str, float], None],
    ) -> None:
        self._plan = plan
        self._observer = observer
        self._stop = stop
        self._earlier = earlier
        self._is_answered = ports.answers is not None
        self._budget = Budget(
            _suite_limits(plan),
            limits.max_cost_usd,
            earlier.spent_usd,
            passed=self.look_at_limits,
            unpriced=unpriced,
        )
        self._permits = Permits(self._budget.is_spent, lambda: stop.is_requested)
        self._paces = Paces(partial(_make_pace, ports, limits, plan, held_up))
        self._doers = {
            planned.ordinal: _doers(
                planned.suite, clients, self._paces, self._budget, self._permits, ports
            )
            for planned in plan.suites
        }

    @property
    def spent_usd(self) -> float:
        """What the run has spent so far, as far as that is known."""
        return self._budget.total_usd

    def warm_up(self) -> None:
        """Make what the executions will share before the first one starts."""
        for planned in self._plan.suites:
            doers = self._doers[planned.ordinal]
            if doers.call_targets:
                _warm_up(planned, doers)

    def look_at_limits(self) -> None:
        """End what has passed a limit of costs: the run, or executions of a suite."""
        if self._budget.is_used_up:
            self._stop.abort(_USED_UP)
        self._permits.review()

    @contextmanager
    def nobody_waits(self) -> Iterator[None]:
        """End what only waits once what is in flight is asked to end."""
        asked = asyncio.ensure_future(self._stop.requested())
        asked.add_done_callback(lambda _: self._permits.review())
        try:
            yield
        finally:
            asked.cancel()

    async def work_off(self, part: Plan) -> bool:
        """Run the executions of a part of the plan that are left; return whether all ended."""
        return await run_pool(
            part, self._earlier.finished, self._calls, self._work, self._paces, self._stop
        )

    def _calls(self, execution: Execution) -> bool:
        """Tell whether an execution calls somebody for certain."""
        ordinal = execution.suite.ordinal
        # Whether one with recorded answers calls anybody is seen when it asks; it takes its turn
        # then.
        is_certain = self._doers[ordinal].call_targets and not self._is_answered
        return is_certain and not execution.case.skip and not self._budget.limit_exceeded(ordinal)

    async def _work(self, execution: Execution, reserved: Reservation | None) -> bool:
        """Do one execution and tell how it ended; return whether it did."""
        finished = await self._do(execution, reserved)
        if finished is not None:
            self._observer(finished)
        return finished is not None

    async def _do(self, execution: Execution, reserved: Reservation | None) -> Finished | None:
        """Do one execution; None if it was cut off by what stops the whole run."""
        earlier, budget, ordinal = self._earlier, self._budget, execution.suite.ordinal
        doers = self._doers[ordinal]
        attempt = earlier.attempts.get(execution.id, 0) + 1
        status = Status.SKIPPED
        if execution.case.skip:
            return await skip_execution(execution, doers.recorder, attempt=attempt)
        if budget.limit_exceeded(ordinal) is None:
            again = execution.suite.suite.reruns - earlier.reruns.get(execution.id, 0)
            finished, attempt = await self._run(execution, doers, attempt, again, reserved)
            if finished is not None and not finished.retried:
                return finished
            if self._stop.is_winding_down or budget.limit_exceeded(ordinal) is None:
                return None
            attempt += 1  # what was cut off stays as it is, and counts for nothing but its costs
            status = Status.SKIPPED if finished is None else finished.status
        elif reserved is not None:
            reserved.pace.ended(reserved.turn)
        limit = budget.limit_exceeded(ordinal) or 0.0
        reason = f"the suite had spent more than its costMaxUsd of ${limit:g}"
        return await skip_execution(
            execution, doers.recorder, attempt=attempt, reason=reason, status=status
        )

    async def _run(
        self,
        execution: Execution,
        doers: Doers,
        attempt: int,
        again: int,
        reserved: Reservation | None,
    ) -> tuple[Finished | None, int]:
        """Run an execution, and up to `again` times more if it does not pass.

        Returns how it ended and the number of its last attempt; that one was cut off if nothing
        ended, or if what ended was to be run again, which is left to whoever resumes a run that is
        stopped. Where nobody is called, nothing is run again.
        """
        left = again if doers.call_targets else 0
        ended: Finished | None = None
        while True:

            def may_rerun() -> bool:
                is_affordable = self._budget.limit_exceeded(execution.suite.ordinal) is None
                return left > 0 and is_affordable and self._stop.reason != _USED_UP  # noqa: B023

            found = await run_execution(
                execution, doers, attempt=attempt, reserved=reserved, may_rerun=may_rerun
            )
            if found is None:
                return ended, attempt
            spent = 0.0 if ended is None else ended.cost_usd
            ended = replace(found, cost_usd=found.cost_usd + spent)
            if not found.retried or self._stop.is_winding_down:
                return ended, attempt
            attempt, left, reserved = attempt + 1, left - 1, None


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


def _used_up(spent_usd: float, limits: Limits) -> str:
    return f"${spent_usd:.4f} spent, more than --max-cost {limits.max_cost_usd:g} allows"


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


def _doers(
    suite: Suite, clients: Clients, paces: Paces, budget: Budget, permits: Permits, ports: Ports
) -> Doers:
    return Doers(
        clients=clients,
        paces=paces,
        budget=budget,
        permits=permits,
        pricing=ports.pricing(suite.prices),
        simulators=ports.simulators,
        agents=ports.agents,
        checker=ports.checker,
        baselines=ports.baselines,
        recorder=ports.recorder,
        clock=ports.clock,
        transcripts=ports.transcripts,
        answers=ports.answers,
        asks_what_is_new=ports.asks_what_is_new,
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
