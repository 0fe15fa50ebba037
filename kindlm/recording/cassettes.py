"""Fills the cassettes of a suite: its tools get the answers that an earlier run recorded."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from kindlm.config import Diagnostic
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.cassettes import cassette_run, recorded_answers
from kindlm.plan import PlannedCase, PlannedSuite
from kindlm.suite import Case, SimulatedTool, Suite
from kindlm.wording import count, shown

__all__ = ["FilledSuite", "with_recorded_answers"]

_MAX_WARNINGS = 5


@dataclass(frozen=True, slots=True)
class FilledSuite:
    """A suite whose cassettes are filled; `warnings` say which of them hold nothing."""

    suite: Suite
    warnings: tuple[Diagnostic, ...]


def with_recorded_answers(planned: PlannedSuite, db: sqlite3.Connection) -> Result[FilledSuite]:
    """Return the suite with its cassettes filled, or the error of one that names no run.

    Those of tests that call no simulated tool this time, since they are skipped, not selected or
    run on agents only, do not matter.
    """
    cassettes = _Cassettes(planned.suite, db)
    cases: list[Case] = []
    for item in planned.cases:
        case = item.case
        if _calls_tools(item, planned.suite):
            filled = cassettes.fill(case)
            if isinstance(filled, Err):
                return filled
            case = filled.value
        cases.append(case)
    return Ok(FilledSuite(replace(planned.suite, cases=tuple(cases)), cassettes.warnings()))


def _calls_tools(planned: PlannedCase, suite: Suite) -> bool:
    case = planned.case
    runs = planned.selected and not case.skip and case.command is None
    return runs and any(target in suite.models for target in planned.targets)


class _Cassettes:
    """Fills the cassettes of one suite; each run that they name is looked up once."""

    def __init__(self, suite: Suite, db: sqlite3.Connection) -> None:
        self._suite = suite
        self._db = db
        self._runs: dict[str, Result[str]] = {}
        self._empty: list[Diagnostic] = []

    def fill(self, case: Case) -> Result[Case]:
        """Return the case with its cassettes filled, or the error of one that names no run."""
        tools: list[SimulatedTool] = []
        for tool in case.tools:
            if tool.cassette is None:
                tools.append(tool)
                continue
            run = self._run(tool.cassette.run)
            if isinstance(run, Err):
                return Err(_no_run(tool, case, run.error))
            tools.append(self._filled(tool, case, run.value))
        return Ok(replace(case, tools=tuple(tools)))

    def warnings(self) -> tuple[Diagnostic, ...]:
        """Return a warning for each cassette without answers, up to some."""
        more = len(self._empty) - _MAX_WARNINGS
        if more <= 0:
            return tuple(self._empty)
        rest = _warning(f"There are no answers for {count(more, 'more cassette')}", None)
        return (*self._empty[:_MAX_WARNINGS], rest)

    def _run(self, wanted: str) -> Result[str]:
        if wanted not in self._runs:
            suite = self._suite
            self._runs[wanted] = cassette_run(self._db, wanted, suite.project, suite.name)
        return self._runs[wanted]

    def _filled(self, tool: SimulatedTool, case: Case, run: str) -> SimulatedTool:
        recorded = recorded_answers(
            self._db,
            run,
            project=self._suite.project,
            suite=self._suite.name,
            test=case.name,
            tool=tool.name,
        )
        if not recorded:
            message = (
                f"The cassette of the tool {shown(tool.name)} answers nothing: the run {run} holds"
                f" no answer of it in the test {shown(case.name)}"
            )
            self._empty.append(_warning(message, case))
        return replace(tool, recorded=recorded)


def _warning(message: str, case: Case | None) -> Diagnostic:
    error = KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        message,
        "A cassette answers in the test of the same name only: record that test",
        where=case.where if case else None,
    )
    return Diagnostic(error, "warning", "", None)


def _no_run(tool: SimulatedTool, case: Case, error: KindlmError) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_FILE_REF_ERROR,
        f'The cassette of the tool {tool.name!r} in test "{case.name}" can not be read:'
        f" {error.message}",
        "Record a run first, or name one that is there: kindlm runs",
        where=case.where,
    )
