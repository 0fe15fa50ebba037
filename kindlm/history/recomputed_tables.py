"""Whether the tables of runs are what their recorded events give.

Events and texts are covered by hashes, and `kindlm verify` checks those. Reports read tables, which
are not: who can write the file can change a verdict there and leave every event as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from kindlm.projections import PROJECTIONS
from kindlm_store import (
    ProjectionError,
    changed_views,
    first_difference,
    open_reader,
    projection_errors,
    recomputed,
)

_JOURNALS = ("run.labelled", "run.sealed", "review.recorded", "baseline.set", "baseline.removed")
"""What is told of a run in other streams than its own."""

_SUITES = "suite IN (SELECT id FROM suites WHERE run = :run)"
_EXECUTIONS = "execution IN (SELECT id FROM executions WHERE run = :run)"

_ROWS_OF = {
    "runs": "id = :run",
    "run_labels": "run = :run",
    "seals": "run = :run",
    "suites": "run = :run",
    "suite_gates": _SUITES,
    "planned_tests": _SUITES,
    "executions": "run = :run",
    "retried_attempts": _EXECUTIONS,
    "provider_calls": _EXECUTIONS,
    "tool_calls": _EXECUTIONS,
    "assertions": _EXECUTIONS,
    "gates": "run = :run",
    "baselines": ":run IS NOT NULL",
    "reviews": f"run = :run OR {_EXECUTIONS}",
}
"""Which rows of each table are about a run, in SQL."""


def changed_tables(database: Path, runs: Iterable[str]) -> list[str]:
    """Return in sentences which tables are not what the events of runs give; [] if all are.

    The events of each run are folded anew, which takes as long as `kindlm rebuild` needs for them.

    Raises:
        OpenError: The file can not be read.
    """
    with closing(open_reader(database)) as stored:
        # What a run that goes on has recorded, and its tables, are of the same moment.
        stored.execute("BEGIN")
        if not_readable := projection_errors(stored, PROJECTIONS):
            return [f"table {name} {problem}" for name, problem in not_readable.items()]
        changed = [name for each in PROJECTIONS for name in changed_views(stored, each)]
        if changed:
            return [f"the view {name} is not the one that kindlm made" for name in changed]
        return [sentence for run in runs for sentence in _changed(stored, run)]


def _changed(stored: sqlite3.Connection, run: str) -> Iterator[str]:
    try:
        with recomputed(stored, PROJECTIONS, f"run/{run}", _JOURNALS) as computed:
            for projection in PROJECTIONS:
                for table in projection.tables:
                    where = _ROWS_OF[table]
                    place = first_difference(stored, computed, table, where, {"run": run})
                    if place is not None:
                        yield (
                            f"table {table} is not what the events of run {run} give,"
                            f" first at {place}"
                        )
    except (ProjectionError, sqlite3.Error) as error:
        yield f"the tables of run {run} can not be compared with its events: {error}"
