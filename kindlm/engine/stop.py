"""Ends a run or an execution early: by a person, or at a limit of cost or time.

Its event loop goes on if code under test stops the clock, and ends the tasks that are left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kindlm.guard import guard
from kindlm.money import exceeds, plain_usd
from kindlm.transcript import Cost
from kindlm.values import plain_number
from kindlm.wording import shown

USED_UP = "the cost limit is exceeded"
"""Why a run winds down; `run_plan` adds the final amount once calls in flight have ended."""

SIGNAL_NAMES = ("Ctrl-C", "SIGTERM", "SIGHUP")
"""The recorded reasons of runs that a signal interrupted."""

_GRACE_S = 2.0
"""How long a task may take to close its resources after it was cut off."""


class Stop:
    """Asks a run to stop: nothing new starts, and executions in flight get a grace period.

    `reason` says why, for the record and the user. `aborted` means that a limit of the run (cost or
    time) is the reason, not a person. `winding_down` is set when nothing new may start, `requested`
    when executions in flight must end, too, and `at_once` when their grace period is over.
    `waiting` are the permits of executions that wait for something.
    """

    def __init__(self, grace_s: float = 5.0) -> None:
        self.reason: str | None = None
        self.aborted = False
        self._grace_s = grace_s
        self.winding_down = asyncio.Event()
        self.requested = asyncio.Event()
        self.at_once = asyncio.Event()
        self.waiting: set[Permit] = set()

    def request(self, reason: str) -> None:
        """Ask to stop, from the event loop's thread; the first reason stays."""
        self.wind_down(reason)
        self.requested.set()
        self.review()

    def review(self) -> None:
        """Cut off executions that wait in vain, after a limit was passed or a stop requested."""
        for permit in list(self.waiting):
            permit.review()

    def wind_down(self, reason: str) -> None:
        """Let nothing new start; executions in flight may complete."""
        self.reason = self.reason or reason
        self.winding_down.set()

    def abort(self, reason: str, *, cut_off: bool = False) -> None:
        """Wind down at a limit; with `cut_off`, executions in flight get their grace period."""
        self.leave_undone(reason)
        if cut_off:
            self.request(reason)
        else:
            self.wind_down(reason)

    def leave_undone(self, reason: str) -> None:
        """Note why some executions will not run; the others continue."""
        if self.reason is None:
            self.reason, self.aborted = reason, True

    async def grace_over(self) -> None:
        """Return when a stop was requested and the grace period has passed or was ended."""
        await self.requested.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.at_once.wait(), self._grace_s)


@dataclass(eq=False)
class Budget:
    """Counts the known costs of a run, judges included.

    Once a limit is passed, no further call may be made. Calls in flight still complete, so that the
    excess is at most their cost. A call of unknown cost passes the limit of the run. It does not
    pass that of a suite: there, the gate fails.

    `_limits` has the `costMaxUsd` of suites by ordinal, and `_most_usd` is the limit of the run.
    `_spent` is what suites have spent, by ordinal. `unpriced` is called once for each model whose
    calls a limit cannot count.
    """

    _stop: Stop
    _limits: Mapping[int, float]
    _most_usd: float | None = None
    _spent: dict[int, float] = field(default_factory=dict)
    unpriced: Callable[[str], None] = lambda _: None
    _reported: set[str] = field(default_factory=set)
    _has_called: bool = False
    _unknown: str | None = None  # the first model of unknown cost, if the run has a limit

    def __post_init__(self) -> None:
        self.total_usd = sum(self._spent.values())
        self.is_limited = self._most_usd is not None or bool(self._limits)

    def spend(self, ordinal: int, model: str, cost: Cost) -> None:
        """Count the cost of a call of a suite."""
        if cost.usd is None:
            self.report_unpriced(ordinal, model)
            if self._most_usd is not None:
                self._unknown = self._unknown or model
        else:
            self._spent[ordinal] = self._spent.get(ordinal, 0.0) + cost.usd
            self.total_usd += cost.usd
        if self.is_limited and self.is_spent(ordinal):
            self.review()

    def review(self) -> None:
        """End the run, or the executions of a suite, if a cost limit is passed."""
        if self.is_used_up:
            self._stop.abort(USED_UP)
        self._stop.review()

    def report_unpriced(self, ordinal: int, model: str) -> None:
        """Report a model without a price, once, if a limit applies to a suite."""
        is_limited = self._most_usd is not None or ordinal in self._limits
        if is_limited and model not in self._reported:
            self._reported.add(model)
            self.unpriced(model)

    def before_call(self) -> None:
        """Note that a call will be made that may cost something: a limit of 0 allows none."""
        if self._most_usd == 0 and not self._has_called:
            self._has_called = True
            self.review()

    @property
    def is_used_up(self) -> bool:
        """Whether the run passed its limit, may have passed it, or would with the next call."""
        most = self._most_usd
        is_over = self._has_called or self._unknown is not None
        return most is not None and (is_over or exceeds(self.total_usd, most))

    @property
    def why_used_up(self) -> str:
        """Why the run passed its limit, with the amount that is spent by now."""
        if not self._most_usd:
            return "--max-cost 0 allows no call"
        if self._unknown is not None:
            model = shown(self._unknown)
            return f"a call of unknown cost was made to {model}, so the limit cannot be kept"
        spent, most = plain_usd(self.total_usd), plain_number(self._most_usd)
        return f"${spent} spent, more than --max-cost allows (${most})"

    def limit_exceeded(self, ordinal: int) -> float | None:
        """Return the cost limit that a suite has passed, else None."""
        limit = self._limits.get(ordinal)
        is_over = limit is not None and exceeds(self._spent.get(ordinal, 0.0), limit)
        return limit if is_over else None

    def is_spent(self, ordinal: int) -> bool:
        """Return whether a suite, or the run, has passed its limit."""
        return self.is_used_up or self.limit_exceeded(ordinal) is not None


@dataclass(slots=True, eq=False)
class Permit:
    """Lets the task that creates it continue an execution of a suite, or cancels it.

    It cancels an execution that cannot succeed. After a cost limit is passed or its provider is
    closed, that happens at its next call. After a stop, it happens while the execution waits for a
    turn or a retry. Such an execution has not finished: its costs are recorded, and a resumed run
    runs it again. The same applies if a model call of its agent was refused (`has_refused`).
    """

    _stop: Stop
    _budget: Budget
    _ordinal: int
    has_refused: bool = False
    _task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)
    _waits: int = 0
    _is_cut_off: bool = False

    @property
    def is_over(self) -> bool:
        """Whether no more calls may be made: the execution is cut off, or the money is spent."""
        budget = self._budget
        return self._is_cut_off or (budget.is_limited and budget.is_spent(self._ordinal))

    async def to_call(self, *, is_answered: bool = True) -> None:
        """Return if one more call may be made; otherwise the execution is cut off.

        `is_answered` says whether the callee takes calls.
        """
        if self.is_over or not is_answered:
            self._cut_off()
            await asyncio.get_running_loop().create_future()  # until the cancellation arrives

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Allow the execution to be cut off while it waits in vain."""
        self._waits += 1
        self._stop.waiting.add(self)
        # Deferred, since many turns come at once and then no execution has waited.
        asyncio.get_running_loop().call_soon(self.review)
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._stop.waiting.discard(self)

    def review(self) -> None:
        """Cut the execution off if it waits in vain."""
        is_over = self._stop.requested.is_set() or self._budget.is_spent(self._ordinal)
        if self._waits and is_over:
            self._cut_off()

    def takes_back(self) -> bool:
        """Return whether this permit alone cancelled the task; if so, the task goes on."""
        return self._is_cut_off and self._task is not None and self._task.uncancel() == 0

    def _cut_off(self) -> None:
        if not self._is_cut_off and self._task is not None:
            self._is_cut_off = True
            self._task.cancel()


class Deadline:
    """Ends the task that enters its `timeout` when `seconds` of the task's own time are over.

    Time spent waiting for other executions does not count. Otherwise, a provider that allows few
    calls a minute would make the executions at the end of the queue fail.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock = clock
        self._ends = clock.monotonic() + seconds
        self.timeout = asyncio.timeout(seconds)
        self._pauses = 0
        self._left = seconds

    def leaves(self, seconds: float) -> bool:
        """Return whether more than `seconds` are left."""
        if self._pauses:
            return seconds < self._left
        return self._clock.monotonic() + seconds < self._ends

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the deadline until every pause has ended."""
        if self._pauses == 0:
            self._left = self._ends - self._clock.monotonic()
            self._reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._ends = self._clock.monotonic() + self._left
                self._reschedule(asyncio.get_running_loop().time() + self._left)

    def _reschedule(self, when: float | None) -> None:
        with contextlib.suppress(RuntimeError):  # it has expired, or the task has left it
            self.timeout.reschedule(when)


class Clock:
    """The clock of the machine; tests have others."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)


async def cut_off(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end; abandon those that take longer than the limit."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if not left:
        return
    for task in (await asyncio.wait(left, timeout=_GRACE_S))[1]:
        import ctypes  # for what hardly ever happens

        # Otherwise, the event loop would wait for it forever before it closes.
        asyncio._unregister_task(task)  # noqa: SLF001 - documented for such a use
        # Python closes a coroutine that is no longer referenced: it raises inside, and waits. One
        # that catches that and retries would never end, so its task is never released.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock no test or fixture can stop."""

    # Freezegun and the like replace the names of modules, and not the attributes of classes.
    time = staticmethod(time.monotonic)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, end the tasks that it left behind, and close the loop."""
        with asyncio.Runner(loop_factory=lambda: self) as runner:
            runner.run(_leaving_nothing(work))


async def _leaving_nothing(work: Coroutine[Any, Any, None]) -> None:
    # Test functions may start tasks and not wait for them, and block the loop at its end.
    with guard.beating():
        try:
            await work
        finally:
            this = asyncio.current_task()
            await cut_off(task for task in asyncio.all_tasks() if task is not this)
