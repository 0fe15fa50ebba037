"""The list of runs as a table and as JSON, and the points in time that a user can name."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kindlm.cli.console import note, wants_color
from kindlm.cli.options import ListFormat
from kindlm.cli.table import aligned
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.runs import RunRow, list_runs
from kindlm.reports.figures import money
from kindlm.reports.printed_json import printed_json
from kindlm.reports.untrusted import one_line
from kindlm_store import is_held

__all__ = ["ListedRun", "describe_runs", "parse_since", "runs_json", "runs_table", "show_runs"]

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COMMIT_LENGTH = 8
_COLORS = {"passed": "32", "failed": "31", "running": "36"}
_HEADER = ("RUN", "LABEL", "WHEN", "STATUS", "PASSED", "GATES", "COST", "GIT", "SUITES")
_DIRTY = "SELECT id FROM runs WHERE git_dirty AND id IN (SELECT value FROM json_each(?))"
_STATUS = _HEADER.index("STATUS")


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run and what became of it.

    `status` is passed, failed, interrupted, aborted, running, or killed: not ended, and nobody
    is at it any more. `passed_now` is the verdict by today's rules, None where there is none, or
    it was not computed. `dirty` tells that its files had changes that were not committed.
    """

    row: RunRow
    status: str
    passed_now: bool | None = None
    dirty: bool = False

    @property
    def differs(self) -> bool:
        """Whether today's rules give another verdict than the one that was told then."""
        return self.passed_now is not None and self.passed_now is not self.row.passed


def show_runs(
    db: sqlite3.Connection,
    database: Path,
    *,
    limit: int,
    suite: str | None,
    since: str | None,
    form: ListFormat,
) -> None:
    """Write the list of runs; `since` is UTC, ISO 8601."""
    from kindlm.history.verdicts_now import verdicts_now

    rows = list_runs(db, limit=limit, suite=suite, since=since)
    verdicts, dirty = verdicts_now(db, rows), _dirty(db, rows)
    runs = [
        replace(run, dirty=run.row.id in dirty) for run in describe_runs(rows, database, verdicts)
    ]
    if form is ListFormat.JSON:
        sys.stdout.write(runs_json(runs))
    elif runs:
        sys.stdout.write(runs_table(runs, color=wants_color(sys.stdout)))
        if len(runs) > 1:
            note("What changed between two of them: kindlm diff BEFORE AFTER")
    else:
        note("No run is like that. All runs: kindlm runs")


def describe_runs(
    rows: Iterable[RunRow], database: Path, verdicts: Mapping[str, bool]
) -> list[ListedRun]:
    """Return the runs with their status as of now; `verdicts` are those of today's rules."""
    return [ListedRun(row, _status(row, database), verdicts.get(row.id)) for row in rows]


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


def runs_json(runs: Sequence[ListedRun]) -> str:
    """Return the runs for programs."""
    listed = [
        {
            "id": run.row.id,
            "label": run.row.label,
            "suites": list(run.row.suites),
            "startedAt": run.row.started_at,
            "status": run.status,
            "passed": run.row.passed,
            "passedNow": run.passed_now,
            "executions": {"passed": run.row.passed_executions, "total": run.row.executions},
            "gates": {"passed": run.row.gates_passed, "total": run.row.gates},
            "costUsd": run.row.cost_usd,
            "git": {
                "branch": run.row.git_branch,
                "commit": run.row.git_commit,
                "dirty": run.dirty if run.row.git_commit else None,
            },
            "group": run.row.group_id,
            "shard": run.row.shard,
            "mode": run.row.mode,
            "sourceRun": run.row.source_run,
        }
        for run in runs
    ]
    return printed_json({"schemaVersion": 1, "runs": listed}, indent=2) + "\n"


def runs_table(runs: Sequence[ListedRun], *, color: bool) -> str:
    """Return the runs for people: one line each, columns aligned."""
    rows = aligned([_HEADER, *(_cells(run) for run in runs)])
    if color:
        for run, cells in zip(runs, rows[1:], strict=True):
            paint = _COLORS.get(run.status, "33")
            cells[_STATUS] = f"\x1b[{paint}m{cells[_STATUS]}\x1b[0m"
    return "".join("  ".join(row).rstrip() + "\n" for row in rows)


def _status(row: RunRow, database: Path) -> str:
    if row.passed is not None:
        return "passed" if row.passed else "failed"
    if row.ended is not None:
        return row.ended
    return "running" if is_held(database, f"run/{row.id}") else "killed"


def _dirty(db: sqlite3.Connection, rows: Sequence[RunRow]) -> set[str]:
    return {row[0] for row in db.execute(_DIRTY, (json.dumps([row.id for row in rows]),))}


def _now(run: ListedRun) -> str:
    return "passed" if run.passed_now else "failed"


def _cells(run: ListedRun) -> tuple[str, ...]:
    row = run.row
    when = datetime.fromisoformat(row.started_at).astimezone()
    commit = (row.git_commit or "")[:_COMMIT_LENGTH] + ("+" if run.dirty else "")
    git = f"{row.git_branch} {commit}" if row.git_branch else commit
    of_group = f" of {row.group_id}" if row.group_id else ""
    shard = f" · shard {row.shard}{of_group}" if row.shard else ""
    derived = "" if row.mode == "live" else f" · {row.mode}"
    derived += f" from {row.source_run}" if row.source_run else ""
    return (
        one_line(row.id),
        one_line(row.label or ""),
        when.strftime("%Y-%m-%d %H:%M"),
        f"{run.status} ({_now(run)} now)" if run.differs else run.status,
        f"{row.passed_executions}/{row.executions}",
        f"{row.gates_passed}/{row.gates}" if row.gates else "",
        "" if row.cost_usd is None else money(row.cost_usd),
        one_line(git),
        one_line(", ".join(row.suites) + shard + derived),
    )
