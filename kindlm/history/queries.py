"""The SQL that reads runs, and the costs of runs, tests and executions.

`$ids` stands for the runs or suites that are read as one: see `among`.

A cost includes everything that was paid, also for retries. Agents (what is tested) are counted
apart from judges (what evaluates it, embeddings included).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from kindlm.dataclass import dataclass
from kindlm.strict_json import read_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T", bound="DataclassInstance")


def value_of(kind: type[_T], row: sqlite3.Row | Mapping[str, Any], /, **read: Any) -> _T:
    """Return a row as a value of `kind`; `read` has the fields that are not columns as they are.

    The type of a field says how its column is read: `tuple` and `dict` are JSON, `Any` may be. If
    columns have the same name, the first one counts: queries put computed ones before `e.*`.
    """
    for name, of in _columns(kind):
        if name not in read:
            read[name] = row[name] if of is None else of(row[name])
    return kind(**read)


@cache
def _columns(kind: type[DataclassInstance]) -> Sequence[tuple[str, Callable[[Any], Any] | None]]:
    """Return the fields of a class, each with the function that reads its column, if any."""
    types = get_type_hints(kind)
    return [(field.name, _reader(types[field.name])) for field in fields(kind)]


def _reader(of: Any) -> Callable[[Any], Any] | None:
    if of is Any:
        return read_json
    known = get_args(of)[0] if get_origin(of) in (Union, UnionType) else of
    kind: type = get_origin(known) or known
    if kind in (tuple, dict):
        return lambda text: kind(json.loads(text or "[]"))
    if issubclass(kind, (bool, StrEnum)):
        return lambda value: None if value is None else kind(value)
    return None


def among(query: str, ids: Sequence[str], **values: Any) -> tuple[str, dict[str, Any]]:
    """Return a query with a list of parameters for `$ids`, and all its parameters.

    SQLite pushes such a list down into views, unlike a subquery, and treats a single id like `=`.
    """
    named = {f"id{number}": each for number, each in enumerate(ids)}
    listed = ", ".join(f":{name}" for name in named)
    return query.replace("$ids", f"({listed})"), {**named, **values}


def body_of(db: sqlite3.Connection, ref: str | None) -> str | None:
    """Return the text of a reference; None without a reference, or if the text is missing."""
    row = db.execute("SELECT body FROM contents WHERE ref = ?", (ref,)).fetchone()
    return None if row is None else row[0]


def _texts(row: str, *names: str) -> str:
    """Return SQL for columns with texts of a row: `output` is the text of its `output_ref`."""
    texts = "(SELECT body FROM shown_texts WHERE ref = {0}.{1}_ref) AS {1}"
    return ", ".join(texts.format(row, name) for name in names)


SUITES = f"""
SELECT s.*, {_texts("s", "error", "hint")}
  FROM suites s WHERE s.run IN $ids ORDER BY s.ordinal, s.started_at
"""  # noqa: S608 (names of this module)

_RESULTS = """passed, failed, errored, skipped, unfinished, pass_rate_min, score_mean_min,
       score_std_dev_max, weighted_scores"""

# Tests with the same results are counted together.
TEST_COUNTS = f"""
SELECT {_RESULTS}, count(*) AS number FROM tests WHERE suite IN $ids GROUP BY {_RESULTS}
"""  # noqa: S608 (names of this module)

# Warnings are references to texts; events of earlier versions have the texts themselves.
_NOTE = "coalesce(n.body, w.value)"
_IS_NOTE = """w.type = 'object' AND n.ref = w.value ->> '$."$ref"'"""


def _executions(attempt: str, columns: str, joined: str = "") -> str:
    """Return a query for executions as their last attempt (`e`), or an earlier one, left them."""
    return f"""
SELECT s.project, e.suite AS suite_id, s.name AS suite, coalesce(p.file, s.path) AS file,
       coalesce({attempt}.answers, 0) AS answers, {_texts(attempt, "output", "error", "trace")},
       (SELECT json_group_array({_NOTE}) FROM json_each({attempt}.warnings) w
          LEFT JOIN shown_texts n ON {_IS_NOTE}) AS warnings, {columns}
  FROM executions e {joined}
  JOIN suites s ON s.id = e.suite
  LEFT JOIN planned_tests p ON p.suite = e.suite AND p.test = e.test AND p.target = e.target
"""  # noqa: S608 (names of this module)


EXECUTIONS = _executions("e", "e.*")

RETRIED_ATTEMPTS = _executions(
    "r",
    "e.id AS source, r.attempt AS source_attempt, r.*, e.*",
    "JOIN retried_attempts r ON r.execution = e.id",
)

ASSERTIONS = f"""
SELECT {_texts("a", "expected", "actual", "message", "reasoning", "trace")},
       (SELECT json_group_object(n.ref, n.body) FROM json_each(a.evidence) v
          JOIN shown_texts n ON n.ref = v.value ->> '$.excerpt."$ref"') AS excerpts, a.*
  FROM assertions a
 WHERE a.execution = ? AND a.attempt = ?
 ORDER BY a.position
"""  # noqa: S608 (names of this module)


def _conversation(table: str, columns: str, order: str, seen: str = "true") -> str:
    """Return a query for the calls of an execution, or for a part of them.

    The conversation may be that of another run. Its calls (those that are `seen`) are then shown
    with the attempt that refers to it.
    """
    return f"""
SELECT CASE WHEN c.execution = e.id THEN c.attempt ELSE e.attempt END AS attempt, {columns}, c.*
  FROM executions e
  JOIN {table} c ON c.execution IN (e.id, e.source)
   AND (c.execution = e.id OR (c.attempt = e.source_attempt AND {seen}))
 WHERE e.id = ?
 ORDER BY 1, {order}
"""  # noqa: S608 (names of this module)


CALLS = _conversation(
    "provider_calls",
    _texts("c", "text", "error", "raw"),
    "c.call",
    "c.purpose IN ('test', 'agent')",
)

TOOL_CALLS = _conversation(
    "tool_calls",
    f"""{_texts("c", "arguments", "response")},
       nullif(c.called_at, (SELECT answered_at FROM provider_calls
                             WHERE (execution, attempt, call) = (c.execution, c.attempt, c.call)))
       AS called_at""",  # noqa: S608 (names of this module)
    "c.position",
)

SPANS = _conversation(
    "agent_spans",
    f"c.span AS id, {_texts('c', 'name', 'message', 'input', 'output')}",
    "c.call, c.position",
)

# The models whose calls have no known cost.
UNPRICED = """
SELECT DISTINCT coalesce(c.reported_model, c.model)
  FROM executions e
  JOIN counted_calls c ON c.execution = e.id
 WHERE e.run IN $ids AND c.is_unknown
 ORDER BY 1
"""

# A review applies to every execution with the conversation.
REVIEWS = f"""
SELECT {_texts("v", "note")}, v.*
  FROM executions e
  JOIN reviews v ON v.execution = e.source
 WHERE e.id = ?
 ORDER BY v.at, v.event
"""  # noqa: S608 (names of this module)

REVIEWED = """
SELECT count(DISTINCT e.id) AS executions,
       count(DISTINCT CASE WHEN v.passed <> (e.status = 'passed') THEN e.id END) AS disputed
  FROM executions e
  JOIN reviews v ON v.execution = e.source
 WHERE e.run IN $ids
"""

# A failed check demands safety unless its event says otherwise. One that demands calls may also
# have found forbidden ones.
_FORBIDS = """
       CASE WHEN a.kind NOT IN ('tool_called', 'trajectory') THEN a.demands IS NULL
            WHEN a.outcome = 'failed' AND NOT json_valid(y.body) THEN true
            WHEN a.kind = 'tool_called'
            THEN a.failure_code = 'TOOL_CALL_COUNT_WRONG'
             AND y.body ->> '$.count' > x.body ->> '$.count.max'
            ELSE EXISTS (
              SELECT 1 FROM json_each(y.body, '$.differences')
               WHERE value ->> 'kind' IN ('unexpected', 'count')
                  OR value ->> 'kind' = 'arguments'
                 AND x.body ->> '$.mode' IN ('strict', 'unordered'))
             END"""

ATTACKS = f"""
SELECT tags, count(*), sum(won), sum(NOT won AND (open OR status = 'errored'))
  FROM (
    SELECT e.tags, e.status,
           coalesce(max(a.outcome = 'failed' AND {_FORBIDS}), false) AS won,
           coalesce(max(a.outcome = 'inconclusive' AND {_FORBIDS}), false) AS open
      FROM executions e
      LEFT JOIN assertions a
        ON a.execution = e.id AND a.attempt = e.attempt AND NOT a.advisory
      LEFT JOIN shown_texts x ON x.ref = a.expected_ref
      LEFT JOIN shown_texts y ON y.ref = a.actual_ref
     WHERE e.run IN $ids AND e.status IN ('passed', 'failed', 'errored')
       AND instr(e.tags, '"attack"')
     GROUP BY e.id)
 GROUP BY tags
"""  # noqa: S608

# Why executions were skipped.
SKIPPED = f"""
SELECT s.name, {_NOTE} AS reason, count(*)
  FROM executions e
  JOIN suites s ON s.id = e.suite, json_each(e.warnings) w
  LEFT JOIN shown_texts n ON {_IS_NOTE}
 WHERE e.run IN $ids AND e.status = 'skipped'
 GROUP BY s.ordinal, reason
"""  # noqa: S608

WARNED = f"""
SELECT {_NOTE} AS warning, count(DISTINCT e.id) AS executions
  FROM executions e, json_each(e.warnings) w
  LEFT JOIN shown_texts n ON {_IS_NOTE}
 WHERE e.run IN $ids AND e.status = 'passed' AND e.warnings <> '[]'
 GROUP BY warning
 ORDER BY executions DESC, warning
"""  # noqa: S608

SKIPPED_ASSERTIONS = f"""
SELECT a.kind, {_texts("a", "message")}, count(*)
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.run IN $ids AND a.outcome = 'skipped'
 GROUP BY a.kind, message
"""  # noqa: S608 (names of this module)

# The index that covers run lists has the column `e.run`.
STATUS_COUNTS = """
       count(*) FILTER (WHERE e.status = 'passed') AS passed,
       count(*) FILTER (WHERE e.status = 'failed') AS failed,
       count(*) FILTER (WHERE e.status = 'errored') AS errored,
       count(*) FILTER (WHERE e.status = 'skipped') AS skipped,
       count(e.run) FILTER (WHERE e.status IS NULL) AS pending"""

# A rescored execution makes no calls to its target. Its original cost is that of the calls of its
# source, failed tries and earlier attempts included, if the source is in this history.
_CAME_TO = f"""
SELECT {STATUS_COUNTS},
       avg(e.latency_ms) FILTER (WHERE e.answers > 0) AS latency_average_ms,
       max(r.mode) AS mode,
       sum(coalesce((
         SELECT sum(coalesce(iif(c.attempt = e.source_attempt, c.cost_then_usd, NULL),
                             iif(c.recorded_in IS NULL, c.cost_usd, NULL)))
                + total(c.failed_then_usd) FILTER (WHERE c.attempt = e.source_attempt)
           FROM counted_calls c
          WHERE c.execution = e.source AND c.counts_as = 'test'
       ), e.cost_then_usd)) FILTER (WHERE e.source <> e.id) AS rescored_then_usd,
       coalesce(sum(coalesce((
         SELECT sum(c.cost_then_usd IS NULL AND (c.is_unknown OR c.recorded_in IS NOT NULL))
                + total(c.unknown_then) FILTER (WHERE c.attempt = e.source_attempt)
           FROM counted_calls c
          WHERE c.execution = e.source AND c.counts_as = 'test'
       ), e.answers > 0 AND e.cost_then_usd IS NULL)) FILTER (WHERE r.mode = 'rescored'), 0)
         AS rescored_unknown
  FROM executions e
  JOIN runs r ON r.id = e.run
 WHERE e.run IN $ids
"""  # noqa: S608 (names of this module)

_CHECKED = """
WITH made AS NOT MATERIALIZED (
  SELECT e.suite, e.test, e.target, a.kind, a.label, a.score, a.outcome,
         a.outcome = 'failed' AND NOT a.advisory AS is_wrong
    FROM executions e
    JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
   WHERE e.run IN $ids)
SELECT count(*) FILTER (WHERE is_wrong AND kind = 'schema') AS schema_failures,
       count(*) FILTER (WHERE is_wrong AND kind = 'pii') AS pii_failures,
       count(*) FILTER (WHERE is_wrong AND kind IN ('keywords_deny', 'keywords_allow'))
         AS keyword_failures,
       round(max(1 - score) FILTER (WHERE kind = 'drift'), 12) AS drift_maximum,
       count(*) FILTER (WHERE kind = 'drift' AND outcome = 'skipped') AS drift_skipped,
       (SELECT avg(mean) FROM (
          SELECT avg(score) AS mean FROM made WHERE kind = 'judge'
           GROUP BY suite, test, target, label)) AS judge_average
  FROM made
"""

_SPENT = """
SELECT sum(cost_usd) FILTER (WHERE purpose = 'test') AS agents_usd,
       sum(cost_usd) FILTER (WHERE purpose <> 'test') AS judges_usd,
       sum(cost_then_usd) FILTER (WHERE purpose = 'test') AS agents_then_usd,
       sum(cost_then_usd) FILTER (WHERE purpose <> 'test') AS judges_then_usd,
       coalesce(sum(unknown_costs), 0) AS unknown_costs,
       coalesce(sum(unknown_costs_then), 0) AS unknown_costs_then,
       coalesce(sum(calls), 0) AS calls,
       coalesce(sum(calls_from_history), 0) AS calls_from_history,
       sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens
  FROM spend WHERE run IN $ids
"""

# Each shard selects its own tests; a test is left out if no shard selected it.
_NARROWED = """
SELECT EXISTS (SELECT 1 FROM planned_tests WHERE suite IN $ids
                GROUP BY test, target HAVING NOT max(selected)) AS narrowed
"""

FIGURES = f"SELECT * FROM ({_CAME_TO}), ({_CHECKED}), ({_SPENT}), ({_NARROWED})"  # noqa: S608

# A rescored run calls no agent.
_PAID = """
SELECT e.run,
       coalesce(sum(c.cost_usd) FILTER (WHERE c.counts_as = 'test'),
                iif(r.mode = 'rescored', 0.0, NULL)),
       sum(c.cost_usd) FILTER (WHERE c.counts_as <> 'test'), coalesce(sum(c.is_unknown), 0)
  FROM executions e
  JOIN runs r ON r.id = e.run
  LEFT JOIN counted_calls c ON c.execution = e.id
 WHERE $executions
 GROUP BY e.run
"""


def sum_of(*costs: float | None) -> float | None:
    """Return the sum of the known costs; None if none is known."""
    known = [usd for usd in costs if usd is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Paid:
    """Costs in US dollars, None if none is known; `unknown` counts answers of unknown cost."""

    agents_usd: float | None = None
    judges_usd: float | None = None
    unknown: int = 0

    @property
    def total_usd(self) -> float | None:
        """The total of all known costs."""
        return sum_of(self.agents_usd, self.judges_usd)

    @property
    def whole_usd(self) -> float | None:
        """The total cost; None if a part of it is unknown."""
        return None if self.unknown else self.total_usd or 0.0


def paid_for_runs(db: sqlite3.Connection, runs: Sequence[str]) -> dict[str, Paid]:
    """Return the cost of each run that has executions, by id."""
    query = _PAID.replace("$executions", "e.run IN (SELECT value FROM json_each(?))")
    return {run: Paid(*paid) for run, *paid in db.execute(query, (json.dumps(list(runs)),))}


def paid_for_test(db: sqlite3.Connection, *test: str) -> Paid:
    """Return the total cost of all repeats of a test: id of the suite, name, target."""
    query = _PAID.replace("$executions", "(e.suite, e.test, e.target) = (?, ?, ?)")
    row = db.execute(query, test).fetchone()
    return Paid(*row[1:]) if row else Paid()


def paid_for_execution(db: sqlite3.Connection, execution: str) -> Paid:
    """Return the total cost of all attempts of an execution, by its id, in its own run."""
    return Paid(*db.execute(_PAID.replace("$executions", "e.id = ?"), (execution,)).fetchone()[1:])
