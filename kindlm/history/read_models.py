"""Checks whether the tables of a history can be read, and whether they match its events.

Hashes cover events and content, but not the tables that reports read. Someone who can write the
file can change a verdict there. `changed_tables` folds the events again and compares.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from kindlm.errors import ErrorCode, KindlmError, not_there
from kindlm.projections import PROJECTIONS
from kindlm_store import ProjectionError, open_reader, projection_errors, schema_problems
from kindlm_store.projecting import problem_of, read_states

_COMPUTE = "Compute them: kindlm history rebuild"


def are_outdated(db: sqlite3.Connection) -> bool:
    """Return whether opening the history for writing would update its tables to this version."""
    problem = read_model_problem(db)
    outdated = (ErrorCode.HISTORY_VERSION_MISMATCH, _COMPUTE)
    return problem is not None and (problem.code, problem.hint) == outdated


def read_model_problem(db: sqlite3.Connection) -> KindlmError | None:
    """Return why the tables cannot be read, with a hint; None if they can be."""
    states = read_states(db)
    if not states and db.execute("SELECT 1 FROM streams LIMIT 1").fetchone() is None:
        # The process that made the file was stopped before it recorded anything.
        return not_there("No runs are recorded yet.", "Record a run: kindlm test")
    for projection in PROJECTIONS:
        name, state = projection.name, states[projection.name]
        problem = problem_of(projection, state)
        if problem is None:
            continue
        code, hint = ErrorCode.HISTORY_VERSION_MISMATCH, _COMPUTE
        if state.version == projection.version:
            code = ErrorCode.UNKNOWN_ERROR
        elif state.version > projection.version:
            hint = "Update kindlm."
        message = f"kindlm cannot read the tables of this history: {name!r} {problem}."
        return KindlmError(code, message, hint)
    return None


_JOURNALS = ("run.labelled", "run.sealed", "review.recorded", "baseline.set", "baseline.removed")
"""Events about runs in journals."""

_SUITES = "suite IN (SELECT id FROM suites WHERE run = :run)"
_EXECUTIONS = "execution IN (SELECT id FROM executions WHERE run = :run)"

_ROWS_OF = {
    "runs": "id = :run",
    # Reports count the executions of a suite, whatever run they claim.
    "executions": f"run = :run OR {_SUITES}",
    "planned_tests": _SUITES,
    "retried_attempts": _EXECUTIONS,
    "provider_calls": _EXECUTIONS,
    "tool_calls": _EXECUTIONS,
    "agent_spans": _EXECUTIONS,
    "assertions": _EXECUTIONS,
    "baselines": ":run IS NOT NULL",
    "reviews": f"run = :run OR {_EXECUTIONS}",
}
"""The rows of a table that are about a run, as a condition in SQL, if `run = :run` does not do."""


def changed_tables(database: Path, runs: Iterable[str]) -> list[str]:
    """Return a message for each table that differs from the events of runs, folded again.

    Raises `OpenError` if the file cannot be read.
    """
    with closing(open_reader(database)) as stored:
        # One snapshot, since a run may be going on.
        stored.execute("BEGIN")
        not_readable = projection_errors(stored, PROJECTIONS)
        changed = [f"table {name} {problem}" for name, problem in not_readable.items()]
        changed = changed or [
            f"the {problem.kind} {problem.name} is not the one that kindlm made"
            for problem in schema_problems(stored, PROJECTIONS)
            if problem.projection is not None and problem.kind != "index"
        ]
        return changed or [sentence for run in runs for sentence in _changed(stored, run)]


def _changed(stored: sqlite3.Connection, run: str) -> Iterator[str]:
    # Most commands only ask for `read_model_problem`.
    from kindlm_store.verification import recomputed, rows_of

    try:
        with recomputed(stored, PROJECTIONS, f"run/{run}", _JOURNALS) as computed:
            for projection in PROJECTIONS:
                for table in projection.tables:
                    asked = table, _ROWS_OF.get(table, "run = :run"), {"run": run}
                    if rows_of(stored, *asked) != rows_of(computed, *asked):
                        yield f"table {table} is not what the events of run {run} say"
    except (ProjectionError, sqlite3.Error) as error:
        yield f"the tables of run {run} cannot be compared with its events: {error}"
