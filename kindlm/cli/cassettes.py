"""Fills the cassettes of a suite: its tools get the answers that an earlier run recorded."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.cassettes import cassette_run, recorded_answers
from kindlm.suite import Case, SimulatedTool, Suite

__all__ = ["with_recorded_answers"]


def with_recorded_answers(suite: Suite, db: sqlite3.Connection) -> Result[Suite]:
    """Return the suite with its cassettes filled, or the error of one that names no run."""
    cases: list[Case] = []
    for case in suite.cases:
        tools: list[SimulatedTool] = []
        for tool in case.tools:
            filled = _filled(tool, suite, case, db)
            if isinstance(filled, Err):
                return filled
            tools.append(filled.value)
        cases.append(replace(case, tools=tuple(tools)) if tools else case)
    return Ok(replace(suite, cases=tuple(cases)))


def _filled(
    tool: SimulatedTool, suite: Suite, case: Case, db: sqlite3.Connection
) -> Result[SimulatedTool]:
    if tool.cassette is None:
        return Ok(tool)
    run = cassette_run(db, tool.cassette.run, suite.name)
    if isinstance(run, Err):
        return Err(_no_run(tool, case, run.error))
    recorded = recorded_answers(db, run.value, suite.name, case.name, tool.name)
    return Ok(replace(tool, recorded=recorded))


def _no_run(tool: SimulatedTool, case: Case, error: KindlmError) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_FILE_REF_ERROR,
        f'The cassette of the tool {tool.name!r} in test "{case.name}" can not be read:'
        f" {error.message}",
        "Record a run first, or name one that is there: kindlm runs",
        where=case.where,
    )
