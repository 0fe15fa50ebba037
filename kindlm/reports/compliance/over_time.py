"""How a suite stands beside the run that was accepted, and what changed between its runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from kindlm.history.baselines import find_baseline
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.queries import among
from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView
from kindlm.projections.views import RUN_LABEL
from kindlm.reports.diff.text import headline_of
from kindlm.reports.verdict_text import suite_verdict_of

_MOST = 10

_FINISHED = """
  FROM suites s
  JOIN runs r ON r.id = s.run AND r.mode = 'live' AND r.ended = 'finished'
  LEFT JOIN run_labels l ON l.run = r.id
 WHERE s.project = :project AND s.name = :suite AND r.started_at <= :until
"""

# Which runs are listed is found first: only of them are the calls read. One more is, to tell what
# changed in the oldest of them.
_HISTORY = f"""
WITH listed AS MATERIALIZED (
  SELECT r.id, s.id AS suite, {RUN_LABEL} AS label, r.shard, r.group_id, r.started_at,
         r.git_commit, r.git_dirty, s.config_hash
  {_FINISHED}
   ORDER BY r.started_at DESC, r.id
   LIMIT {_MOST + 1}
)
SELECT listed.*,
       (SELECT group_concat(name, ', ') FROM (
          SELECT DISTINCT coalesce(c.reported_model, c.model) AS name
            FROM executions e JOIN provider_calls c ON c.execution = e.source
           WHERE e.suite = listed.suite AND c.purpose = 'test' AND c.status = 'responded'
           ORDER BY 1)) AS models
  FROM listed
 ORDER BY started_at DESC, id
"""  # noqa: S608 (constants of this module)

_COUNT = f"SELECT count(*) {_FINISHED}"

_BEGAN = "SELECT max(started_at) FROM runs WHERE id IN $ids"

_PARTS = {"config_hash": "configuration", "models": "models", "git_commit": "code"}


def read_baseline(
    view: RunView, suite: SuiteView, regression_threshold: float | None
) -> dict[str, Any] | None:
    """Return how the suite stands beside the accepted run, None where none is set.

    It is compared alone: whatever else the runs tested has no part in it.
    """
    project = suite.project or view.info.project
    found = find_baseline(view.db, project, suite.name)
    if found is None:
        return None
    facts = {"run": found.run, "label": found.label, "by": found.set_by, "at": found.set_at}
    if found.run in view.runs:
        return {**facts, "verdict": "this run is the baseline", "reasons": []}
    if not found.here:
        return {**facts, "verdict": "its run is not in this history", "reasons": []}
    asked = DiffOptions(regression_threshold=regression_threshold, suite=suite.name)
    headline = headline_of(compare_runs(view.db, found.run, view.group or view.id, asked))
    return {**facts, "verdict": headline.word, "reasons": list(headline.reasons)}


def read_history(view: RunView, suite: SuiteView) -> tuple[list[dict[str, Any]], int]:
    """Return the runs of the suite up to this one, the newest first, each with what changed.

    And how many older ones there are. Of a run that several suites are in, only this one counts.
    """
    wanted = {
        "project": suite.project or view.info.project,
        "suite": suite.name,
        # A group has shards that began after it did.
        "until": view.db.execute(*among(_BEGAN, view.runs)).fetchone()[0],
    }
    rows = [dict(row) for row in view.db.execute(_HISTORY, wanted)]
    total: int = view.db.execute(_COUNT, wanted).fetchone()[0]
    listed = [
        {**row, **_result(view.db, row), "first": older is None, "changed": _changes(older, row)}
        for row, older in zip_longest(rows[:_MOST], rows[1 : _MOST + 1])
    ]
    return listed, total - len(listed)


def _result(db: sqlite3.Connection, row: Mapping[str, Any]) -> dict[str, Any]:
    run = RunView(db, row["id"])
    verdict = suite_verdict_of(run, run.suite(row["suite"]))
    return {"passed": verdict.passed, "result": verdict.word}


def _changes(older: Mapping[str, Any] | None, newer: Mapping[str, Any]) -> list[str]:
    return [] if older is None else list(_changed(older, newer))


def _changed(older: Mapping[str, Any], newer: Mapping[str, Any]) -> Iterable[str]:
    yield from (name for key, name in _PARTS.items() if older[key] != newer[key])
    if older["git_commit"] == newer["git_commit"] and (older["git_dirty"] or newer["git_dirty"]):
        yield "perhaps code, of which not all was committed"
