"""`kindlm tail`: a run followed from another terminal."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import typer

from kindlm.cli.console import note
from kindlm.cli.history import named_run, open_history, report_options
from kindlm.cli.options import DatabaseOption, RunArgument, VerboseOption
from kindlm.history.masking import mask_of
from kindlm.history.rows import AttemptView, ExecutionView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports.facts import verdict_of
from kindlm.reports.figures import duration, money
from kindlm.reports.terminal.page import Page, Part, mark
from kindlm.reports.untrusted import one_line

_LOOK_EVERY_S = 0.25

_MESSAGE_LIMIT = 160

_SINCE = """
SELECT version, type, subject, data FROM event_log
 WHERE stream = 'run/' || :run AND version > :version
   AND type IN ('run.started', 'run.resumed', 'run.extended', 'execution.finished',
                'provider.failed', 'agent.failed', 'run.finished', 'run.interrupted',
                'run.aborted')
 ORDER BY version
"""


def tail_command(
    run: RunArgument = "latest", db: DatabaseOption = None, verbose: VerboseOption = False
) -> None:
    """Follow a run from another terminal. Exits with its verdict when it ends."""
    del verbose
    options = report_options(db, verbose=False)
    waiting = threading.Event()
    with open_history(db) as reader:
        tail = _Tail(reader, named_run(reader, run), Page(sys.stdout, options))
        while True:
            # Asked before looking: what a process wrote before it ended is seen then.
            alive = tail.view.status == "running"
            tail.tell_news()
            sys.stdout.flush()
            if tail.over or not alive:
                break
            waiting.wait(_LOOK_EVERY_S)
        if not tail.tell_end():
            raise typer.Exit(1)


@dataclass(slots=True)
class _Tail:
    """How far somebody has followed a run; `version` is where that is in the run's stream."""

    db: sqlite3.Connection
    run: str
    page: Page
    version: int = 0
    planned: int = 0
    ended: set[str] = field(default_factory=set)
    over: bool = False

    @property
    def view(self) -> RunView:
        """The run as it stands now."""
        return RunView(self.db, self.run)

    def tell_news(self) -> None:
        """Write what happened since the last time."""
        view = self.view
        for row in self.db.execute(_SINCE, {"run": self.run, "version": self.version}):
            self.version = row["version"]
            number = str(row["subject"]).partition(".")[0]
            self._tell(view, row["type"], number, json.loads(row["data"]))

    def tell_end(self) -> bool:
        """Write the verdict, or how the run stands; return whether it passed."""
        view = self.view
        verdict = verdict_of(view)
        color = "bold green" if verdict.passed else "bold red"
        reasons = ", ".join(one_line(reason) for reason in verdict.reasons)
        self.page.line((verdict.word, color), f": {reasons}", hang=2)
        note(f"All of it: kindlm show {self.run}")
        return view.passed

    def _tell(self, view: RunView, happened: str, number: str, data: dict[str, Any]) -> None:
        """Write what an event says; `number` is that of the execution it is about."""
        self.over = False
        match happened:
            case "run.started" | "run.resumed" | "run.extended":
                self.planned = data["planned"]
            case "execution.finished":
                if data.get("retried"):
                    return  # the execution goes on
                self.ended.add(number)
                if found := view.execution(number):
                    self._tell_ended(view, found)
            case "provider.failed" | "agent.failed":
                if data.get("retry_in_ms") is None:
                    return
                found = view.execution(number)
                name = "" if found is None else f"{_name(found)}: "
                wait = duration(data["retry_in_ms"])
                why = f"{name}{data.get('error_code')}, tried again after {wait}"
                self.page.line(("↻ ", "yellow"), why, hang=2)
            case _:
                self.over = True

    def _tell_ended(self, view: RunView, execution: ExecutionView) -> None:
        status = execution.status or Status.SKIPPED
        facts = [f"{len(self.ended)}/{self.planned}"]
        if execution.answers and execution.latency_ms is not None:
            facts.append(duration(execution.latency_ms))
        if execution.cost_usd:
            facts.append(money(execution.cost_usd))
        parts: list[Part] = [mark(status), f" {_name(execution)}"]
        if status in (Status.FAILED, Status.ERRORED):
            parts.append(f": {why_not_passed(view, execution)}")
        self.page.line(*parts, ("  " + ", ".join(facts), "dim"), hang=2)


def _name(execution: ExecutionView) -> str:
    return f"{one_line(execution.test)} · {one_line(execution.target)} #{execution.repeat}"


def why_not_passed(view: RunView, execution: ExecutionView) -> str:
    """Return why an execution did not pass: its error, or the first check that was not met."""
    checks = tuple(view.assertions(execution))
    mask = mask_of([AttemptView(execution, checks, tuple(view.tool_calls(execution)))])
    told = execution.error or next(
        (check.message for check in checks if check.is_wrong and check.message), ""
    )
    return one_line(mask.text(told), _MESSAGE_LIMIT)
