"""Controls the workers of pytest-xdist: each records a run, and the runs are one group.

A worker gets its tests one by one, and does not know which tests the others ran. So the runs stay
open until all workers have stopped. Then the controller ends them: as finished if every test ran,
else as interrupted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kindlm.errors import KindlmError
from kindlm.pytest_plugin.session_request import SessionOptions, error_text
from kindlm.pytest_plugin.summary import print_problems, print_recorded, write_configured_reports
from kindlm.recording.history_file import new_run_id, open_log
from kindlm.recording.session_events import end_dealt
from kindlm_store import StoreError


class Controller:
    """Hooks of the process that controls workers; they do nothing without workers."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._group = f"pytest-{new_run_id()}"
        self._started = 0
        self._reports: list[dict[str, Any]] = []
        self._crashed = 0
        self._problems: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send a worker the place of the history, and its part of the group."""
        count = node.workerinput["workercount"]
        self._started += 1
        is_part = node.config.getoption("dist") not in ("each", "no")
        # A worker that replaces a crashed one has no part: the crashed worker's part is incomplete.
        shares = is_part and self._started <= count
        node.workerinput["kindlm"] = {
            "root": str(self._options.root),
            "database": str(self._options.database),
            "group": self._group if shares else None,
            "shard": f"{self._started}/{count}" if shares else None,
            "dealt": is_part,
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Store the report of a worker that stopped; a crashed worker sends none."""
        report = getattr(node, "workeroutput", {}).get("kindlm")
        if report is None:
            # Without an error, the worker had no scenarios.
            self._crashed += error is not None
            return
        if (why := report.get("unrecorded")) is not None:
            # To pytest-xdist, a worker that ends before its tests is an internal error.
            raise pytest.UsageError(why)
        report["group"] = node.workerinput["kindlm"]["group"]
        self._reports.append(report)
        self._problems += report["problems"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the runs of the workers."""
        if not self._reports:
            return
        incomplete, unwritten = self._why_incomplete(session), list[KindlmError]()
        try:
            with open_log(self._options.database) as log:
                for report in self._reports:
                    if report["open"]:
                        why = incomplete or report["objection"]
                        asyncio.run(end_dealt(report["run"], log, report["duration_ms"], why))
            if any(report["group"] for report in self._reports):
                unwritten = write_configured_reports(self._group, self._options)
                self._problems += map(error_text, unwritten)
        except StoreError as error:
            self._problems.append(f"The runs of the workers could not be ended: {error}")
        failed = self._problems and any(report["failed"] for report in self._reports)
        if (failed or unwritten) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the group, or the single runs, and the command that shows each."""
        print_problems(terminalreporter, self._problems)
        if any(report["group"] for report in self._reports):
            print_recorded(terminalreporter, "group", self._group, self._options)
        for report in self._reports:
            if report["group"] is None:
                print_recorded(terminalreporter, "run", report["run"], self._options)

    def _why_incomplete(self, session: pytest.Session) -> str | None:
        if self._crashed:
            return "a worker of pytest crashed, and what it was running never ended"
        chosen = max(report["chosen"] for report in self._reports)
        if sum(report["ran"] for report in self._reports) >= chosen:
            return None
        stopped = session.shouldfail or session.shouldstop
        why = f": {stopped}" if isinstance(stopped, str) else ""
        return f"pytest stopped before all tests had run{why}"
