"""`kindlm tail`: follow a run, or the shards of one, from another terminal."""

from __future__ import annotations

import json
import shlex
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from kindlm.cli.console import note, or_fail
from kindlm.cli.history import commit_named, open_history, report_options
from kindlm.cli.options import DATABASE, RUN_OR_GROUP
from kindlm.history.groups import Group, find_group, shards_of
from kindlm.history.masking import as_shown
from kindlm.history.rows import ExecutionView
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.facts import verdict_of
from kindlm.reports.figures import duration, money
from kindlm.reports.terminal.page import Page, Part, mark
from kindlm.reports.untrusted import one_line

_LOOK_EVERY_S = 0.25

_SILENT_S = 150.0
"""After so long without an event, and without a local process, a group has ended. A worker that is
silent for a minute is replaced."""

_MESSAGE_LIMIT = 160

_SINCE = """
SELECT version, type, subject, data FROM event_log
 WHERE stream = 'run/' || :run AND version > :version
   AND type IN ('run.started', 'run.resumed', 'run.extended', 'execution.finished',
                'provider.failed', 'agent.failed', 'run.finished', 'run.interrupted',
                'run.aborted')
 ORDER BY version
"""


def tail_command(run: str = RUN_OR_GROUP, db: Path | None = DATABASE) -> None:
    """Follow a run or a group of shards from another terminal.

    Exits with its verdict when it ends.
    """
    options = report_options(db, verbose=False)
    waiting = threading.Event()
    with open_history(db) as reader:
        side = or_fail(find_run_or_group(reader, run, commit_named))
        page = Page(sys.stdout, options)
        followed = _Run(reader, side, page) if isinstance(side, str) else _Group(reader, side, page)
        while True:
            is_running = followed.write_news()
            sys.stdout.flush()
            if not is_running:
                break
            waiting.wait(_LOOK_EVERY_S)
        view = followed.view
        verdict = verdict_of(view)
        color = "bold green" if verdict.passed else "bold red"
        reasons = ", ".join(one_line(reason) for reason in verdict.reasons)
        page.line((verdict.word, color), f": {reasons}", hang=2)
        note(f"The whole run: kindlm show {shlex.quote(view.id)}")
        if not view.passed:
            raise typer.Exit(1)


@dataclass(slots=True)
class _Group:
    """Follows the shards of a group, including those that start later.

    Of shards on other machines, only pushed events are visible here. So a group has ended if all
    its shards have, or after a long silence.
    """

    db: sqlite3.Connection
    group: Group
    page: Page
    shards: dict[str, _Run] = field(default_factory=dict)
    counting: list[_Run] = field(default_factory=list)
    last_news: float = field(default_factory=time.monotonic)

    @property
    def view(self) -> RunView:
        """The current state of the group."""
        return RunView(self.db, self.group)

    def write_news(self) -> bool:
        """Write what happened since the last call; return whether the group is still running."""
        name = self.group.name
        self.group = or_fail(find_group(self.db, name, shards_of(self.db, name)))
        shards = self.group.shards
        is_running = any(shard.state == "running" for shard in shards)
        known = {run: each.version for run, each in self.shards.items()}
        self.counting.clear()
        for shard in shards:
            part = f"shard {shard.index}/{self.group.count}"
            fresh = _Run(self.db, shard.run, self.page, part, self.counting)
            self.counting.append(self.shards.setdefault(shard.run, fresh))
        for each in self.counting:
            each.write_news()
        if is_running or known != {run: each.version for run, each in self.shards.items()}:
            self.last_news = time.monotonic()
        if not self.group.missing and all(each.over for each in self.counting):
            return False
        return time.monotonic() < self.last_news + _SILENT_S


@dataclass(slots=True)
class _Run:
    """Follows a run; `version` is the position up to which its stream was read.

    `part` is the name of a shard, and `others` are all shards of its group, including itself.
    """

    db: sqlite3.Connection
    run: str
    page: Page
    part: str | None = None
    others: Sequence[_Run] = ()
    version: int = 0
    planned: int = 0
    ended: set[str] = field(default_factory=set)
    over: bool = False

    @property
    def view(self) -> RunView:
        """The current state of the run."""
        return RunView(self.db, self.run)

    def write_news(self) -> bool:
        """Write what happened since the last call; return whether the run is still running."""
        view = self.view
        # Before the events are read, so that none of a process that ends now is missed.
        is_running = view.status == "running"
        for row in self.db.execute(_SINCE, {"run": self.run, "version": self.version}):
            self.version = row["version"]
            number = str(row["subject"]).partition(".")[0]
            data: dict[str, Any] = json.loads(row["data"])
            self.over = False
            match row["type"]:
                case "run.started" | "run.resumed" | "run.extended":
                    self.planned = data["planned"]
                case "execution.finished":
                    if data.get("retried"):
                        continue  # the execution is still running
                    self.ended.add(number)
                    if found := view.execution(number):
                        self._write_ended(view, found)
                case "provider.failed" | "agent.failed":
                    if data.get("retry_in_ms") is None:
                        continue
                    found = view.execution(number)
                    name = "" if found is None else f"{_name(found)}: "
                    wait = duration(data["retry_in_ms"])
                    why = f"{name}{data.get('error_code')}, tried again after {wait}"
                    self.page.line(("↻ ", "yellow"), why, hang=2)
                case _:
                    self.over = True
        return is_running and not self.over

    def _write_ended(self, view: RunView, execution: ExecutionView) -> None:
        status = execution.status or Status.SKIPPED
        runs = self.others or (self,)
        facts = [f"{sum(len(run.ended) for run in runs)}/{sum(run.planned for run in runs)}"]
        if execution.answers and execution.latency_ms is not None:
            facts.append(duration(execution.latency_ms))
        if execution.cost_usd:
            facts.append(money(execution.cost_usd))
        if self.part is not None:
            facts.append(self.part)
        parts: list[Part] = [mark(status), f" {_name(execution)}"]
        if status in (Status.FAILED, Status.ERRORED):
            parts.append(f": {why_not_passed(view, execution)}")
        self.page.line(*parts, ("  " + ", ".join(facts), "dim"), hang=2)


def _name(execution: ExecutionView) -> str:
    return f"{one_line(execution.test)} · {one_line(execution.target)} #{execution.repeat}"


def why_not_passed(view: RunView, execution: ExecutionView) -> str:
    """Return why an execution did not pass: its error, or the first failed check."""
    last = as_shown(view.attempts(execution))[0][-1]
    wrong = (check.message for check in last.assertions if check.is_wrong and check.message)
    return one_line(last.execution.error or next(wrong, ""), _MESSAGE_LIMIT)
