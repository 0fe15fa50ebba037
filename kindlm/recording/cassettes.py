"""Fills the cassettes of a suite: its tools get the answers that an earlier run recorded."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from kindlm.config import Diagnostic
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.json_text import read_json
from kindlm.history.run_names import find_run
from kindlm.plan import PlannedCase, PlannedSuite
from kindlm.suite import Case, RecordedAnswer, SimulatedTool, Suite
from kindlm.wording import count, shown

__all__ = ["FilledSuite", "with_recorded_answers"]

# A run that executed nothing of the suite, since it crashed before or was about other tests, stands
# for nothing. Its label may be that of an earlier run which does.
_RUN = """
SELECT l.run
  FROM run_list l JOIN runs r ON r.id = l.run
 WHERE (l.run = :run
        OR (:run = 'latest' AND r.ended = 'finished' AND r.mode = 'live')
        OR (:run <> 'latest' AND l.label = :run))
   AND EXISTS (
         SELECT 1 FROM suites s JOIN executions e ON e.suite = s.id
          WHERE s.run = l.run AND s.project = :project AND s.name = :suite
            AND e.status IS NOT 'skipped')
 ORDER BY l.run = :run DESC, l.started_at DESC, l.run
 LIMIT 1
"""

# Of one execution, the first that passed or else the first: other repeats may have gone another
# way, and their answers do not belong into one conversation. What a call got that no answer was
# meant for is no answer of the tool.
_ANSWERS = """
SELECT a.body AS arguments, r.body AS response
  FROM tool_calls t
  LEFT JOIN contents a ON a.ref = t.arguments_ref
  LEFT JOIN contents r ON r.ref = t.response_ref
 WHERE t.tool = :tool AND (t.execution, t.attempt) = (
         SELECT e.source, e.source_attempt
           FROM executions e
           JOIN suites s ON s.id = e.suite
           JOIN tool_calls c ON c.execution = e.source AND c.attempt = e.source_attempt
          WHERE s.run = :run AND s.project = :project AND s.name = :suite
            AND e.test = :test AND c.tool = :tool
          ORDER BY e.status IS NOT 'passed', e.number
          LIMIT 1)
   AND NOT EXISTS (
         SELECT 1 FROM json_each(coalesce(t.problems, '[]')) p
          WHERE json_extract(p.value, '$.kind') = 'unmatched')
 ORDER BY t.position
"""


def _run_of(db: sqlite3.Connection, wanted: str, project: str, suite: str) -> Result[str]:
    """Return the run that a cassette names: one that has executed tests of the suite.

    `latest` is the newest of them that has finished; of several with one label it is the newest.
    """
    named = {"run": wanted, "project": project, "suite": suite}
    found = db.execute(_RUN, named).fetchone()
    if found is None and wanted != "latest":
        beginning = find_run(db, wanted)
        if isinstance(beginning, Err):
            return beginning
        found = db.execute(_RUN, {**named, "run": beginning.value}).fetchone()
    return Err(_executed_nothing(wanted, suite)) if found is None else Ok(found[0])


def _answers_of(
    db: sqlite3.Connection, run: str, *, project: str, suite: str, test: str, tool: str
) -> tuple[RecordedAnswer, ...]:
    """Return what a tool was called with and answered in a test of a run, in order.

    Calls whose arguments were no JSON object, calls that no answer was meant for, and answers that
    were purged are left out.
    """
    names = {"run": run, "project": project, "suite": suite, "test": test, "tool": tool}
    answers: list[RecordedAnswer] = []
    for arguments, response in db.execute(_ANSWERS, names):
        parsed = read_json(arguments)
        if isinstance(parsed, dict) and response is not None:
            answers.append(RecordedAnswer(parsed, read_json(response)))
    return tuple(answers)


def _executed_nothing(wanted: str, suite: str) -> KindlmError:
    which = "No finished run" if wanted == "latest" else f"No run {wanted!r}"
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"{which} has executed tests of the suite {suite!r}.",
        "List the recorded runs: kindlm runs",
    )


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
            self._runs[wanted] = _run_of(self._db, wanted, suite.project, suite.name)
        return self._runs[wanted]

    def _filled(self, tool: SimulatedTool, case: Case, run: str) -> SimulatedTool:
        recorded = _answers_of(
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
