"""Which checks are guardrails, and how often each of them was made in a suite."""

from __future__ import annotations

import sqlite3
from typing import Any

from kindlm.history.queries import among
from kindlm.history.rows import SuiteView
from kindlm.history.verdict import GateResult
from kindlm.reports.figures import comparison
from kindlm.reports.sarif import RULES

# What only advises decides nothing, and what was skipped was not looked at.
_CHECKS = """
SELECT a.kind, count(*) AS checks, sum(a.outcome = 'failed') AS failed,
       sum(a.outcome = 'inconclusive') AS inconclusive
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite IN $ids AND NOT a.advisory AND a.outcome <> 'skipped'
 GROUP BY a.kind
 ORDER BY a.kind
"""

_TITLES = {kind: rule.title for kind, rule in RULES.items()} | {
    "schema": "JSON that breaks its schema in the answer",
    "output_schema": "JSON that breaks its schema in the answer",
    "tool_strict": "A tool call that no answer was meant for, or that breaks the tool's schema",
}
"""What each kind of guardrail forbids."""

_COUNTED = {
    "schemaFailuresMax": ("schema",),
    "piiFailuresMax": ("pii",),
    "keywordFailuresMax": ("keywords_deny", "keywords_allow"),
}
"""The kinds of checks whose failures a gate counts."""


def read_checks(db: sqlite3.Connection, suite: SuiteView) -> list[dict[str, Any]]:
    """Return the checks of a suite by kind; `title` says of a guardrail what it forbids."""
    rows = db.execute(*among(_CHECKS, suite.parts))
    return [{**dict(row), "title": _TITLES.get(row["kind"])} for row in rows]


def read_gates(suite: SuiteView, checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the gates of a suite; `measured` is false for those that had nothing to judge."""
    made = {each["kind"] for each in checks}
    return [
        {
            "name": gate.name,
            "passed": gate.passed,
            "measured": _is_measured(gate, made),
            "actual": gate.actual,
            "threshold": gate.threshold,
            "shown": comparison(gate),
            "message": gate.message,
        }
        for gate in suite.gates
    ]


def _is_measured(gate: GateResult, made: set[str]) -> bool:
    counted = _COUNTED.get(gate.name)
    return gate.actual is not None if counted is None else not made.isdisjoint(counted)
