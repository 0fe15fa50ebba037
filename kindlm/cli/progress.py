"""Watches a run: shows its progress, and with `--fail-fast`, stops it at the first failure.

On a terminal, that is one line that is redrawn; elsewhere, a few lines.

`14/24  ✓12 ✗2   $0.09   ~20 s   in flight 8, 12 s, waiting for openai (429, 6 s): refund on gpt-4o`

The end of an execution only updates counters; a thread makes the text four times a second.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.text import Text

from kindlm.cli.console import show, show_messages_on
from kindlm.config.diagnostics import Diagnostic
from kindlm.engine.attempt import Finished
from kindlm.engine.resources import LiveRun, OpenCall
from kindlm.engine.stop import Stop
from kindlm.errors import KindlmError
from kindlm.events.execution_events import ProviderRequested
from kindlm.outcome import Status
from kindlm.plan import Execution, Plan
from kindlm.reports.figures import duration, money
from kindlm.reports.terminal.page import MARKS
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

_FAIL_FAST = "stopped at the first failure (--fail-fast)"

_MESSAGE_LIMIT = 160
_NAME_LIMIT = 60
_REDRAWS_PER_SECOND = 4

_STEPS = 10
_SHORTEST_STEP_S = 2.0
_LONGEST_SILENCE_S = 30.0
_FAILING_TESTS = 10
"""Without a terminal, there is a line at each tenth of the run unless the last line is recent, one
after a long silence, and one for each of the first failing tests."""

_CALLEES = {"judge": "a judge", "simulate": "the simulated user", "drift": "an embedding"}
"""Who answers a call, by its purpose, unless it is the model under test."""


def kind_of_progress(console: Console, *, shown: bool) -> type[ProgressView]:
    """Return the class that shows the progress of a run on a console."""
    if not shown:
        return ProgressView
    return _Line if console.is_terminal else _Lines


@dataclass(eq=False)
class ProgressView:
    """Counts executions as they end. This class shows nothing; its subclasses do.

    `redact` removes secrets from lines. With `fail_fast`, the first failure stops the run. `steer`
    gets each run, or part of one, that is about to start.
    """

    console: Console
    redact: Callable[[str], str]
    stop: Stop
    fail_fast: bool = False
    steer: Callable[[LiveRun], None] = lambda _: None

    def __post_init__(self) -> None:
        self._counts: Counter[Status] = Counter()
        self._spent_usd = 0.0
        self._done = self._done_before = self._total = 0
        self._run: LiveRun | None = None
        self._workers: Callable[[], int] | None = None
        self._since = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """End, and remove the redrawn line."""

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        """Count the planned executions, and those that have ended already."""
        self._done = self._done_before = len(ended)
        left = sum(each.id not in ended for each in plan) if ended else len(plan)
        self._total = self._done + left

    def started(self, run: LiveRun) -> None:
        """Show what is in flight in a run."""
        self.steer(run)
        self._run, self._since = run, time.monotonic()
        self._done_before = self._done

    def shared(self, workers: Callable[[], int]) -> None:
        """Show the number of workers instead of what is in flight."""
        self._workers, self._since = workers, time.monotonic()
        self._done_before = self._done

    def finished(self, finished: Finished) -> None:
        """Count an execution whose end is on disk."""
        self._counts[finished.status] += 1
        self._spent_usd += finished.cost_usd
        self._done += 1
        if self.fail_fast and finished.status in (Status.FAILED, Status.ERRORED):
            self.stop.wind_down(_FAIL_FAST)

    def show_problem(self, problem: KindlmError | Diagnostic) -> None:
        """Show an error or a warning."""
        show([problem])

    def _line(self, width: int | None = None) -> Text:
        """Return the line, cut to `width` cells; the name of a test is last."""
        if not self._total:
            return Text("starting")
        line = Text(f"{self._done:,}/{self._total:,}", end="")
        for number, status in enumerate(s for s in Status if self._counts[s]):
            sign, color = MARKS[status]
            line.append(" " if number else "  ").append(f"{sign}{self._counts[status]:,}", color)
        if self._spent_usd:
            line.append(f"   {money(self._spent_usd)}", "dim")
        if self._done_before < self._done < self._total:
            each_s = (time.monotonic() - self._since) / (self._done - self._done_before)
            line.append(f"   ~{_rough(each_s * (self._total - self._done))}", "dim")
        if in_flight := self._in_flight():
            line.append(f"   {in_flight}")
        if width is not None:
            line.truncate(width, overflow="ellipsis")
        return line

    def _in_flight(self) -> str:
        """Return the number of executions in flight, with what the oldest one waits for."""
        run = self._run
        if self._workers is not None:
            return count(self._workers(), "worker")
        if run is None:
            return ""
        running = tuple(run.in_flight.values())
        if not running:
            # Nothing starts while all remaining providers demand a pause or have no quota left.
            paused = [pace for _, pace in tuple(run.paces.made) if pace.pause_s]
            pauses = ", ".join(_pause(pace.callee, pace.pause_s) for pace in paused)
            return f"waiting for {pauses}" if pauses else ""
        execution, now = running[0]
        lasts = f"{_rough(time.monotonic() - now.since)}{_waits_for(now)}"
        return f"in flight {len(running):,}, {lasts}: {_name(execution, self.redact)}"


class _Line(ProgressView):
    """The line on a terminal, below all messages. It disappears at the end of the run."""

    def __enter__(self) -> Self:
        from rich.live import Live  # only a terminal redraws

        self._live = Live(
            console=self.console,
            get_renderable=lambda: self._line(self.console.width - 1),
            refresh_per_second=_REDRAWS_PER_SECOND,
            transient=True,
        )
        self._before = show_messages_on(self.console)
        with suppress(OSError):  # a closed terminal must not end the run
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            with suppress(OSError):
                self._live.stop()
        finally:
            show_messages_on(self._before)


class _Lines(ProgressView):
    """Lines without a terminal: the progress, and the failing tests."""

    _step = _failing = 0

    def __enter__(self) -> Self:
        self._not_passed: Counter[tuple[int, str, str]] = Counter()
        self._last = time.monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._break_silence, name="kindlm-progress", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        super().planned(plan, ended)
        self._step = self._done * _STEPS // max(self._total, 1)

    def finished(self, finished: Finished) -> None:
        super().finished(finished)
        if finished.status in (Status.FAILED, Status.ERRORED) and self._fails_now(finished):
            self._failing += 1
            if self._failing <= _FAILING_TESTS:
                self._write(_failure(finished, self.redact))
            elif self._failing == _FAILING_TESTS + 1:
                self._write(Text("… more failing tests are only counted"))
        step = self._done * _STEPS // max(self._total, 1)
        # The last execution gets no line, since the report follows.
        if step > self._step and self._done < self._total:
            if time.monotonic() - self._last >= _SHORTEST_STEP_S:
                self._write(self._line())
            self._step = step

    def _fails_now(self, finished: Finished) -> bool:
        """Count a repeat that did not pass; return whether its test fails because of this one."""
        execution = finished.execution
        key = execution.suite.ordinal, execution.case.name, execution.target
        allowed = int(execution.repeats * (1 - execution.case.pass_rate) + 1e-9)
        before = self._not_passed[key]
        # A single errored repeat fails the test.
        self._not_passed[key] += 1 if finished.status is Status.FAILED else allowed + 1
        return before <= allowed < self._not_passed[key]

    def _break_silence(self) -> None:
        while not self._over.wait(_LONGEST_SILENCE_S - (time.monotonic() - self._last)):
            if time.monotonic() - self._last >= _LONGEST_SILENCE_S:
                self._write(self._line())

    def _write(self, line: Text) -> None:
        # A closed stream must not end the run.
        with self._lock, suppress(OSError, ValueError):
            self._last = time.monotonic()
            if self.console.color_system is not None:
                self.console.print(line, soft_wrap=True)
                return
            # Without colours, rich is not needed: it takes longer than a test.
            self.console.file.write(f"{line.plain}\n")
            self.console.file.flush()


def _failure(finished: Finished, redact: Callable[[str], str]) -> Text:
    sign, color = MARKS[finished.status]
    line = Text(f"{sign} ", style=color)
    line.append(f"{_name(finished.execution, redact)}: ", style="default")
    reason = finished.error.message if finished.error else ""
    if finished.failed and not reason:
        from kindlm.reports.causes import demand_of  # a run that passes does not need it

        reason = demand_of(finished.failed[0]).sentence
    return line.append(one_line(redact(reason), _MESSAGE_LIMIT), style="default")


def _waits_for(now: OpenCall) -> str:
    """Return whom an execution waits for, and how long until the next try."""
    request = now.request
    if request is None:
        return ""
    callee = "the agent"
    if isinstance(request, ProviderRequested):
        who = _CALLEES.get(request.purpose)
        callee = f"{who} ({request.provider})" if who else request.provider
    paused_s = max(now.retry_at - time.monotonic(), now.pace.pause_s if now.pace else 0.0)
    if paused_s <= 0:
        return f", waiting for {one_line(callee)}"
    return f", waiting for {_pause(callee, paused_s, now.http_status)}"


def _pause(callee: str, seconds: float, http_status: int | None = None) -> str:
    return f"{one_line(callee)} ({http_status or 'rate limit'}, {_rough(math.ceil(seconds))})"


def _rough(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds * 1000)


def _name(execution: Execution, redact: Callable[[str], str]) -> str:
    test = one_line(redact(execution.case.name), _NAME_LIMIT)
    return f"{test} on {one_line(redact(execution.target), _NAME_LIMIT)}"
