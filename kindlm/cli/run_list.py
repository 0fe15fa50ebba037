"""The list of runs as a table and as JSON, and the points in time that a user can name."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kindlm.cli.console import note, wants_color
from kindlm.cli.options import ListFormat
from kindlm.cli.table import aligned
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.runs import Run, RunFigures, RunFilter, read_figures, runs, status_of
from kindlm.reports.figures import money
from kindlm.reports.untrusted import one_line, printed_json

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COMMIT_LENGTH = 8
_COLORS = {"passed": "32", "failed": "31", "running": "36"}
_HEADER = ("RUN", "LABEL", "WHEN", "STATUS", "PASSED", "GATES", "COST", "GIT", "SUITES")
_STATUS = _HEADER.index("STATUS")

_MOST_EXECUTIONS = 20_000
"""Runs of so many executions together are judged by today's rules in about half a second."""


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
    if form is ListFormat.JSON:
        sys.stdout.write(_as_json(listed))
    elif listed:
        sys.stdout.write(_as_table(listed, color=wants_color(sys.stdout)))
        if len(listed) > 1:
            note("What changed between two of them: kindlm diff BEFORE AFTER")
    else:
        note("No run is like that. All runs: kindlm runs")


def _verdicts_now(
    db: sqlite3.Connection, found: Sequence[Run], figures: Mapping[str, RunFigures]
) -> dict[str, bool]:
    """Return whether runs pass by today's rules, of those that finished, by their ids.

    Where the runs have more than 20,000 executions together, the last of them are left out.
    """
    from kindlm.history.run_view import RunView

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


def parse_since(text: str, now: datetime) -> Result[str]:
    """Return the point in time that `--since` means, in UTC as events have it.

    An age (`30d`, `12h`, `2w`, `90m`) counts back from `now`; a date or time without a zone is
    local.
    """
    age = _AGE.fullmatch(text)
    try:
        if age:
            moment = now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        else:
            moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return Err(
            KindlmError(
                ErrorCode.CONFIG_VALIDATION_ERROR,
                f"--since {text!r} is no point in time.",
                "Write an age or a date: --since 30d, --since 12h, --since 2026-01-31",
            )
        )
    return Ok(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


def _as_json(listed: Sequence[_ListedRun]) -> str:
    """Return the runs for programs."""
    values = [
        {
            "id": run.id,
            "label": run.label,
            "suites": list(run.suites),
            "startedAt": run.started_at,
            "status": each.status,
            "passed": run.passed,
            "passedNow": each.passed_now,
            "executions": {
                "passed": each.figures.executions.passed,
                "total": each.figures.executions.tested,
            },
            "gates": {"passed": each.figures.gates_passed, "total": each.figures.gates},
            "costUsd": each.figures.paid.total_usd,
            "git": {
                "branch": run.git_branch,
                "commit": run.git_commit,
                "dirty": bool(run.git_dirty) if run.git_commit else None,
            },
            "group": run.group_id,
            "shard": run.shard,
            "mode": run.mode,
            "sourceRun": run.source_run,
        }
        for each in listed
        for run in (each.run,)
    ]
    return printed_json({"schemaVersion": 1, "runs": values}, indent=2) + "\n"


def _as_table(listed: Sequence[_ListedRun], *, color: bool) -> str:
    """Return the runs for people: one line each, columns aligned."""
    rows = aligned([_HEADER, *map(_cells, listed)])
    if color:
        for each, cells in zip(listed, rows[1:], strict=True):
            paint = _COLORS.get(each.status, "33")
            cells[_STATUS] = f"\x1b[{paint}m{cells[_STATUS]}\x1b[0m"
    return "".join("  ".join(row).rstrip() + "\n" for row in rows)


def _cells(each: _ListedRun) -> tuple[str, ...]:
    run, figures = each.run, each.figures
    when = datetime.fromisoformat(run.started_at).astimezone()
    commit = (run.git_commit or "")[:_COMMIT_LENGTH] + ("+" if run.git_dirty else "")
    git = f"{run.git_branch} {commit}" if run.git_branch else commit
    of_group = f" of {run.group_id}" if run.group_id else ""
    shard = f" · shard {run.shard}{of_group}" if run.shard else ""
    derived = "" if run.mode == "live" else f" · {run.mode}"
    derived += f" from {run.source_run}" if run.source_run else ""
    return (
        one_line(run.id),
        one_line(run.label or ""),
        when.strftime("%Y-%m-%d %H:%M"),
        each.status_now,
        f"{figures.executions.passed}/{figures.executions.tested}",
        f"{figures.gates_passed}/{figures.gates}" if figures.gates else "",
        "" if figures.paid.total_usd is None else money(figures.paid.total_usd),
        one_line(git),
        one_line(", ".join(run.suites) + shard + derived),
    )
