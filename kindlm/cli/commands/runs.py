"""`kindlm runs`: the recorded runs, newest first, or one test over all of them."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len

from kindlm.cli.console import note, refuse, wants_color
from kindlm.cli.history import open_history
from kindlm.cli.options import DATABASE, LIST_FORMAT, ListFormat, option, parse_since
from kindlm.dataclass import dataclass
from kindlm.history.run_view import RunView
from kindlm.history.runs import Run, RunFigures, RunFilter, read_figures, runs, status_of
from kindlm.reports.facts import git_state
from kindlm.reports.figures import local_time, money
from kindlm.reports.untrusted import json_document, one_line
from kindlm.spelling import fields_of

_COMMIT_LENGTH = 8

_COLORS = {"passed": "32", "failed": "31", "running": "36"}

_HEADER = ("RUN", "LABEL", "WHEN", "STATUS", "PASSED", "GATES", "COST", "GIT", "SUITES")

_MOST_EXECUTIONS = 5_000
"""Runs of so many executions together are judged by today's rules in about a tenth of a second."""


def runs_command(
    test: str | None = option("--test -t NAME", "Show this test over time."),
    limit: int = option("--limit N", "Maximum number of runs.", default=20, min=1, max=1_000_000),
    suite: str | None = option("--suite -s NAME", "Show only runs of this suite."),
    model: str | None = option("--model ID", "With --test: show only this target."),
    since: str | None = option(
        "--since AGE", "Show only runs since then: 30d, 12h, 2w, 2026-01-31."
    ),
    form: ListFormat = LIST_FORMAT,
    db: Path | None = DATABASE,
) -> None:
    """List recorded runs, or show one test over time.

    A + after a commit marks uncommitted changes.
    """
    if model is not None and test is None:
        refuse("--model goes with --test.", "Add --test NAME, or leave --model out.")
    start = None if since is None else parse_since(since)
    with open_history(db) as connection:
        if test is None:
            show_runs(connection, RunFilter(suite=suite, since=start, limit=limit), form)
        else:
            from kindlm.cli.commands.run_trends import show_trends

            show_trends(
                connection, test, suite=suite, target=model, limit=limit, since=start, form=form
            )


@dataclass(frozen=True, slots=True)
class _ListedRun:
    """A run, what it came to, and what became of it.

    `passed_now` is the verdict by today's rules, None where there is none, or it was not computed.
    """

    run: Run
    figures: RunFigures
    status: str
    passed_now: bool | None

    @property
    def status_now(self) -> str:
        """The status, with the verdict by today's rules where that is another one."""
        if self.passed_now in (None, self.run.passed):
            return self.status
        return f"{self.status} ({'passed' if self.passed_now else 'failed'} now)"


def show_runs(db: sqlite3.Connection, wanted: RunFilter, form: ListFormat) -> None:
    """Write the list of runs."""
    found = list(runs(db, wanted))
    figures = read_figures(db, found)
    verdicts = _verdicts_now(db, found, figures)
    listed = [
        _ListedRun(run, figures[run.id], status_of(db, run), verdicts.get(run.id)) for run in found
    ]
    if form == "json":
        values = [
            {
                **fields_of(run, "id label suites startedAt"),
                "status": each.status,
                "passed": run.passed,
                "passedNow": each.passed_now,
                "executions": {
                    "passed": each.figures.executions.passed,
                    "total": each.figures.executions.tested,
                },
                "gates": {"passed": each.figures.gates_passed, "total": each.figures.gates},
                "costUsd": each.figures.paid.total_usd,
                "git": git_state(run),
                "group": run.group_id,
                **fields_of(run, "shard mode sourceRun"),
            }
            for each in listed
            for run in (each.run,)
        ]
        sys.stdout.write(json_document(runs=values))
    elif listed:
        # One line each, columns aligned.
        is_colored = wants_color(sys.stdout)
        paints = [_COLORS.get(each.status, "33") for each in listed] if is_colored else []
        sys.stdout.write(table(_HEADER, map(_cells, listed), paints))
        if len(listed) > 1:
            note("Compare two runs: kindlm diff BEFORE AFTER")
    else:
        note("No run matches. All runs: kindlm runs")


def _verdicts_now(
    db: sqlite3.Connection, found: Sequence[Run], figures: Mapping[str, RunFigures]
) -> dict[str, bool]:
    """Return whether runs pass by today's rules, of those that finished, by their ids.

    Where the runs have more than 5,000 executions together, the last of them are left out.
    """
    verdicts: dict[str, bool] = {}
    executions = 0
    for run in found:
        executions += figures[run.id].executions.tested
        if executions > _MOST_EXECUTIONS and verdicts:
            break
        if run.passed is not None:
            view = RunView(db, run.id)
            view.info = run  # it is read already
            verdicts[run.id] = view.passed
    return verdicts


def _cells(each: _ListedRun) -> tuple[str, ...]:
    run, figures = each.run, each.figures
    commit = (run.git_commit or "")[:_COMMIT_LENGTH] + ("+" if run.git_dirty else "")
    git = f"{run.git_branch} {commit}" if run.git_branch else commit
    of_group = f" of {run.group_id}" if run.group_id else ""
    shard = f" · shard {run.shard}{of_group}" if run.shard else ""
    derived = "" if run.mode == "live" else f" · {run.mode}"
    derived += f" from {run.source_run}" if run.source_run else ""
    # As everywhere, gates that no suite wrote are shown where they fail.
    gates = figures.gates - figures.gates_tacit
    return (
        one_line(run.id),
        one_line(run.label or ""),
        local_time(run.started_at),
        each.status_now,
        f"{figures.executions.passed}/{figures.executions.tested}",
        f"{figures.gates_passed - figures.gates_tacit}/{gates}" if gates else "",
        "" if figures.paid.total_usd is None else money(figures.paid.total_usd),
        one_line(git),
        one_line(", ".join(run.suites) + shard + derived),
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]], paints: Sequence[str] = ()) -> str:
    """Return a table; `paints` are the colours of its column STATUS, none for no colours."""
    written = [header, *rows]
    widths = [max(map(cell_len, column)) for column in zip(*written, strict=True)]
    lines = [
        [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        for row in written
    ]
    for cells, paint in zip(lines[1:], paints, strict=False):
        at = header.index("STATUS")
        cells[at] = f"\x1b[{paint}m{cells[at]}\x1b[0m"
    return "".join("  ".join(cells).rstrip() + "\n" for cells in lines)
