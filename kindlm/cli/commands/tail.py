"""`kindlm tail`: follow a run, or the shards of one, from another terminal."""

from __future__ import annotations

import json
import shlex
import sqlite3
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from kindlm.cli.console import note, or_fail
from kindlm.cli.history import commit_named, open_history, report_options
from kindlm.cli.options import DATABASE, RUN_OR_GROUP
from kindlm.history.groups import Group, find_group, shards_of
from kindlm.history.rows import ExecutionView
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.history.runs import Run
from kindlm.outcome import Status
from kindlm.reports.facts import verdict_of
from kindlm.reports.figures import duration, money
from kindlm.reports.terminal.execution_text import why_not_passed
from kindlm.reports.terminal.page import MARKS, Page, Part
from kindlm.reports.untrusted import one_line

_LOOK_EVERY_S = 0.25

_SILENT_S = 150.0
"""After so long without an event, and without a local process, a group has ended. A worker that is
silent for a minute is replaced."""

_SINCE = """
SELECT version, type, subject, data FROM event_log
 WHERE stream = 'run/' || :run AND version > :version
   AND type IN ('run.started', 'run.resumed', 'run.extended', 'execution.finished',
                'provider.failed', 'agent.failed')
 ORDER BY version
"""


def tail_command(run: str = RUN_OR_GROUP, db: Path | None = DATABASE) -> None:
    """Follow a run or a group of shards from another terminal.

    Exits with its verdict when it ends.
    """
    options = report_options(db)
    waiting = threading.Event()
    with open_history(db) as reader:
        side = or_fail(find_run_or_group(reader, run, commit_named))
        page = Page(sys.stdout, options)
        tail = _Tail(reader, side, page)
        while tail.write_news():
            sys.stdout.flush()
            waiting.wait(_LOOK_EVERY_S)
        view = RunView(reader, tail.side)
        verdict = verdict_of(view)
        color = "bold green" if verdict.good else "bold red"
        reasons = ", ".join(one_line(reason) for reason in verdict.reasons)
        page.line((verdict.word, color), f": {reasons}", hang=2)
        note(f"The whole run: kindlm show {shlex.quote(view.id)}")
        if not view.passed:
            raise typer.Exit(1)


@dataclass(slots=True)
class _Tail:
    """Follows a run, or the shards of a group, including those that start later.

    Of shards on other machines, only pushed events are visible here. So a group has ended if all
    its shards have, or after a long silence. `versions` say up to where the events of each run were
    read, and `ended` which executions of it have ended.
    """

    db: sqlite3.Connection
    side: str | Group
    page: Page
    versions: Counter[str] = field(default_factory=Counter)
    ended: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    runs: Sequence[Run] = ()
    last_news: float = field(default_factory=time.monotonic)

    def write_news(self) -> bool:
        """Write what happened since the last call; return whether the run is still running."""
        # Before the events are read, so that none of a run that ends now is missed.
        if isinstance(self.side, str):
            self.runs = [RunView(self.db, self.side).info]
        else:
            name, project = self.side.name, self.side.shards[0].project
            self.side = or_fail(find_group(self.db, name, shards_of(self.db, name, project)))
            self.runs = self.side.shards
        is_running = any(run.state == "running" for run in self.runs)
        has_news = [self._write_run(run) for run in self.runs]
        if isinstance(self.side, str):
            return is_running
        if is_running or any(has_news):
            self.last_news = time.monotonic()
        is_over = all(run.ended for run in self.runs) and not self.side.missing
        return not is_over and time.monotonic() < self.last_news + _SILENT_S

    def _write_run(self, run: Run) -> bool:
        """Write what happened in a run; return whether something did."""
        view, before = RunView(self.db, run.id), self.versions[run.id]
        for row in self.db.execute(_SINCE, {"run": run.id, "version": before}):
            self.versions[run.id] = row["version"]
            number = str(row["subject"]).partition(".")[0]
            data: dict[str, Any] = json.loads(row["data"])
            match row["type"]:
                case "execution.finished":
                    if data.get("retried"):
                        continue  # the execution is still running
                    self.ended[run.id].add(number)
                    if found := view.execution(number):
                        self._write_ended(view, found, run)
                case _ if data.get("retry_in_ms") is not None:
                    found = view.execution(number)
                    name = "" if found is None else f"{_name(found)}: "
                    wait = duration(data["retry_in_ms"])
                    why = f"{name}{data.get('error_code')}, tried again after {wait}"
                    self.page.line(("↻ ", "yellow"), why, hang=2)
        return self.versions[run.id] != before

    def _write_ended(self, view: RunView, execution: ExecutionView, run: Run) -> None:
        status = execution.status or Status.SKIPPED
        ended = sum(len(self.ended[each.id]) for each in self.runs)
        facts = [f"{ended}/{sum(each.planned for each in self.runs)}"]
        if execution.answers and execution.latency_ms is not None:
            facts.append(duration(execution.latency_ms))
        if execution.cost_usd:
            facts.append(money(execution.cost_usd))
        if not isinstance(self.side, str):
            facts.append(f"shard {run.shard}")
        parts: list[Part] = [MARKS[status], f" {_name(execution)}"]
        if status in (Status.FAILED, Status.ERRORED):
            parts.append(f": {why_not_passed(view, execution)}")
        self.page.line(*parts, ("  " + ", ".join(facts), "dim"), hang=2)


def _name(execution: ExecutionView) -> str:
    return f"{one_line(execution.test)} · {one_line(execution.target)} #{execution.repeat}"
