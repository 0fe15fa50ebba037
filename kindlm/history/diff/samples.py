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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import chain, groupby, pairwise, takewhile
from operator import itemgetter
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from kindlm.dataclass import dataclass, replace
from kindlm.history.diff.config import Suite
from kindlm.history.diff.evidence_values import CheckKey
from kindlm.history.queries import among
from kindlm.history.rows import AttemptView
from kindlm.history.runs import sources_of
from kindlm.outcome import ScoreLimits, Status

_RETRIED_IN = """
SELECT EXISTS (SELECT 1 FROM executions e
                 JOIN retried_attempts r ON r.execution = e.id
                WHERE e.run IN $ids)
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
        as_last = "(SELECT *, status AS last_status FROM executions)"
        return _AS_FIRST if self is Attempts.FIRST else as_last

    def of(self, ended: Sequence[AttemptView]) -> AttemptView:
        """Return the attempt that counts, of those that ended."""
        return ended[0 if self is Attempts.FIRST else -1]


def attempts_to_compare(db: sqlite3.Connection, runs: Sequence[str]) -> Attempts | None:
    """Return the attempts by which runs are compared; None if nothing in them was retried."""
    if not _were_retried(db, runs):
        return None
    return Attempts.LAST if any(_has_last_of(db, run) for run in runs) else Attempts.FIRST


def _were_retried(db: sqlite3.Connection, runs: Sequence[str]) -> bool:
    return bool(db.execute(*among(_RETRIED_IN, runs)).fetchone()[0])


def _has_last_of(db: sqlite3.Connection, run: str) -> bool:
    """Return whether a run has only the last attempts of a run with retries.

    A source that is not in this history may have had retries.
    """
    chain = pairwise(sources_of(db, run).items())
    derived = takewhile(lambda both: both[0][1] in ("rescored", "replayed"), chain)
    sources = dict(source for _, source in derived)
    return None in sources.values() or _were_retried(db, [*sources])


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


class CallRef(NamedTuple):
    """A tool call in a turn, from 1; the digest of its arguments is None if they were erased."""

    tool: str
    digest: str | None
    turn: int = 1


class Failure(NamedTuple):
    """A check that did not pass; an error of the execution itself has the kind `error`."""

    kind: str
    label: str
    code: str


class Sample(NamedTuple):
    """One execution that ended, and was not skipped.

    `output` is the digest of its final text, `earlier` has those of the answers before the last
    turn, by turn. `conversation` is the execution that held the conversation: another one if this
    one was rescored, or if all its answers are from earlier runs. `measured` are its `drift`,
    `latency` (ms), `tokens` and `cost` (USD), as far as known. `scores` are means. `checks` are for
    `read_checks`. `erased` is whether answers or arguments were erased.
    """

    id: str
    conversation: str
    status: Status
    output: str | None = None
    measured: Mapping[str, float] = MappingProxyType({})
    calls: tuple[CallRef, ...] = ()
    failures: frozenset[Failure] = frozenset()
    scores: Mapping[Scored, float] = MappingProxyType({})
    models: tuple[str, ...] = ()
    checks: str = "[]"
    erased: bool = False
    earlier: Mapping[int, str] = MappingProxyType({})


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


_PLANNED = """
SELECT test, target, ordinal, pass_rate, score_mean_min, score_std_dev_max
  FROM planned_tests WHERE suite IN $ids
"""

CHECKS_MADE = """
(SELECT json_group_array(json_array(a.kind, a.label, a.threshold, a.code))
   FROM (SELECT kind, label, threshold,
                iif(outcome = 'passed', NULL, coalesce(failure_code, '')) AS code
           FROM assertions
          WHERE execution = e.id AND attempt = e.attempt
            AND outcome <> 'skipped' AND NOT advisory
          ORDER BY position) a)
"""
"""SQL: the checks of an execution `e` as JSON for `read_checks`."""


@lru_cache(maxsize=4096)
def read_checks(text: str) -> Mapping[CheckKey, str | None]:
    """Return the checks of an execution that were not skipped, and the failure code of each.

    The code is None if the check passed, "" if it did not and has no code.
    """
    found: dict[CheckKey, str | None] = {}
    for kind, label, threshold, code in json.loads(text):
        number = 0
        while (key := CheckKey(kind, label, threshold, number)) in found:
            number += 1
        found[key] = code
    return found


_SAMPLES = f"""
SELECT e.test, e.target, e.id, e.status, e.source, e.error_code, nullif(hex(o.digest), ''),
       e.output_ref IS NOT NULL AND o.digest IS NULL, iif(e.answers, e.latency_ms, NULL),
       coalesce(e.input_tokens + e.output_tokens, e.input_tokens, e.output_tokens),
       -- recorded answers of other runs cost nothing now, and count with their original cost
       CASE WHEN e.cost_source <> 'unknown' THEN coalesce(e.cost_then_usd, 0) + e.cost_usd END,
       e.score, {CHECKS_MADE},
       -- a weighted score counts, also if it is advisory; a check after each turn has several
       '[' || (SELECT json_group_array(json_array(a.kind, a.label, a.score))
          FROM (SELECT kind, label, avg(score) AS score FROM assertions
                 WHERE execution = e.id AND attempt = e.attempt AND score IS NOT NULL
                   AND (kind = 'weighted_score' OR NOT advisory)
                   AND (:scored IS NULL OR kind IN (SELECT value FROM json_each(:scored)))
                 GROUP BY kind, label ORDER BY min(position)) a) || ',' ||
       (SELECT json_group_array(json_array(c.call, c.users, c.reported_model, c.recorded_in,
                                           c.has_text, c.digest))
          FROM (SELECT c.call, c.reported_model, c.recorded_in, c.text_ref IS NOT NULL AS has_text,
                       nullif(hex(t.digest), '') AS digest,
                       -- the messages of the user that it sent; a retry repeats them
                       iif(c.try = 1 AND c.messages <> '[]',
                           (SELECT count(*) FROM json_each(c.messages) m
                             WHERE json_extract(m.value, '$.role') = 'user'), 0) AS users
                  FROM provider_calls c LEFT JOIN contents t ON t.ref = c.text_ref
                 WHERE c.execution = e.source AND c.attempt = e.source_attempt
                   AND c.purpose = 'test' ORDER BY c.call) c) || ',' ||
       (SELECT json_group_array(json_array(t.tool, t.digest, t.call))
          FROM (SELECT t.tool, nullif(hex(a.digest), '') AS digest, t.call
                  FROM tool_calls t LEFT JOIN contents a ON a.ref = t.arguments_ref
                 WHERE t.execution = e.source AND t.attempt = e.source_attempt
                 ORDER BY t.position) t) || ']'
  FROM $executions e
  LEFT JOIN contents o ON o.ref = e.output_ref
 WHERE e.suite IN $ids AND e.last_status IN ('passed', 'failed', 'errored')
 ORDER BY e.test, e.target, e.repeat, e.id
"""  # noqa: S608 (constants of this module)


_OF_EXECUTION = """= (SELECT suite FROM executions WHERE id = :execution)
   AND (e.test, e.target) = (SELECT test, target FROM executions WHERE id = :execution)"""


def read_samples(
    db: sqlite3.Connection, file: Suite, attempts: Attempts, grading: Collection[Scored]
) -> Iterator[PlannedSamples]:
    """Yield the tests that a suite of a file defines; `grading` are those of both sides."""
    # Each shard defines all tests of the suite.
    defined = db.execute(*among(_PLANNED, file.parts[:1]))
    planned = {(test, target): limits for test, target, *limits in defined}
    query = _SAMPLES.replace("$executions", attempts.executions)
    scored = json.dumps([*SCORED, "drift", *{kind for kind, _ in grading}])
    cursor = db.cursor()
    cursor.row_factory = None  # tuples, which are faster
    ran = groupby(cursor.execute(*among(query, file.parts, scored=scored)), key=itemgetter(0, 1))
    for (name, target), rows in chain(ran, ((identity, ()) for identity in [*planned])):
        # A run that was resumed with another configuration may have tests that are not defined.
        if (name, target) in planned:
            ordinal, pass_rate, *limits = planned.pop((name, target))
            limited = None if limits == [None, None] else ScoreLimits(*limits)
            found = [_sample(row, grading) for row in rows]
            yield PlannedSamples(file, name, target, ordinal, pass_rate, found, limited)


def read_repeats(db: sqlite3.Connection, execution: str, attempts: Attempts) -> list[Sample]:
    """Return the repeats of the test of an execution, with the scores of all checks."""
    query = _SAMPLES.replace("$executions", attempts.executions).replace("IN $ids", _OF_EXECUTION)
    rows = db.execute(query, {"execution": execution, "scored": None})
    return [_sample(row, None) for row in rows]


_JUDGES = """
SELECT DISTINCT c.model, c.reported_model
  FROM executions e
  JOIN provider_calls c ON c.execution = e.id AND c.attempt = e.attempt
 WHERE e.suite IN $ids AND c.purpose = 'judge' AND c.reported_model IS NOT NULL
"""


def read_judges(db: sqlite3.Connection, suites: Iterable[Suite]) -> dict[str, set[str]]:
    """Return the models that judged, with those that their providers reported."""
    found: dict[str, set[str]] = {}
    parts = [part for suite in suites for part in suite.parts]
    for model, reported in db.execute(*among(_JUDGES, parts)):
        found.setdefault(model, set()).add(reported)
    return found


def text_with(db: sqlite3.Connection, digest: str | None) -> str | None:
    """Return the text with a digest; None if it is gone."""
    query = "SELECT body FROM contents WHERE digest = ?"
    row = db.execute(query, (bytes.fromhex(digest or ""),)).fetchone()
    return row[0] if row else None


def _sample(row: Sequence[Any], grading: Collection[Scored] | None) -> Sample:
    identity, status, source, error, output, is_output_gone, *rest = row[2:]
    latency, tokens, cost, score, checks, listed = rest
    scored, answers, calls = json.loads(listed)
    failures: set[Failure] = set()
    if status != Status.PASSED:
        made = read_checks(checks).items()
        failures.update(Failure(*key[:2], code) for key, code in made if code is not None)
    if error is not None:
        failures.add(Failure("error", "", error))
    means = {(kind, label): mean for kind, label, mean in scored}
    scores = {
        scored: mean
        for scored, mean in means.items()
        if grading is None or scored[0] in SCORED or scored in grading
    }
    if score is not None:
        scores["score", "checks"] = score  # the mean of all checks of a scenario
    turns: dict[int, int] = {}
    last = 0
    for call, users, *_ in answers:
        # The first message may be that of the test, or be sent with the first call.
        turns[call] = last = max(1, last + users)
    texts = {turns[call]: digest for call, *_, has_text, digest in answers if has_text}
    origins = [recorded_in for *_, recorded_in, _, _ in answers]
    drift = max((1 - mean for (kind, _), mean in means.items() if kind == "drift"), default=None)
    measured = {"drift": drift, "latency": latency, "tokens": tokens, "cost": cost}
    return Sample(
        id=identity,
        # A replayed answer names the original call, such as `k3f9x2ab-17.1/3`. With a call of its
        # own, the conversation is new.
        conversation=origins[-1].rpartition(".")[0] if origins and None not in origins else source,
        status=Status(status),
        output=output,
        measured={name: value for name, value in measured.items() if value is not None},
        calls=tuple(CallRef(tool, digest, turns.get(call, 1)) for tool, digest, call in calls),
        failures=frozenset(failures),
        scores=scores,
        models=tuple(sorted({model for *_, model, _, _, _ in answers if model is not None})),
        checks=intern(checks),  # equal in most repeats
        erased=bool(is_output_gone)
        or not all(digest for _, digest, _ in calls)
        or any(has_text and not digest for *_, has_text, digest in answers),
        earlier={turn: digest for turn, digest in texts.items() if digest and turn < last},
    )


def independent_samples(
    before: PlannedSamples, after: PlannedSamples
) -> tuple[PlannedSamples, PlannedSamples, bool]:
    """Return the samples of a test to compare, and whether they are the same conversations.

    If common conversations are judged differently, all samples are compared, as the same
    conversations. Otherwise, the conversations that only AFTER has are compared with BEFORE.
    A side may hold a conversation more often, in a replay of more repeats; its first sample counts.
    """
    before, after = _each_once(before), _each_once(after)
    old, new = ({each.conversation: each for each in side.samples} for side in (before, after))
    both = old.keys() & new.keys()
    if not both:
        return before, after, False
    if any(_judgement(old[each]) != _judgement(new[each]) for each in both):
        return before, after, True
    if own := [sample for name, sample in new.items() if name not in both]:
        return before, replace(after, samples=own), False
    same = [sample for name, sample in old.items() if name in both]
    return replace(before, samples=same), after, True


def _each_once(side: PlannedSamples) -> PlannedSamples:
    first = dict[str, Sample]()
    for sample in side.samples:
        first.setdefault(sample.conversation, sample)
    return side if len(first) == len(side.samples) else replace(side, samples=[*first.values()])


def _judgement(sample: Sample) -> tuple[Any, ...]:
    return sample.status, sample.failures, sample.scores
