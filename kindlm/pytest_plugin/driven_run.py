"""A run that pytest drives: the engine runs in a thread, and pytest starts one test at a time.

The engine has its own event loop there. So signals, timeouts and event loops of pytest and its
plugins do not interfere with it.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import field
from typing import Any

import pytest

from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import dataclass, replace
from kindlm.engine import resources
from kindlm.engine.attempt import Finished
from kindlm.engine.stop import Stop, leaving_nothing
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.verdict import StatusCounts, test_status
from kindlm.outcome import Status
from kindlm.plan import Plan
from kindlm.ports import Stage
from kindlm.recording.history_file import open_log
from kindlm.recording.request import Driven, RunRequest
from kindlm.recording.secrets import remember_secrets
from kindlm.recording.session import run_session
from kindlm.recording.suite_secrets import suite_secrets
from kindlm.recording.unwritten import keep_unwritten
from kindlm.suite import Case, Script
from kindlm_store import EventLog, WriteFailedError


def interrupt_on_sigterm() -> Callable[[], None]:
    """Let SIGTERM end the session as Ctrl-C does; return a function that undoes that.

    Does nothing where SIGTERM has a handler already.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return lambda: None
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def undo() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return undo


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a test: its finished executions, or why some did not run."""

    finished: tuple[Finished, ...] = ()
    planned: int = 0
    error: KindlmError | None = None
    reason: str | None = None

    @property
    def complete(self) -> bool:
        """Whether all of them ended."""
        return 0 < self.planned == len(self.finished)

    @property
    def status(self) -> Status | None:
        """How the test ended; None if it did not."""
        if not self.complete:
            return None
        statuses = Counter(finished.status.value for finished in self.finished)
        return test_status(StatusCounts(**statuses), self.finished[0].execution.case.pass_rate)


@dataclass(slots=True, eq=False)
class _Asked:
    """A test that pytest asks for, and that it can cut short, for example by a timeout.

    `path` is its suite, `change` prepares the planned case. It stands before the script of that
    case; see `suite.Script`.
    """

    path: str
    name: str
    change: Callable[[Case], Case]
    heard: Callable[[Ran], None]
    done: Future[Ran] = field(default_factory=Future)
    _script: Script | None = None
    _running: set[asyncio.Task[Any]] = field(default_factory=set)
    _cut: KindlmError | None = None

    def changed(self, case: Case) -> Case:
        """Return the prepared case, which can be cut short."""
        case = self.change(case)
        self._script = case.script
        return case if case.script is None else replace(case, script=self)

    def cut(self, why: str) -> None:
        """End all its trials as errored. Called in the thread of their event loop."""
        self._cut = KindlmError(
            ErrorCode.ASSERTION_EVAL_ERROR,
            f"pytest ended the scenario: {why}",
            "What it had checked until then is shown.",
        )
        for task in self._running:
            task.cancel()

    async def run(self, stage: Stage) -> KindlmError | None:
        """Run the script, unless it is cut short already."""
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

    def ended(self, ran: Ran) -> None:
        """Report the result."""
        self.heard(ran)
        self.done.set_result(ran)


class _SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on while a fixture stops `time.monotonic`, as of freezegun."""

    _monotonic = staticmethod(time.monotonic)

    def time(self) -> float:
        """Return seconds since some fixed moment."""
        return self._monotonic()


class DrivenRun:
    """One recorded run. It runs its tests one at a time, when pytest asks for them."""

    def __init__(self, request: RunRequest, run: str, *, dealt: bool) -> None:
        self.run = run
        self.problems: list[KindlmError] = []
        self.failure: BaseException | None = None
        self.duration_ms = 0.0
        self.objection: str | None = None
        driven = Driven(self._parts, dealt, lambda: self.objection)
        self._request = replace(request, driven=driven)
        self._dealt = dealt
        self._stop = Stop()
        self._queue: asyncio.Queue[_Asked | None] = asyncio.Queue()
        self._running: list[Finished] = []
        self._asked: _Asked | None = None
        self._why_ended = ""
        self._lock = threading.Lock()
        self._is_over = False
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log: EventLog | None = None
        self._restore_sigterm: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._main, name="kindlm-run", daemon=True)

    @property
    def log(self) -> EventLog:
        """The history, while the run goes on."""
        assert self._log is not None
        return self._log

    @property
    def stays_open(self) -> bool:
        """Whether the controller of pytest-xdist has to end the run."""
        return self._dealt and self._stop.reason is None and self.failure is None

    def start(self) -> None:
        """Start the run; raise what keeps the history from being opened."""
        self._thread.start()
        self._ready.wait()
        if self._loop is None and self.failure is not None:
            raise self.failure
        self._restore_sigterm = interrupt_on_sigterm()

    def test(
        self,
        path: str,
        name: str,
        change: Callable[[Case], Case],
        heard: Callable[[Ran], None] = lambda _: None,
    ) -> Ran:
        """Run a test, in the form that `change` gives it, and wait until it has ended.

        An exception that is raised meanwhile, such as a timeout of pytest, first ends the test.
        `heard` is called with the result, in the thread of the run.
        """
        asked = _Asked(path, name, change, heard)
        with self._lock:
            if self._is_over:
                return self._unable()
            self._asked = asked
            self._call(self._queue.put_nowait, asked)
        try:
            return asked.done.result()
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise  # the session ends, and the run with it
        except BaseException as error:
            self._call(asked.cut, f"{type(error).__name__}: {error}")
            asked.done.result()
            raise

    def end(self, why: str, objection: str | None = None) -> None:
        """End the run and wait for its end; `why` is recorded if tests did not run.

        With an `objection` the run does not pass, whatever is recorded. Executions that still run,
        since pytest was interrupted, are cut off after a grace period.
        """
        self._why_ended, self.objection = why, objection
        if self._asked is not None and not self._asked.done.done():
            self._call(self._stop.request, why)
        self._call(self._queue.put_nowait, None)
        while self._thread.is_alive():
            try:
                self._thread.join()
            except KeyboardInterrupt:
                self._call(self._stop.at_once.set)
        self._restore_sigterm()

    # What the session reports while it runs; see `recording.Watcher`.

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        """Ignore the plan: pytest shows its tests itself."""

    def started(self, run: resources.LiveRun) -> None:
        """Ignore what is in flight: pytest runs one test at a time."""

    def finished(self, finished: Finished) -> None:
        """Keep an execution that ended."""
        self._running.append(finished)

    def tell(self, item: KindlmError | Diagnostic) -> None:
        """Keep a problem or warning for the end of the session."""
        self.problems.append(item.error if isinstance(item, Diagnostic) else item)

    def _main(self) -> None:
        started = time.monotonic()
        secret = suite_secrets(self._request.environ, self._request.suites)
        remember_secrets(secret)
        try:
            with open_log(self._request.database, secret) as log:
                self._log = log
                try:
                    with (
                        suppress(WriteFailedError),
                        asyncio.Runner(loop_factory=_SteadyLoop) as runner,
                    ):
                        runner.run(leaving_nothing(self._session(log)))
                finally:
                    if log.failure:
                        self.failure = log.failure
                        shown = str(self._request.database)
                        keep_unwritten(log, self.run, shown, self.problems.append)
        except BaseException as error:  # noqa: BLE001 - the other thread reports it
            self.failure = error
        finally:
            self.duration_ms = (time.monotonic() - started) * 1000
            with self._lock:
                self._is_over = True
                left = self._asked
            self._ready.set()
            if left is not None and not left.done.done():
                left.ended(self._unable())

    async def _session(self, log: EventLog) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        await run_session(self._request, self.run, log, self, self._stop)

    async def _parts(self, plan: Plan, lost: Mapping[str, KindlmError]) -> AsyncIterator[Plan]:
        """Yield the tests of a plan as they are asked for."""
        tests = _by_name(plan)
        while (asked := await self._queue.get()) is not None:
            part = tests.pop((asked.path, asked.name), None)
            if part is None:
                again = (
                    "it ran already in this session, and what came of it is recorded: kindlm show "
                    f"{self.run}; to repeat it, write @scenario(repeats=…)"
                )
                asked.ended(Ran(error=lost.get(asked.path), reason=again))
                continue
            self._running.clear()
            (suite,) = part.suites
            (entry,) = suite.cases
            changed = replace(entry, case=asked.changed(entry.case))
            yield Plan((replace(suite, cases=(changed,)),))
            asked.ended(Ran(tuple(self._running), len(part), reason=self._stop.reason))
        if tests and not self._dealt:
            self._stop.wind_down(self._why_ended)

    def _unable(self) -> Ran:
        why = self._stop.reason or "the run has ended"
        return Ran(reason=told_failure(self.failure) if self.failure else why)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the thread of the run, if its event loop still runs."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function, *arguments)


def told_failure(failure: BaseException) -> str:
    """Return why a run could not be recorded: the message of the exception, else its type."""
    return str(failure) or type(failure).__name__


def _by_name(plan: Plan) -> dict[tuple[str, str], Plan]:
    """Return a plan for each selected test; its executions keep their numbers."""
    parts: dict[tuple[str, str], Plan] = {}
    for suite in plan.suites:
        before = suite.before
        for case in suite.cases:
            if case.selected:
                own = replace(suite, cases=(case,), before=before)
                parts[suite.suite.path, case.case.name] = Plan((own,))
            before += case.executions
    return parts
