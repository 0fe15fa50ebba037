"""Controls the workers of pytest-xdist: each records a run, and the runs are one group.

A worker gets its tests one by one, and does not know what the others ran. So the runs stay open
until all workers have stopped. Then the controller ends them: as finished if every test ran, else
as interrupted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kindlm.errors import KindlmError
from kindlm.pytest_plugin.session_request import Asked, told_error
from kindlm.pytest_plugin.summary import tell_problems, tell_recorded, write_configured_reports
from kindlm.recording.history_file import new_run_id, open_log
from kindlm.recording.session_events import end_dealt
from kindlm_store import StoreError


class Controller:
    """Hooks of the process that controls workers. They do nothing if there are no workers."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._group = f"pytest-{new_run_id()}"
        self._started = 0
        self._down: list[dict[str, Any]] = []
        self._lost = 0
        self._problems: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to record, and which part of the group it is."""
        count = node.workerinput["workercount"]
        self._started += 1
        is_part = node.config.getoption("dist") not in ("each", "no")
        # One that replaces a worker that crashed is no part: the part of that one stays lacking.
        shares = is_part and self._started <= count
        node.workerinput["kindlm"] = {
            "root": str(self._asked.root),
            "database": str(self._asked.database),
            "group": self._group if shares else None,
            "shard": f"{self._started}/{count}" if shares else None,
            "dealt": is_part,
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take what a worker reports at its end; one that crashed reports nothing."""
        told = getattr(node, "workeroutput", {}).get("kindlm")
        if told is None:
            # Without an error it had no scenarios.
            self._lost += error is not None
            return
        told["group"] = node.workerinput["kindlm"]["group"]
        self._down.append(told)
        self._problems += told["problems"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the runs of the workers."""
        if not self._down:
            return
        lacking, unwritten = self._lacking(session), list[KindlmError]()
        try:
            with open_log(self._asked.database) as log:
                for told in self._down:
                    if told["open"]:
                        why = lacking or told["objection"]
                        asyncio.run(end_dealt(told["run"], log, told["duration_ms"], why))
            if any(told["group"] for told in self._down):
                unwritten = write_configured_reports(self._group, self._asked)
                self._problems += map(told_error, unwritten)
        except StoreError as error:
            self._problems.append(f"The runs of the workers could not be ended: {error}")
        failed = self._problems and any(told["failed"] for told in self._down)
        if (failed or unwritten) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the group, or the single runs, and the command that shows each."""
        tell_problems(terminalreporter, self._problems)
        if any(told["group"] for told in self._down):
            tell_recorded(terminalreporter, "group", self._group, self._asked)
        for told in self._down:
            if told["group"] is None:
                tell_recorded(terminalreporter, "run", told["run"], self._asked)

    def _lacking(self, session: pytest.Session) -> str | None:
        """Return why tests did not run to their end; None if all did."""
        if self._lost:
            return "a worker of pytest crashed, and what it was running never ended"
        chosen = max(told["chosen"] for told in self._down)
        if sum(told["ran"] for told in self._down) >= chosen:
            return None
        stopped = session.shouldfail or session.shouldstop
        why = f": {stopped}" if isinstance(stopped, str) else ""
        return f"pytest stopped before all tests had run{why}"
