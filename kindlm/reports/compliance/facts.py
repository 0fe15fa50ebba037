"""What a compliance report says, read from the history: plain values for a template.

Nothing of it depends on when the report is made: the same history gives the same facts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from kindlm.history.baselines import active_baseline
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.queries import among
from kindlm.history.rows import SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.history.sealing import SEALED_HEADS
from kindlm.history.statistics import wilson_interval
from kindlm.reports.diff.text import headline_of
from kindlm.reports.figures import comparison
from kindlm.reports.totals_page import totals_of
from kindlm.reports.verdict_text import verdict_of
from kindlm_store import verify_file

__all__ = ["read_facts", "template_of"]

_CONFIG = """
SELECT c.body FROM suites s JOIN shown_texts c ON c.ref = s.config_ref WHERE s.id = ?
"""

_MODELS = """
SELECT DISTINCT c.purpose, c.provider, c.model, c.reported_model
  FROM executions e
  JOIN provider_calls c ON c.execution = e.source
 WHERE e.suite IN $ids
 ORDER BY 1 DESC, 2, 3, 4
"""

_GUARDRAILS = """
SELECT a.kind, count(*) AS checks, sum(a.outcome = 'failed') AS failed,
       sum(a.outcome = 'inconclusive') AS inconclusive
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite IN $ids
 GROUP BY a.kind
 ORDER BY a.kind
"""

_METADATA = (
    "systemName",
    "systemVersion",
    "intendedPurpose",
    "riskLevel",
    "operator",
    "dataGovernanceNotes",
)
_GUARDING = ("pii", "keywords_deny", "keywords_allow", "schema", "strict_tools")

_HISTORY = """
SELECT r.id, CASE WHEN l.run IS NULL THEN r.label ELSE l.label END AS label, r.started_at,
       r.git_commit, r.git_dirty, r.passed, s.config_hash,
       (SELECT group_concat(name, ', ') FROM (
          SELECT DISTINCT coalesce(c.reported_model, c.model) AS name
            FROM executions e JOIN provider_calls c ON c.execution = e.source
           WHERE e.suite = s.id AND c.purpose = 'test' AND c.status = 'responded'
           ORDER BY 1)) AS models
  FROM suites s
  JOIN runs r ON r.id = s.run AND r.mode = 'live' AND r.ended = 'finished'
  LEFT JOIN run_labels l ON l.run = r.id
 WHERE s.project = :project AND s.name = :suite AND r.started_at <= :until
 ORDER BY r.started_at DESC, r.id
 LIMIT 10
"""

_REVIEWS = """
SELECT e.test, e.target, e.repeat, e.status, v.passed, n.body AS note, v."by", v.at
  FROM executions e
  JOIN reviews v ON v.execution = e.source
  LEFT JOIN shown_texts n ON n.ref = v.note_ref
 WHERE e.suite IN $ids
 ORDER BY v.at, v.event
 LIMIT 200
"""


def read_facts(
    view: RunView, suite: SuiteView, regression_threshold: float | None = None
) -> dict[str, Any]:
    """Return everything that a template can say of a suite of a run.

    `regression_threshold` is how far a mean score may fall below that of the accepted run before
    that is a regression, None for the default.
    """
    db = view.db
    compliance = _section(_config(db, suite), "config", "compliance")
    metadata = _section(compliance, "metadata")
    info = view.info
    tests = [_test(test) for test in view.tests(suite.id)]
    checks = [dict(row) for row in db.execute(among(_GUARDRAILS, suite.parts), suite.parts)]
    return {
        "system": {name: metadata.get(name) for name in _METADATA},
        "framework": compliance.get("framework", "eu-ai-act"),
        "run": {
            "id": view.id,
            "label": info.label,
            "mode": info.mode,
            "started": info.started_at,
            "finished": info.finished_at,
            "ended": info.ended or "not finished",
            "commit": info.git_commit,
            "branch": info.git_branch,
            "changed": bool(info.git_dirty),
            "ci": info.ci,
            "kindlm": info.kindlm_version,
            "source": info.source_run,
        },
        "suite": {
            "name": suite.name,
            "path": suite.path,
            "config_hash": suite.config_hash,
            "error": suite.error,
            "status": suite.status.value,
            "repeats": sorted({each["repeats"] for each in tests}),
        },
        "verdict": str(verdict_of(view)),
        "passed": suite.passed and view.complete,
        "models": [dict(row) for row in db.execute(among(_MODELS, suite.parts), suite.parts)],
        "gates": [
            {
                "name": gate.name,
                "passed": gate.passed,
                "actual": gate.actual,
                "threshold": gate.threshold,
                "shown": comparison(gate),
                "message": gate.message,
            }
            for gate in suite.gates
        ],
        "tests": tests,
        "totals": [{"name": name, "value": value} for name, value in totals_of(view)],
        "checks": checks,
        "guardrails": [each for each in checks if each["kind"] in _GUARDING],
        "baseline": _baseline(db, view, suite, DiffOptions.of_project(regression_threshold)),
        "history": _history(db, view, suite),
        "reviews": [
            {**dict(row), "passed": bool(row["passed"])}
            for row in db.execute(among(_REVIEWS, suite.parts), suite.parts)
        ],
        "reviewed": {
            "executions": view.reviewed.executions,
            "disputed": view.reviewed.disputed,
        },
        "audit": _audit(db, view),
    }


def template_of(view: RunView, suite: SuiteView) -> tuple[str, str] | None:
    """Return the template that a suite was recorded with, its file and its text, if it has one."""
    config = _config(view.db, suite)
    compliance = _section(config, "config", "compliance")
    source = config.get("reportTemplate")
    if compliance.get("framework") != "custom" or not isinstance(source, str) or not source:
        return None
    return str(compliance.get("template")), source


def _config(db: sqlite3.Connection, suite: SuiteView) -> Mapping[str, Any]:
    """Return the configuration as it was recorded; {} where it was erased or never loaded."""
    row = db.execute(_CONFIG, (suite.id,)).fetchone()
    try:
        config = json.loads(row[0]) if row else {}
    except (ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _section(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a part of a recorded document, {} where that is none: it may be of any origin."""
    for name in names:
        part = document.get(name)
        document = part if isinstance(part, dict) else {}
    return document


def _test(test: TestView) -> dict[str, Any]:
    counts = test.counts
    interval = wilson_interval(counts.passed, counts.tested) if counts.tested else None
    return {
        "name": test.name,
        "target": test.target,
        "status": test.status.value,
        "passed": counts.passed,
        "tested": counts.tested,
        "repeats": counts.total,
        "rate": counts.pass_rate,
        "low": interval[0] if interval else None,
        "high": interval[1] if interval else None,
        "flaky": test.flaky,
        "needs": test.pass_rate_min,
    }


def _baseline(
    db: sqlite3.Connection, view: RunView, suite: SuiteView, asked: DiffOptions
) -> dict[str, Any] | None:
    """Return how the run stands beside the accepted one, None where none is set."""
    found = active_baseline(db, view.info.project, suite.name)
    if found is None:
        return None
    facts = {"run": found.run, "label": found.label, "by": found.set_by, "at": found.set_at}
    if found.run in view.runs:
        return {**facts, "verdict": "this run is the baseline", "reasons": []}
    if not found.here:
        return {**facts, "verdict": "its run is not in this history", "reasons": []}
    diff = compare_runs(db, found.run, view.group or view.id, asked)
    headline = headline_of(diff)
    return {**facts, "verdict": headline.word, "reasons": list(headline.reasons)}


def _history(db: sqlite3.Connection, view: RunView, suite: SuiteView) -> list[dict[str, Any]]:
    """Return the runs of the suite up to this one, the newest first, each with what changed."""
    wanted = {"project": view.info.project, "suite": suite.name, "until": view.info.started_at}
    rows = [dict(row) for row in db.execute(_HISTORY, wanted)]
    for row, older in zip_longest(rows, rows[1:]):
        row["passed"] = bool(row["passed"])
        row["changed"] = [] if older is None else list(_changes(older, row))
    return rows


def _changes(older: Mapping[str, Any], newer: Mapping[str, Any]) -> Iterable[str]:
    names = {"config_hash": "configuration", "models": "models", "git_commit": "code"}
    return (name for key, name in names.items() if older[key] != newer[key])


def _audit(db: sqlite3.Connection, view: RunView) -> list[dict[str, Any]]:
    """Return of each run that is read: its events, its head, and whether it is as recorded."""
    file = db.execute("PRAGMA database_list").fetchone()[2]
    audit = []
    for run in view.runs:
        stream = f"run/{run}"
        row = db.execute(
            "SELECT version, 'sha256:' || lower(substr(hex(head), 3)) AS head, sealed"
            "  FROM streams WHERE name = ?",
            (stream,),
        ).fetchone()
        found = verify_file(file, stream, claims=SEALED_HEADS)
        audit.append(
            {
                "run": run,
                "events": row["version"],
                "head": row["head"],
                "sealed": bool(row["sealed"]),
                "erased": found.erased,
                "verified": found.ok,
                "problems": [problem.what for problem in found.problems[:5]],
            }
        )
    return audit
