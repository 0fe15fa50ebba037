"""Runs a plan: decides which execution starts next, how many run at once, and which run again.

Executions wait in lanes, one for each provider or agent that they call, and each lane starts its
next one only when the pace there has room. So a slow provider takes few places in the pool, and
does not hold up the others. Suites share the pool; each takes no more places than its own
`concurrency`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from functools import partial

from kindlm.dataclass import replace
from kindlm.engine.attempt import Finished, end_unrun, run_execution
from kindlm.engine.pace import Pace, Turn
from kindlm.engine.resources import LiveRun
from kindlm.engine.stop import USED_UP
from kindlm.engine.talk import callee
from kindlm.guard import guard
from kindlm.outcome import Status
from kindlm.plan import Execution, Plan

_MANY_PLACES = 8
"""With so many places, a passed execution gives its place away before its events are on disk.

With fewer, waiting for the disk costs little, and a killed run loses only calls in flight."""

_STARTED_TOGETHER = 8
"""After so many starts, the calls of these executions are sent before others start.

Otherwise, all calls are sent together and answered together, again and again, and none is in flight
while the next ones are prepared."""


async def run_plan(
    run: LiveRun,
    observer: Callable[[Finished], None],
    parts: AsyncIterator[Plan] | None = None,
) -> bool:
    """Run all executions of a plan that are left; return whether it was completed.

    The `observer` is called for each execution once its end is on disk. With `parts`, the caller
    decides the order: one part of the plan runs after the other. The caller knows whether they
    cover the whole plan. Raises the recorder's error if events can no longer be written.
    """
    stop, limits = run.stop, run.limits
    timer: asyncio.TimerHandle | None = None
    try:
        run.warm_up()
        run.budget.review()
        if limits.max_time_s is not None:
            reason = f"the run took longer than {limits.max_time_s:g} s (--max-time)"
            time_over = partial(stop.abort, reason, cut_off=True)
            if limits.max_time_s <= 0:
                time_over()
            timer = asyncio.get_running_loop().call_later(limits.max_time_s, time_over)
        complete = True
        async for part in parts or _whole(run.plan):
            complete = await Pool(run, part, observer).run() and complete
        return complete
    finally:
        if timer is not None:
            timer.cancel()
        if stop.reason == USED_UP:
            stop.reason = run.budget.why_used_up
        await run.aclose()


async def _whole(plan: Plan) -> AsyncIterator[Plan]:
    yield plan


class Pool:
    """Runs the executions of a plan that are left, with limited concurrency.

    An execution that passed gives its place to the next one while the disk takes its events, if
    there are many places. At most as many wait for the disk as there are places. Any other keeps
    its place until its end is on disk: a failure that is reported may end the run, and user code
    may end the process.
    """

    def __init__(self, run: LiveRun, plan: Plan, observer: Callable[[Finished], None]) -> None:
        self._live = run
        self._observer = observer
        self._stop = run.stop
        suites = {suite.ordinal: suite.suite.concurrency for suite in plan.suites}
        most = max(suites.values(), default=1)
        self._places, self._unreported = asyncio.Semaphore(most), asyncio.Semaphore(most)
        self._leaves_places = most >= _MANY_PLACES and not guard.is_entered
        self._of_suite = {ordinal: asyncio.Semaphore(most) for ordinal, most in suites.items()}
        self._lanes = _lanes(plan, run)
        self._starting: list[asyncio.Task[None]] = []
        self._all_done = True

    async def run(self) -> bool:
        """Run the executions; return whether none is left undone.

        If an execution raises, cancel everything else, then raise its first exception.
        """
        running = asyncio.create_task(self._run())
        over = asyncio.create_task(self._stop.grace_over())
        winding_down = asyncio.create_task(self._stop.winding_down.wait())
        winding_down.add_done_callback(self._start_no_more)
        try:
            await asyncio.wait({running, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (running, over, winding_down):
                task.cancel()
            await asyncio.gather(running, over, winding_down, return_exceptions=True)
        if running.cancelled():
            return False
        try:
            return running.result()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _run(self) -> bool:
        async with asyncio.TaskGroup() as group:
            lanes = self._lanes.items()
            self._starting = [group.create_task(self._start(*lane, group)) for lane in lanes]
        return self._all_done and not any(self._lanes.values())

    def _start_no_more(self, _: object) -> None:
        """Cancel the tasks that start executions; running executions continue."""
        for task in self._starting:
            task.cancel()

    async def _start(
        self, pace: Pace | None, waiting: deque[Execution], group: asyncio.TaskGroup
    ) -> None:
        """Start the executions of a lane, one after another, as there is room."""
        while waiting:
            turn = await self._admit(waiting[0], pace)
            if self._stop.winding_down.is_set():
                return  # the place is no longer needed
            if turn is not None and turn.pace.is_closed:
                turn.pace.ended(turn)
                self._give_back_place(waiting[0])
                return  # this lane's callee gets no more calls; other lanes go on
            if turn is not None:
                self._live.reserved[waiting[0].id] = turn
            group.create_task(self._do(waiting.popleft()))
            if len(waiting) % _STARTED_TOGETHER == 0:
                await asyncio.sleep(0)

    async def _admit(self, execution: Execution, pace: Pace | None) -> Turn | None:
        """Wait for a place in the pool, and for a turn if a call will be made."""
        pace = pace if self._will_call(execution) else None
        of_suite = self._of_suite[execution.suite.ordinal]
        while True:
            # Take a place only once it can be used: others wait for places meanwhile.
            if pace is not None:
                await pace.room()
            await of_suite.acquire()
            try:
                await self._places.acquire()
            except asyncio.CancelledError:
                of_suite.release()
                raise
            turn = None if pace is None else pace.turn_now()
            if pace is None or turn is not None:
                return turn
            self._give_back_place(execution)

    def _give_back_place(self, execution: Execution) -> None:
        self._places.release()
        self._of_suite[execution.suite.ordinal].release()

    async def _do(self, execution: Execution) -> None:
        try:
            finished = await self._work(execution)
            if (unused := self._live.reserved.pop(execution.id, None)) is not None:
                unused.pace.ended(unused)
            if finished is None:
                self._all_done = False
                return
            has_passed = finished.status is Status.PASSED and execution.case.script is None
            if not (has_passed and self._leaves_places):
                await self._report(finished)
                return
            await self._unreported.acquire()
        finally:
            self._give_back_place(execution)
        try:
            await self._report(finished)
        finally:
            self._unreported.release()

    def _will_call(self, execution: Execution) -> bool:
        """Return whether an execution is certain to call a target or judge, as things are now."""
        run = self._live
        if execution.case.skip or not run.ports.calls_targets or run.ports.answers is not None:
            # An execution with recorded answers calls a target only if an answer is missing; it
            # takes its turn then.
            return False
        return run.budget.limit_exceeded(execution.suite.ordinal) is None

    async def _work(self, execution: Execution) -> Finished | None:
        """Run an execution, and rerun it as often as its suite allows until it passes.

        Return None if it was cut off, or was due for a rerun when the run wound down: the resumed
        run then does that. Where no target is called, nothing is rerun.
        """
        run, stop = self._live, self._stop
        earlier, ordinal = run.earlier, execution.suite.ordinal
        recorder, budget = run.ports.recorder, run.budget
        attempt = earlier.attempts.get(execution.id, 0) + 1
        if execution.case.skip:
            return end_unrun(execution, recorder, attempt)
        left = execution.suite.suite.reruns - earlier.reruns.get(execution.id, 0)
        left = left if run.ports.calls_targets else 0

        def may_rerun() -> bool:
            return left > 0 and budget.limit_exceeded(ordinal) is None and stop.reason != USED_UP

        ended: Finished | None = None
        while (limit := budget.limit_exceeded(ordinal)) is None:
            found = await run_execution(execution, run, attempt=attempt, may_rerun=may_rerun)
            attempt += 1
            if found is not None:
                if ended is not None:
                    found = replace(found, cost_usd=found.cost_usd + ended.cost_usd)
                ended = found
                if not found.retried:
                    return ended
                left -= 1
            is_over = budget.limit_exceeded(ordinal) is not None
            if stop.winding_down.is_set() or (found is None and not is_over):
                return None
        # An execution that was cut off keeps its state; only its cost counts.
        reason = f"the suite had spent more than its costMaxUsd of ${limit:g}"
        status = Status.SKIPPED if ended is None else ended.status
        return end_unrun(execution, recorder, attempt, status, reason=reason)

    async def _report(self, finished: Finished) -> None:
        """Report the end of an execution once it is on disk."""
        await self._live.ports.recorder.durable()
        self._observer(finished)


def _lanes(plan: Plan, run: LiveRun) -> dict[Pace | None, deque[Execution]]:
    """Return the executions that are left, in order, by the pace of what they call."""
    lanes: dict[Pace | None, deque[Execution]] = defaultdict(deque)
    for each in plan:
        if each.id not in run.earlier.finished:
            called = callee(each)
            lanes[None if called is None else run.paces.get(called)].append(each)
    return lanes
