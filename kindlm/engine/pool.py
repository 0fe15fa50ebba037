"""The pool: which executions go on at once, and which is started next.

Executions wait in lanes, one for each provider or agent that they call, and each lane starts its
next one only when the pace there has room. So a provider that allows little holds few places of
the pool, and the others go on at their own pace. Suites share the pool; each holds no more places
than its own `concurrency`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator

from kindlm.engine.execution import callee
from kindlm.engine.pace import Callee, Pace, Paces, Reservation
from kindlm.engine.stop import Stop
from kindlm.plan import Execution, Plan

__all__ = ["Calls", "Work", "run_pool"]

Calls = Callable[[Execution], bool]
"""Tells whether an execution will call anybody, as things are now."""

Work = Callable[[Execution, Reservation | None], Awaitable[bool]]
"""Does one execution, with the turn that was taken for its first call if it will make one.

Returns whether it is done, and not cut off."""


async def run_pool(
    plan: Plan, done: Collection[str], calls: Calls, work: Work, paces: Paces, stop: Stop
) -> bool:
    """Do the executions of a plan that are not `done`; return whether none remained undone.

    Raises the first exception that `work` raises, when everything else was cancelled.
    """
    pool = _Pool(plan, done, calls, work, paces, stop)
    running = asyncio.create_task(pool.run())
    over = asyncio.create_task(stop.grace_over())
    winding_down = asyncio.create_task(stop.winding_down())
    winding_down.add_done_callback(lambda _: pool.close())
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


class _Pool:
    def __init__(
        self,
        plan: Plan,
        done: Collection[str],
        calls: Calls,
        work: Work,
        paces: Paces,
        stop: Stop,
    ) -> None:
        self._calls = calls
        self._work = work
        self._stop = stop
        suites = {suite.ordinal: suite.suite.concurrency for suite in plan.suites}
        self._places = asyncio.Semaphore(max(suites.values(), default=1))
        self._of_suite = {ordinal: asyncio.Semaphore(most) for ordinal, most in suites.items()}
        self._lanes = list(_lanes(plan, done, paces))
        self._starting: list[asyncio.Task[None]] = []
        self._all_done = True

    async def run(self) -> bool:
        """Return whether all that was to be done is done."""
        async with asyncio.TaskGroup() as group:
            self._starting = [group.create_task(self._start(lane, group)) for lane in self._lanes]
        return self._all_done and all(lane.head is None for lane in self._lanes)

    def close(self) -> None:
        """Wait for nothing more that could be started; what was started goes on."""
        for task in self._starting:
            task.cancel()

    def _is_closed(self) -> bool:
        return self._stop.is_winding_down

    async def _start(self, lane: _Lane, group: asyncio.TaskGroup) -> None:
        """Start the executions of a lane, one after another, as there is room."""
        while not self._is_closed() and (execution := lane.head) is not None:
            reserved = await self._admit(execution, lane.pace)
            if self._is_closed():
                return  # since this waited; nobody needs the place any more
            if reserved is not None and reserved.pace.is_closed:
                reserved.pace.ended(reserved.turn)
                self._give_back_place(execution)
                return  # who is called there is not waited for; other lanes go on
            group.create_task(self._do(execution, reserved))
            lane.advance()

    async def _admit(self, execution: Execution, pace: Pace | None) -> Reservation | None:
        """Wait for a place in the pool, and for a turn if a call will be made."""
        if pace is None or not self._calls(execution):
            await self._take_place(execution)
            return None
        while True:
            # A place is held only by who can use it: others wait for theirs meanwhile.
            await pace.room()
            await self._take_place(execution)
            if pace.has_room:
                return Reservation(pace, await pace.turn())
            self._give_back_place(execution)

    async def _take_place(self, execution: Execution) -> None:
        of_suite = self._of_suite[execution.suite.ordinal]
        await of_suite.acquire()
        try:
            await self._places.acquire()
        except asyncio.CancelledError:
            of_suite.release()
            raise

    def _give_back_place(self, execution: Execution) -> None:
        self._places.release()
        self._of_suite[execution.suite.ordinal].release()

    async def _do(self, execution: Execution, reserved: Reservation | None) -> None:
        try:
            if not await self._work(execution, reserved):
                self._all_done = False
        finally:
            self._give_back_place(execution)


class _Lane:
    """The executions that call one provider or agent, in order; `head` is started next."""

    def __init__(self, executions: Iterator[Execution], pace: Pace | None) -> None:
        self.pace = pace
        self._executions = executions
        self.head = next(executions, None)

    def advance(self) -> None:
        self.head = next(self._executions, None)


def _lanes(plan: Plan, done: Collection[str], paces: Paces) -> Iterator[_Lane]:
    callees: list[Callee | None] = []
    numbers: dict[tuple[int, str, bool], int] = {}

    def number(execution: Execution) -> int:
        key = (execution.suite.ordinal, execution.target, execution.case.command is None)
        if key not in numbers:
            called = callee(execution)
            if called not in callees:
                callees.append(called)
            numbers[key] = callees.index(called)
        return numbers[key]

    def waiting(lane: int) -> Iterator[Execution]:
        return (each for each in plan if number(each) == lane and each.id not in done)

    for execution in plan:
        number(execution)
    for lane, called in enumerate(callees):
        yield _Lane(waiting(lane), None if called is None else paces.get(called))
