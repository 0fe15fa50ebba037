"""A run that pytest drives: the engine runs in a thread, and pytest starts one test at a time.

The engine has its own event loop in that thread, so that signals, timeouts and event loops of
pytest and its plugins do not interfere with it.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, suppress
from dataclasses import field
from typing import Any

import pytest

from kindlm.cli.ending import handling
from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import dataclass, replace
from kindlm.engine import resources
from kindlm.engine.attempt import Finished
from kindlm.engine.stop import SteadyLoop, Stop
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.verdict import StatusCounts, test_status
from kindlm.outcome import Status
from kindlm.plan import Plan, PlannedSuite
from kindlm.ports import Stage
from kindlm.recording.history_file import open_log
from kindlm.recording.request import Driven, RunRequest
from kindlm.recording.secrets import remember_secrets
from kindlm.recording.session import run_session
from kindlm.recording.suite_secrets import suite_secrets
from kindlm.recording.unwritten import keep_unwritten
from kindlm.suite import Case, Script
from kindlm_store import EventLog, WriteFailedError


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a test: its finished executions, or why some did not run.

    With `again`, pytest asked for it a second time: it did not run again.
    """

    finished: tuple[Finished, ...] = ()
    planned: int = 0
    error: KindlmError | None = None
    reason: str | None = None
    again: bool = False

    @property
    def complete(self) -> bool:
        """Whether all planned executions finished."""
        return 0 < self.planned == len(self.finished)

    @property
    def status(self) -> Status | None:
        """The status of the test; None if it is not complete."""
        if not self.complete:
            return None
        statuses = Counter(finished.status.value for finished in self.finished)
        return test_status(StatusCounts(**statuses), self.finished[0].execution.case.pass_rate)


@dataclass(slots=True, eq=False)
class _PendingTest:
    """A test that pytest runs now, and may cut off, for example by a timeout.

    `path` is the path of its suite, and `change` prepares the planned case. As a `suite.Script`, it
    wraps the script of that case.
    """

    path: str
    name: str
    change: Callable[[Case], Case]
    done: Future[Ran] = field(default_factory=Future)
    _script: Script | None = None
    _running: set[asyncio.Task[Any]] = field(default_factory=set)
    _cut: KindlmError | None = None

    def changed(self, case: Case) -> Case:
        """Return the prepared case, with a script that can be cut off."""
        case = self.change(case)
        self._script = case.script
        return case if case.script is None else replace(case, script=self)

    def cut(self, why: str) -> None:
        """End all its trials as errored; must be called in the thread of the run."""
        self._cut = KindlmError(
            ErrorCode.ASSERTION_EVAL_ERROR,
            f"pytest ended the scenario: {why}",
            "The report shows what it checked before that.",
        )
        for task in self._running:
            task.cancel()

    async def run(self, stage: Stage) -> KindlmError | None:
        """Run the script, unless it is already cut off."""
        if (cut := self._cut) is not None:
            return cut
        task = asyncio.current_task()
        assert task is not None
        assert self._script is not None
        self._running.add(task)
        try:
            error = await self._script.run(stage)
        except asyncio.CancelledError:
            if self._cut is None:
                raise
            return self._cut
        finally:
            self._running.discard(task)
        return self._cut or error


class DrivenRun:
    """One recorded run, which runs a test whenever pytest does; implements `recording.Watcher`.

    `log` is the history, until the run ends. `results` are those of the tests so far, by name.
    """

    log: EventLog

    def __init__(self, request: RunRequest, run: str, *, dealt: bool) -> None:
        self.run = run
        self.results: dict[str, Ran] = {}
        self.problems: list[KindlmError] = []
        self.failure: BaseException | None = None
        self.duration_ms = 0.0
        self.objection: str | None = None
        driven = Driven(self._parts, dealt, lambda: self.objection)
        self._request = replace(request, driven=driven)
        self._dealt = dealt
        self._stop = Stop()
        self._queue: asyncio.Queue[_PendingTest | None] = asyncio.Queue()
        self._running: list[Finished] = []
        self._current: _PendingTest | None = None
        self._why_ended = ""
        self._began: Future[asyncio.AbstractEventLoop] = Future()
        self._over: Future[None] = Future()
        self._handlers = ExitStack()
        self._thread = threading.Thread(target=self._main, name="kindlm-run", daemon=True)

    @property
    def stays_open(self) -> bool:
        """Whether the controller of pytest-xdist has to end the run."""
        return self._dealt and self._stop.reason is None and self.failure is None

    def start(self) -> None:
        """Start the run; raises if the history cannot be opened."""
        self._thread.start()
        self._began.result()
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # SIGTERM ends the session like Ctrl-C.
            handler = signal.default_int_handler
            self._handlers.enter_context(handling([signal.SIGTERM], handler))

    def test(self, path: str, name: str, change: Callable[[Case], Case]) -> Ran:
        """Run a test, changed by `change`, and wait until it has ended.

        An exception meanwhile, such as a timeout of pytest, first ends the test.
        """
        self._current = test = _PendingTest(path, name, change)
        self._call(self._queue.put_nowait, test)
        first: tuple[Future[Any], ...] = test.done, self._over
        try:
            wait(first, return_when=FIRST_COMPLETED)
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise  # the session ends, and the run with it
        except BaseException as error:
            self._call(test.cut, f"{type(error).__name__}: {error}")
            wait(first, return_when=FIRST_COMPLETED)
            raise
        if test.done.done():
            return test.done.result()
        why = self._stop.reason or "the run has ended"
        return Ran(reason=failure_text(self.failure) if self.failure else why)

    def end(self, why: str, objection: str | None = None) -> None:
        """End the run and wait for its end; `why` is recorded if some tests did not run.

        With an `objection`, the run does not pass. If pytest was interrupted, running executions
        are cut off after a grace period.
        """
        self._why_ended, self.objection = why, objection
        if self._current is not None and not self._current.done.done():
            self._call(self._stop.request, why)
        self._call(self._queue.put_nowait, None)
        while self._thread.is_alive():
            try:
                self._thread.join()
            except KeyboardInterrupt:
                self._call(self._stop.at_once.set)
        self._handlers.close()

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        """Ignore the plan: pytest shows its tests itself."""

    def started(self, run: resources.LiveRun) -> None:
        """Ignore running executions: pytest runs one test at a time."""

    def finished(self, finished: Finished) -> None:
        """Store a finished execution."""
        self._running.append(finished)

    def show_problem(self, problem: KindlmError | Diagnostic) -> None:
        """Store an error or warning for the end of the session."""
        self.problems.append(problem.error if isinstance(problem, Diagnostic) else problem)

    def _main(self) -> None:
        started = time.monotonic()
        secret = suite_secrets(self._request.environ, self._request.suites)
        remember_secrets(secret)
        try:
            with open_log(self._request.database, secret) as self.log:
                try:
                    with suppress(WriteFailedError):
                        SteadyLoop().run(self._session())
                finally:
                    if self.log.failure:
                        self.failure = self.log.failure
                        shown = str(self._request.database)
                        self.problems.append(keep_unwritten(self.log, self.run, shown))
        except BaseException as error:  # noqa: BLE001 - the other thread reports it
            self.failure = error
            if not self._began.done():
                self._began.set_exception(error)
        finally:
            self.duration_ms = (time.monotonic() - started) * 1000
            self._over.set_result(None)

    async def _session(self) -> None:
        self._began.set_result(asyncio.get_running_loop())
        await run_session(self._request, self.run, self.log, self, self._stop)

    async def _parts(self, plan: Plan, lost: Mapping[str, KindlmError]) -> AsyncIterator[Plan]:
        """Yield the tests of a plan in the order in which pytest runs them."""
        parts = dict[str, PlannedSuite]()
        for suite in plan.suites:
            before = suite.before  # executions keep their numbers
            for entry in suite.cases:
                if entry.selected:
                    parts[entry.case.name] = replace(suite, cases=(entry,), before=before)
                before += entry.executions
        while (test := await self._queue.get()) is not None:
            planned = parts.pop(test.name, None)
            if planned is None:
                earlier = self.results.get(test.name, Ran(error=lost.get(test.path)))
                self._end(test, replace(earlier, again=True))
                continue
            self._running.clear()
            (entry,) = planned.cases
            changed = replace(entry, case=test.changed(entry.case))
            part = Plan((replace(planned, cases=(changed,)),))
            yield part
            self._end(test, Ran(tuple(self._running), len(part), reason=self._stop.reason))
        if parts and not self._dealt:
            self._stop.wind_down(self._why_ended)

    def _end(self, test: _PendingTest, ran: Ran) -> None:
        self.results.setdefault(test.name, ran)
        test.done.set_result(ran)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the thread of the run, if its event loop is open."""
        with suppress(RuntimeError):
            self._began.result().call_soon_threadsafe(function, *arguments)


def failure_text(failure: BaseException) -> str:
    """Return why a run could not be recorded: the message of the exception, else its type."""
    return str(failure) or type(failure).__name__
