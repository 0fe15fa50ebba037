"""Reads the samples of a suite, test by test: the results of each repeat.

If an execution was repeated after a crash, the attempt that ended counts. If it was retried because
it did not pass, the first attempt counts, since a later pass would hide how often it fails. But
rescored and replayed runs have only last attempts; in a comparison with one, the last attempts
count on both sides.

A conversation is a sample once. A rescored conversation, or one that `kindlm test --cache` took
from the history, can be judged differently, but chance cannot change it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from kindlm.dataclass import dataclass, replace
from kindlm.history.diff.config import Suite
from kindlm.history.diff.evidence_values import CheckKey
from kindlm.history.queries import among
from kindlm.history.rows import AttemptView
from kindlm.outcome import ScoreLimits, Status

_RETRIED = """
SELECT EXISTS (SELECT 1 FROM executions e
                 JOIN retried_attempts r ON r.execution = e.id
                WHERE e.run IN $ids),
       EXISTS (SELECT 1 FROM runs WHERE id IN $ids AND mode IN ('rescored', 'replayed'))
"""

_CAME_TO = (
    "status", "output_ref", "error_code", "answers", "latency_ms", "input_tokens", "output_tokens",
    "cost_usd", "cost_source", "cost_then_usd", "score",
)  # fmt: skip
"""The columns with the result of an attempt."""

# A rerun execution is its own source.
_AS_FIRST = f"""(
SELECT e.id, e.run, e.suite, e.number, e.test, e.target, e.repeat, e.source,
       e.status AS last_status,
       coalesce(f.attempt, e.attempt) AS attempt,
       coalesce(f.attempt, e.source_attempt) AS source_attempt,
       {", ".join(f"iif(f.attempt IS NULL, e.{name}, f.{name}) AS {name}" for name in _CAME_TO)}
  FROM executions e
  LEFT JOIN retried_attempts f ON f.execution = e.id
   AND f.attempt = (SELECT min(attempt) FROM retried_attempts WHERE execution = e.id))"""  # noqa: S608


class Attempts(StrEnum):
    """The attempts by which executions are compared. Most executions have only one."""

    FIRST = "first"
    LAST = "last"

    @property
    def executions(self) -> str:
        """SQL: the executions as these attempts left them, with `last_status`."""
        if self is Attempts.FIRST:
            return _AS_FIRST
        return "(SELECT *, status AS last_status FROM executions)"

    def of(self, ended: Sequence[AttemptView]) -> AttemptView:
        """Return the attempt that counts, of those that ended."""
        return ended[0 if self is Attempts.FIRST else -1]


def attempts_to_compare(db: sqlite3.Connection, runs: Sequence[str]) -> Attempts | None:
    """Return the attempts by which runs are compared; None if nothing was retried."""
    retried, derived = db.execute(*among(_RETRIED, runs)).fetchone()
    if not retried:
        return None
    return Attempts.LAST if derived else Attempts.FIRST


WEIGHTED = ("score", "weighted_score")
"""Kinds of assertions with scores of the execution as a whole."""

SCORED = ("judge", *WEIGHTED)
"""Kinds of assertions that always grade."""

Scored: TypeAlias = tuple[str, str]
"""The source of a score: the kind and the label of an assertion."""

_COMPARED_OTHERWISE = ("drift", "evalview_verdict")
"""Drift is compared as a figure, and this verdict repeats the weighted score."""

_GRADING = f"""
SELECT DISTINCT a.kind, a.label
  FROM executions e
  JOIN assertions a ON a.execution = e.id
 WHERE e.run IN $ids AND a.score <> (a.outcome = 'passed')
   AND a.kind NOT IN ({", ".join(map(repr, SCORED + _COMPARED_OTHERWISE))})
"""  # noqa: S608 (constants of this module)


def grading_checks(db: sqlite3.Connection, runs: Sequence[str]) -> frozenset[Scored]:
    """Return the other checks with scores other than 0 for failed, and 1 for passed."""
    return frozenset((kind, label) for kind, label in db.execute(*among(_GRADING, runs)))


def score_name(kind: str, label: str) -> str:
    """Return the name by which the score of an assertion is compared."""
    return label if kind in SCORED else f"{kind} {label}"


USERS = """
CASE WHEN c.try = 1 AND c.messages <> '[]' THEN
  (SELECT count(*) FROM json_each(c.messages) m WHERE json_extract(m.value, '$.role') = 'user')
ELSE 0 END
"""
"""SQL: how many messages of the user a call `c` sent; 0 for a retry."""


class CallRef(NamedTuple):
    """A tool call in a turn, from 1; the digest of its arguments is None if they were erased."""

    tool: str
    digest: bytes | None
    turn: int = 1


class Failure(NamedTuple):
    """A check that did not pass; an error of the execution itself has the kind `error`."""

    kind: str
    label: str
    code: str | None


class Sample(NamedTuple):
    """One execution that ended, and was not skipped.

    `output` is the digest of its final text, `earlier` are those of the answers before the last
    turn. `conversation` is the execution that held the conversation: another one if this one was
    rescored, or if all its answers are from earlier runs. `measured` are its `drift`, `latency`
    (ms), `tokens` and `cost` (USD), as far as known. `scores` are means. `checks` are for
    `read_checks`. `erased` is whether answers or arguments were erased.
    """

    id: str
    conversation: str
    status: Status
    output: bytes | None = None
    measured: Mapping[str, float] = MappingProxyType({})
    calls: tuple[CallRef, ...] = ()
    failures: frozenset[Failure] = frozenset()
    scores: Mapping[Scored, float] = MappingProxyType({})
    models: tuple[str, ...] = ()
    checks: str = "[]"
    erased: bool = False
    earlier: tuple[bytes | None, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedSamples:
    """A test that a suite defines, with its executions, repeat by repeat."""

    file: Suite
    name: str
    target: str
    ordinal: int
    pass_rate_min: float
    samples: list[Sample]
    score_limits: ScoreLimits | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """The identity of the test in its suite; tests are read in this order."""
        return self.name, self.target


_PLANNED = """
SELECT test, target, ordinal, pass_rate, score_mean_min, score_std_dev_max
  FROM planned_tests WHERE suite IN $ids
 ORDER BY test, target
"""


CHECKS_MADE = """
(SELECT json_group_array(json_array(a.kind, a.label, a.threshold, a.outcome = 'passed'))
   FROM (SELECT kind, label, threshold, outcome FROM assertions
          WHERE execution = e.id AND attempt = e.attempt
            AND outcome <> 'skipped' AND NOT advisory
          ORDER BY position) a)
"""
"""SQL: the checks of an execution `e` as JSON for `read_checks`."""


@lru_cache(maxsize=4096)
def read_checks(text: str) -> Mapping[CheckKey, bool]:
    """Return the checks of an execution that were not skipped, and whether each passed."""
    found: dict[CheckKey, bool] = {}
    for kind, label, threshold, passed in json.loads(text):
        number = 0
        while (key := CheckKey(kind, label, threshold, number)) in found:
            number += 1
        found[key] = bool(passed)
    return found


_Row = tuple[Any, ...]
_Rows = list[_Row]


def read_samples(
    db: sqlite3.Connection, file: Suite, attempts: Attempts, grading: Collection[Scored]
) -> Iterator[PlannedSamples]:
    """Yield the tests that a suite of a file defines, ordered by name and target.

    `grading` are the `grading_checks` of the runs of both sides.
    """
    # Each shard defines all tests of the suite.
    planned = list(_rows(db, _PLANNED, file.parts[:1]))
    defined = {row[:2] for row in planned}
    # A run that was resumed with another configuration may have tests that are not defined.
    ran = _samples(db, file.parts, attempts, grading)
    samples_of = _taken_in_order(sample for sample in ran if sample[0] in defined)
    for name, target, ordinal, pass_rate, *limits in planned:
        samples = [sample for _, sample in samples_of((name, target))]
        limited = None if limits == [None, None] else ScoreLimits(*limits)
        yield PlannedSamples(file, name, target, ordinal, pass_rate, samples, limited)


def _samples(
    db: sqlite3.Connection, parts: Sequence[str], attempts: Attempts, grading: Collection[Scored]
) -> Iterator[tuple[tuple[str, str], Sample]]:
    ended = "e.suite IN $ids AND e.last_status IN ('passed', 'failed', 'errored')"
    order = "e.test, e.target, e.repeat, e.id"
    executions = f"""
SELECT e.test, e.target, e.id, e.status, o.digest, e.latency_ms, e.input_tokens, e.output_tokens,
       -- recorded answers of other runs cost nothing now, and count with their original cost
       CASE WHEN e.cost_source <> 'unknown' THEN coalesce(e.cost_then_usd, 0) + e.cost_usd END,
       e.answers, e.error_code, e.source, e.output_ref IS NOT NULL AND o.digest IS NULL, e.score,
       {CHECKS_MADE}
  FROM {attempts.executions} e
  LEFT JOIN contents o ON o.ref = e.output_ref
 WHERE {ended} ORDER BY {order}
"""  # noqa: S608 (constants of this package)
    # CROSS JOIN makes SQLite begin with the executions.
    calls = f"""
SELECT e.id, t.tool, a.digest, t.call
  FROM {attempts.executions} e
 CROSS JOIN tool_calls t ON t.execution = e.source AND t.attempt = e.source_attempt
  LEFT JOIN contents a ON a.ref = t.arguments_ref
 WHERE {ended} ORDER BY {order}, t.position
"""  # noqa: S608 (constants of this package)
    checks = f"""
SELECT e.id, a.kind, a.label, iif(a.advisory, NULL, a.outcome), a.failure_code, a.score
  FROM {attempts.executions} e
 CROSS JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
   -- a weighted score counts, also if it is advisory
   AND (a.kind = 'weighted_score' OR NOT a.advisory
        AND (a.outcome IN ('failed', 'inconclusive') OR a.kind = 'drift'
             OR a.kind IN (SELECT value FROM json_each(:scored))))
 WHERE {ended} ORDER BY {order}, a.position
"""  # noqa: S608 (constants of this package)
    answers = f"""
SELECT e.id, c.call, {USERS}, c.reported_model, c.recorded_in, c.text_ref IS NOT NULL, t.digest
  FROM {attempts.executions} e
 CROSS JOIN provider_calls c
    ON c.execution = e.source AND c.attempt = e.source_attempt AND c.purpose = 'test'
  LEFT JOIN contents t ON t.ref = c.text_ref
 WHERE {ended} ORDER BY {order}, c.call
"""  # noqa: S608 (constants of this package)
    kinds = json.dumps([*SCORED, *{kind for kind, _ in grading}])
    queries = calls, checks, answers
    about = [_taken_in_order(_rows(db, query, parts, scored=kinds)) for query in queries]
    for row in _rows(db, executions, parts):
        yield row[:2], _sample(row, grading, *(found(row[2]) for found in about))


def _taken_in_order(rows: Iterable[_Row]) -> Callable[[Any], _Rows]:
    """Return a function that returns the rows with a first value; call it in their order."""
    groups = groupby(rows, key=itemgetter(0))
    following = next(groups, None)

    def taken(key: Any) -> _Rows:
        nonlocal following
        if following is None or following[0] != key:
            return []
        own = list(following[1])
        following = next(groups, None)
        return own

    return taken


def _rows(
    db: sqlite3.Connection, query: str, suites: Sequence[str], **values: str
) -> Iterator[_Row]:
    cursor = db.cursor()
    cursor.row_factory = None
    return cursor.execute(*among(query, suites, **values))


def _sample(
    row: _Row, grading: Collection[Scored], calls: _Rows, checks: _Rows, answers: _Rows
) -> Sample:
    identity, status, output, latency, tokens_in, tokens_out, cost, steps, error, *rest = row[2:]
    source, is_output_gone, score, checked = rest
    failures = {
        Failure(kind, label, code)
        for _, kind, label, outcome, code, _ in checks
        if outcome in ("failed", "inconclusive")
    }
    scores = _mean_scores(each for each in checks if each[1] in SCORED or each[1:3] in grading)
    if score is not None:
        scores["score", "checks"] = score  # the mean of all checks of a scenario
    if error is not None:
        failures.add(Failure("error", "", error))
    turns = turns_of((call, users) for _, call, users, *_ in answers)
    last = max(turns.values(), default=1)
    last_texts = {turns[call]: digest for _, call, *_, has_text, digest in answers if has_text}
    origins = [recorded_in for *_, recorded_in, _, _ in answers]
    drift = _mean_scores(each for each in checks if each[1] == "drift")
    measured: dict[str, float | None] = {
        "drift": max((1 - mean for mean in drift.values()), default=None),
        "latency": latency if steps else None,
        "tokens": None if tokens_in is tokens_out is None else (tokens_in or 0) + (tokens_out or 0),
        "cost": cost,
    }
    return Sample(
        id=identity,
        # A replayed answer names the original call, such as `k3f9x2ab-17.1/3`. With a call of its
        # own, the conversation is new.
        conversation=origins[-1].rpartition(".")[0] if origins and None not in origins else source,
        status=Status(status),
        output=output,
        measured={name: value for name, value in measured.items() if value is not None},
        calls=tuple(CallRef(tool, digest, turns.get(call, 1)) for _, tool, digest, call in calls),
        failures=frozenset(failures),
        scores=scores,
        models=tuple(sorted({model for *_, model, _, _, _ in answers if model is not None})),
        checks=intern(checked),  # equal in most repeats
        erased=bool(is_output_gone)
        or any(digest is None for _, _, digest, _ in calls)
        or any(has_text and digest is None for *_, has_text, digest in answers),
        earlier=tuple(last_texts.get(turn) for turn in range(1, last)),
    )


def independent_samples(
    before: PlannedSamples, after: PlannedSamples
) -> tuple[PlannedSamples, PlannedSamples, bool]:
    """Return the samples of a test to compare, and whether they are the same conversations.

    If common conversations are judged differently, all samples are compared, as the same
    conversations. Otherwise, the conversations that only AFTER has are compared with BEFORE.
    """
    sides = before.samples, after.samples
    both = set.intersection(*({sample.conversation for sample in side} for side in sides))
    if not both:
        return before, after, False
    old, new = ([each for each in side if each.conversation in both] for side in sides)
    if _first_judgements(old) != _first_judgements(new):
        return before, after, True
    own = [each for each in after.samples if each.conversation not in both]
    if own:
        return before, replace(after, samples=own), False
    return replace(before, samples=old), replace(after, samples=new), True


def _first_judgements(samples: Sequence[Sample]) -> dict[str, Any]:
    return {each.conversation: (each.status, each.failures, each.scores) for each in samples[::-1]}


def turns_of(calls: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the turn of each call in a conversation, from 1, by the call's number.

    `calls` are numbers of calls, each with how many messages of the user it sent. The first message
    may be that of the test, or be sent with the first call.
    """
    turns: dict[int, int] = {}
    turn = 0
    for number, users in calls:
        turn = max(1, turn + users)
        turns[number] = turn
    return turns


def _mean_scores(checks: Iterable[_Row]) -> dict[Scored, float]:
    """Return mean scores; a check after each turn has several scores."""
    found: dict[Scored, list[float]] = {}
    for _, kind, label, _, _, score in checks:
        if score is not None:
            found.setdefault((kind, label), []).append(score)
    return {scored: sum(scores) / len(scores) for scored, scores in found.items()}
