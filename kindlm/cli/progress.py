"""Progress while a run goes on: a bar on a terminal, a line for each test elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Self, TypeAlias

from rich.console import Console
from rich.text import Text

from kindlm.engine.attempt import Finished
from kindlm.history.verdict import StatusCounts, test_status
from kindlm.outcome import Status
from kindlm.plan import Execution, Plan
from kindlm.reports.figures import money
from kindlm.reports.untrusted import one_line

_SIGNS = {
    Status.PASSED: ("✓", "green"),
    Status.FAILED: ("✗", "red"),
    Status.ERRORED: ("!", "magenta"),
    Status.SKIPPED: ("-", "dim"),
}
_MESSAGE_LIMIT = 160

_Test: TypeAlias = tuple[int, str, str]


class ProgressView:
    """Shows executions as they end; used as a context. This one shows nothing."""

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Take down what was drawn."""

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        """Show what there is to do, and which executions have ended already."""

    def finished(self, finished: Finished) -> None:
        """Show that an execution ended; called once its end is on disk."""


def make_progress(console: Console, *, shown: bool, redact: Callable[[str], str]) -> ProgressView:
    """Return the progress that fits where it is shown; `redact` takes secrets out of its lines."""
    if not shown:
        return ProgressView()
    view = _Bar(console, redact) if console.is_terminal else _Lines(console, redact)
    return _WhileSeen(view)


class _WhileSeen(ProgressView):
    """Stops showing when nothing can be shown any more: a run must not end for that."""

    def __init__(self, view: ProgressView) -> None:
        self._view = view
        self._seen = True

    def __enter__(self) -> Self:
        self._try(self._view.__enter__)
        return self

    def __exit__(self, *exception: object) -> None:
        self._try(lambda: self._view.__exit__(None, None, None))

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        self._try(lambda: self._view.planned(plan, ended))

    def finished(self, finished: Finished) -> None:
        self._try(lambda: self._view.finished(finished))

    def _try(self, show: Callable[[], object]) -> None:
        if not self._seen:
            return
        try:
            show()
        except OSError:
            self._seen = False


class _Lines(ProgressView):
    """One line for each test, once all its repeats have ended."""

    def __init__(self, console: Console, redact: Callable[[str], str]) -> None:
        self._console = console
        self._redact = redact
        self._open: dict[_Test, Counter[Status]] = {}
        self._ended_before: Counter[_Test] = Counter()

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        if ended:
            self._ended_before.update(_test(each) for each in plan if each.id in ended)

    def finished(self, finished: Finished) -> None:
        execution = finished.execution
        key = _test(execution)
        counts = self._open.setdefault(key, Counter())
        counts[finished.status] += 1
        if counts.total() + self._ended_before[key] == execution.repeats:
            del self._open[key]
            self._write(_test_line(execution, counts, self._redact))

    def _write(self, line: Text) -> None:
        if self._console.color_system is not None:
            self._console.print(line, soft_wrap=True)
            return
        # rich takes longer to find out that nothing has a style than a test takes to be checked.
        self._console.file.write(f"{line.plain}\n")
        self._console.file.flush()


class _Bar(ProgressView):
    """A bar with counts, money spent and time left; above it, failures as they happen."""

    def __init__(self, console: Console, redact: Callable[[str], str]) -> None:
        self._console = console
        self._redact = redact
        self._counts: Counter[Status] = Counter()
        self._spent_usd = 0.0
        from rich.progress import (  # only a terminal shows bars
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[spent]}", style="dim"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None, spent="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        self._progress.update(self._task, total=len(plan), completed=len(ended))

    def finished(self, finished: Finished) -> None:
        self._counts[finished.status] += 1
        self._spent_usd += finished.cost_usd
        if finished.status in (Status.FAILED, Status.ERRORED):
            self._progress.console.print(_failure(finished, self._redact), soft_wrap=True)
        shown = [
            f"[{color}]{self._counts[status]} {status.value}[/]"
            for status, (_, color) in _SIGNS.items()
            if self._counts[status]
        ]
        spent = money(self._spent_usd) if self._spent_usd else ""
        self._progress.update(self._task, advance=1, description=", ".join(shown), spent=spent)


def _test(execution: Execution) -> _Test:
    return execution.suite.ordinal, execution.case.name, execution.target


def _test_line(execution: Execution, counts: Counter[Status], redact: Callable[[str], str]) -> Text:
    counted = StatusCounts(**{status.value: number for status, number in counts.items()})
    sign, color = _SIGNS[test_status(counted, execution.case.pass_rate)]
    line = Text(f"{sign} ", style=color)
    line.append(_name(execution, redact), style="default")
    line.append(f"  {counts[Status.PASSED]}/{counts.total()} passed", style="dim")
    return line


def _failure(finished: Finished, redact: Callable[[str], str]) -> Text:
    execution = finished.execution
    sign, color = _SIGNS[finished.status]
    line = Text(f"{sign} ", style=color)
    line.append(_name(execution, redact), style="default")
    line.append(f" #{execution.repeat}: ", style="dim")
    wrong = finished.error or next(iter(finished.failed), None)
    reason = wrong.message if wrong else ""
    line.append(one_line(redact(reason))[:_MESSAGE_LIMIT], style="default")
    return line


def _name(execution: Execution, redact: Callable[[str], str]) -> str:
    return f"{one_line(redact(execution.case.name))} · {one_line(redact(execution.target))}"
