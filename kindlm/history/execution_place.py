"""Where an execution stands: in its run, among its repeats, and when its calls were made."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["ExecutionPlace", "Repeat", "Span", "read_place", "read_requests", "read_spans"]

_PLACE = """
SELECT e.run, s.project, s.name AS suite, coalesce(p.file, s.path) AS path, e.test,
       e.target, e.repeat, e.number
  FROM executions e
  JOIN suites s ON s.id = e.suite
  LEFT JOIN planned_tests p ON p.suite = e.suite AND p.test = e.test AND p.target = e.target
 WHERE e.id = ?
"""

_REPEATS = """
SELECT r.id, r.repeat, r.status
  FROM executions e
  JOIN executions r ON r.suite = e.suite AND r.test = e.test AND r.target = e.target
 WHERE e.id = ?
 ORDER BY r.repeat
 LIMIT 1000
"""

# Of a conversation that was held in another run, the calls of then.
_SPANS = """
SELECT CASE WHEN c.execution = e.id THEN c.attempt ELSE e.attempt END AS attempt, c.call,
       c.purpose, c.status, c.requested_at, c.latency_ms, c.retry_in_ms
  FROM executions e
  JOIN provider_calls c ON c.execution IN (e.id, e.source)
   AND (c.execution = e.id OR (c.attempt = e.source_attempt AND c.purpose = 'test'))
 WHERE e.id = ?
 ORDER BY 1, c.call
"""

_REQUESTS = """
SELECT CASE WHEN c.execution = e.id THEN c.attempt ELSE e.attempt END AS attempt, c.call,
       c.provider, c.model, c.parameters, c.after
  FROM executions e
  JOIN provider_calls c ON c.execution IN (e.id, e.source)
   AND (c.execution = e.id OR (c.attempt = e.source_attempt AND c.purpose = 'test'))
 WHERE e.id = ?
"""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repeat of the same test, by its id; `status` is None if it never finished."""

    id: str
    repeat: int
    status: str | None


@dataclass(frozen=True, slots=True)
class ExecutionPlace:
    """Where an execution stands. `repeats` are all of its test on its target, itself too.

    `path` is the file that its test is written in.
    """

    run: str
    project: str
    suite: str
    path: str
    test: str
    target: str
    repeat: int
    number: int
    repeats: tuple[Repeat, ...]

    @property
    def before(self) -> Repeat | None:
        """The repeat before this one."""
        return next((r for r in reversed(self.repeats) if r.repeat < self.repeat), None)

    @property
    def after(self) -> Repeat | None:
        """The repeat after this one."""
        return next((r for r in self.repeats if r.repeat > self.repeat), None)


@dataclass(frozen=True, slots=True)
class Span:
    """The time of one call: milliseconds from the first call of its attempt on.

    `took_ms` is None where nothing came back; `wait_ms` is what was waited before the next try.
    """

    attempt: int
    call: int
    purpose: str
    failed: bool
    start_ms: float
    took_ms: float | None
    wait_ms: float | None


def read_place(db: sqlite3.Connection, execution: str) -> ExecutionPlace | None:
    """Return where an execution stands, by its id; None if there is no such execution."""
    row = db.execute(_PLACE, (execution,)).fetchone()
    if row is None:
        return None
    repeats = db.execute(_REPEATS, (execution,))
    return ExecutionPlace(
        **dict(row), repeats=tuple(Repeat(r["id"], r["repeat"], r["status"]) for r in repeats)
    )


def read_spans(db: sqlite3.Connection, execution: str) -> list[Span]:
    """Return when the calls of an execution were made, attempt by attempt."""
    spans: list[Span] = []
    began: dict[int, datetime] = {}
    for row in db.execute(_SPANS, (execution,)):
        asked = datetime.fromisoformat(row["requested_at"])
        first = began.setdefault(row["attempt"], asked)
        spans.append(
            Span(
                row["attempt"],
                row["call"],
                row["purpose"],
                row["status"] != "responded",
                # A clock that was set back must not draw a bar outside.
                max((asked - first).total_seconds() * 1000, 0.0),
                row["latency_ms"],
                row["retry_in_ms"],
            )
        )
    return spans


def read_requests(db: sqlite3.Connection, execution: str) -> dict[tuple[int, int], dict[str, Any]]:
    """Return what is recorded of each request beside its messages, by attempt and call.

    `continues` is the call whose answer it follows; the first one continues nothing.
    """
    return {
        (row["attempt"], row["call"]): {
            "provider": row["provider"],
            "model": row["model"],
            "parameters": json.loads(row["parameters"] or "{}"),
            "continues": row["after"] or None,
        }
        for row in db.execute(_REQUESTS, (execution,))
    }
