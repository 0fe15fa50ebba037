"""What people said of executions, and whether judges and people agree.

A review is about a conversation. Where a later run looked at the same conversation again, with
another judge or other checks, it is compared with what that run found.

People say of a whole execution whether it passes. Where a judge passes what something else failed,
that tells nothing of the judge: what people hold against the execution need not be what the judge
was asked. Such executions are left out of the judge's figures, whatever people say of them, and so
with a criterion.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kindlm.history.rows import ReviewView
from kindlm.history.run_view import RunView
from kindlm.history.statistics.agreement import (
    Agreement,
    agreement,
    kappa_interval,
    reviews_needed,
)
from kindlm.outcome import Outcome, Status

__all__ = [
    "SUBSTANTIAL",
    "Comparison",
    "Conversation",
    "JudgedCriterion",
    "PeopleAndJudges",
    "ReviewedExecution",
    "Trust",
    "compare_reviews",
    "conversation_of",
    "last_review",
    "reviewed_executions",
]

_NOT_PASSED = (Outcome.FAILED, Outcome.INCONCLUSIVE)

_CONVERSATION = """
SELECT e.source, o.run, o.number
  FROM executions e
  LEFT JOIN executions o ON o.id = e.source
 WHERE e.id = ?
"""

_LAST = """
SELECT passed, NULL AS note, "by", at FROM reviews WHERE execution = ? AND "by" = ?
"""

# Of a conversation that several runs looked at, the newest execution: what is judged as of now.
_EXECUTIONS = """
WITH looked_at AS (
  SELECT e.*, s.name AS suite_name,
         row_number() OVER (PARTITION BY e.source ORDER BY r.started_at DESC, e.id) AS age
    FROM runs r
    JOIN executions e ON e.run = r.id
    JOIN suites s ON s.id = e.suite
   WHERE (r.id IN (SELECT run FROM reviews) OR r.source_run IS NOT NULL)
     AND e.source IN (SELECT execution FROM reviews)
     AND e.status IS NOT NULL
     AND (:run IS NULL OR r.id = :run)
     AND (:suite IS NULL OR s.name = :suite)
     AND (:since IS NULL OR r.started_at >= :since))
SELECT id, run, number, source, suite_name, test, target, repeat, attempt, status, error_code
  FROM looked_at WHERE age = 1
 ORDER BY started_at, id
"""

_REVIEWS = """
SELECT v.passed, n.body AS note, v."by", v.at
  FROM reviews v
  LEFT JOIN shown_texts n ON n.ref = v.note_ref
 WHERE v.execution = ?
 ORDER BY v.at, v.event
"""

# Of several passes of one judge, and of their retries, every call has the same model.
_ASSERTIONS = """
SELECT a.kind, a.label, a.outcome, a.score, a.threshold, a.advisory,
       (SELECT coalesce(c.reported_model, c.model) FROM provider_calls c
         WHERE c.execution = a.execution AND c.attempt = a.attempt
           AND c.purpose = 'judge' AND c.assertion = a.position
         ORDER BY c.status = 'responded' DESC, c.call LIMIT 1) AS judge
  FROM assertions a
 WHERE a.execution = ? AND a.attempt = ?
 ORDER BY a.position
"""


class Conversation(NamedTuple):
    """The execution that held a conversation; `id` is that of the execution."""

    id: str
    run: str
    number: int


@dataclass(frozen=True, slots=True)
class JudgedCriterion:
    """What a judge said of an execution; `passed` is None if it gave no verdict."""

    label: str
    judge: str | None
    score: float | None
    threshold: float | None
    passed: bool | None


@dataclass(frozen=True, slots=True)
class ReviewedExecution:
    """An execution that people reviewed, with what judges said of it.

    `checks_failed` tells that something else than a judge failed, or could not be decided.
    """

    id: str
    run: str
    number: int
    suite: str
    test: str
    target: str
    repeat: int
    status: Status
    error_code: str | None
    reviews: tuple[ReviewView, ...]
    criteria: tuple[JudgedCriterion, ...]
    checks_failed: bool

    @property
    def people(self) -> bool | None:
        """Whether it passes, as most people who reviewed it say; None if they are divided."""
        passed = sum(review.passed for review in self.reviews)
        failed = len(self.reviews) - passed
        return None if passed == failed else passed > failed

    @property
    def recorded(self) -> bool | None:
        """Whether it passed, as it was recorded; None if it errored."""
        return {Status.PASSED: True, Status.FAILED: False}.get(self.status)


SUBSTANTIAL = 0.6
"""The kappa from which agreement is called substantial.

J. R. Landis and G. G. Koch, "The Measurement of Observer Agreement for Categorical Data",
Biometrics 33 (1977), 159-174.
"""


class Trust(StrEnum):
    """Whether a judge agrees with people substantially, as far as the reviews tell."""

    TRUSTED = "trusted"
    NOT_TRUSTED = "not trusted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Comparison:
    """People beside a judge, or beside the recorded verdicts: `judge` and `criterion` are None.

    `criterion` is None where the judge is looked at over all its criteria; `judge` is its model,
    empty if it is not known. `needed` is how many reviews more would tell whether to trust, if
    they come out like these; None where that can not be said.
    """

    judge: str | None
    criterion: str | None
    table: Agreement
    interval: tuple[float, float] | None
    needed: int | None

    @property
    def reviews(self) -> int:
        """How many executions are compared."""
        return self.table.reviews

    @property
    def trust(self) -> Trust:
        """What the interval of kappa says."""
        if self.interval is None or self.interval[0] < SUBSTANTIAL <= self.interval[1]:
            return Trust.UNDECIDED
        return Trust.TRUSTED if self.interval[0] >= SUBSTANTIAL else Trust.NOT_TRUSTED


@dataclass(frozen=True, slots=True)
class PeopleAndJudges:
    """All that reviews tell.

    `verdicts` compares people with what was recorded of whole executions, `judges` with each
    judge, `criteria` with each criterion of each judge. `disagreements` are the executions whose
    recorded verdict is not that of people, `divided` those on which people disagree among
    themselves, `errored` those without a recorded verdict. `left_out` counts executions that
    judges looked at and that nevertheless tell nothing of them.
    """

    reviewed: int
    people: tuple[str, ...]
    verdicts: Comparison | None
    judges: tuple[Comparison, ...]
    criteria: tuple[Comparison, ...]
    disagreements: tuple[ReviewedExecution, ...]
    divided: tuple[ReviewedExecution, ...]
    errored: int
    left_out: int


def conversation_of(db: sqlite3.Connection, execution: str) -> Conversation:
    """Return the execution that held the conversation that an execution looks at."""
    source, run, number = db.execute(_CONVERSATION, (execution,)).fetchone()
    if run is None:
        # That run is not in this history; its id and the number are in the name.
        run, _, number = source.rpartition("-")
    return Conversation(source, run, int(number))


def last_review(db: sqlite3.Connection, conversation: str, by: str) -> ReviewView | None:
    """Return what somebody said of a conversation last, without the note."""
    row = db.execute(_LAST, (conversation, by)).fetchone()
    return None if row is None else ReviewView(bool(row[0]), *row[1:])


def reviewed_executions(
    db: sqlite3.Connection,
    *,
    run: str | None = None,
    suite: str | None = None,
    since: str | None = None,
) -> list[ReviewedExecution]:
    """Return what people reviewed, in the order it was tested.

    Args:
        db: A read-only connection.
        run: Only what this run has of it.
        suite: Only executions of the suites of this name.
        since: Only executions of runs that began then or later, UTC, ISO 8601.
    """
    wanted = {"run": run, "suite": suite, "since": since}
    return [_reviewed(db, row) for row in db.execute(_EXECUTIONS, wanted).fetchall()]


def compare_reviews(executions: Sequence[ReviewedExecution]) -> PeopleAndJudges:
    """Compare what people said of executions with what judges said, and what was recorded."""
    clear = [execution for execution in executions if execution.people is not None]
    told = [execution for execution in clear if execution.recorded is not None]
    return PeopleAndJudges(
        reviewed=len(executions),
        people=tuple(sorted({review.by for each in executions for review in each.reviews})),
        verdicts=_comparison(None, None, [(e.recorded, e.people) for e in told]),
        judges=tuple(_grouped(clear, _by_judge)),
        criteria=tuple(_grouped(clear, _by_criterion)),
        disagreements=tuple(e for e in told if e.recorded is not e.people),
        divided=tuple(execution for execution in executions if execution.people is None),
        errored=len(clear) - len(told),
        left_out=sum(bool(e.criteria) and next(_by_judge(e), None) is None for e in clear),
    )


def _reviewed(db: sqlite3.Connection, row: sqlite3.Row) -> ReviewedExecution:
    reviews = [_review(db, row, said) for said in db.execute(_REVIEWS, (row["source"],)).fetchall()]
    assertions = db.execute(_ASSERTIONS, (row["id"], row["attempt"])).fetchall()
    return ReviewedExecution(
        id=row["id"],
        run=row["run"],
        number=row["number"],
        suite=row["suite_name"],
        test=row["test"],
        target=row["target"],
        repeat=row["repeat"],
        status=Status(row["status"]),
        error_code=row["error_code"],
        reviews=tuple(reviews),
        criteria=tuple(_criterion(one) for one in assertions if one["kind"] == "judge"),
        checks_failed=any(
            one["outcome"] in _NOT_PASSED and not one["advisory"]
            for one in assertions
            if one["kind"] != "judge"
        ),
    )


def _review(db: sqlite3.Connection, reviewed: sqlite3.Row, said: sqlite3.Row) -> ReviewView:
    note = said["note"]
    if note is not None:
        view = RunView(db, reviewed["run"])
        execution = view.execution(reviewed["id"])
        note = None if execution is None else view.shown_note(execution, note)
    return ReviewView(bool(said["passed"]), note, said["by"], said["at"])


def _criterion(row: sqlite3.Row) -> JudgedCriterion:
    outcome = Outcome(row["outcome"])
    return JudgedCriterion(
        label=row["label"],
        judge=row["judge"],
        score=row["score"],
        threshold=row["threshold"],
        passed={Outcome.PASSED: True, Outcome.FAILED: False}.get(outcome),
    )


_Key = tuple[str, str | None]
_Verdicts = Iterator[tuple[_Key, bool]]


def _by_judge(execution: ReviewedExecution) -> _Verdicts:
    """Yield the verdicts of the judges of which the execution tells something."""
    for judge in dict.fromkeys(criterion.judge or "" for criterion in execution.criteria):
        own = [c for c in execution.criteria if (c.judge or "") == judge]
        if _tells_of(execution, own):
            yield (judge, None), all(criterion.passed for criterion in own)


def _by_criterion(execution: ReviewedExecution) -> _Verdicts:
    """Yield the verdicts on the criteria of which the execution tells something."""
    for criterion in execution.criteria:
        if _tells_of(execution, [criterion]):
            yield (criterion.judge or "", criterion.label), bool(criterion.passed)


def _tells_of(execution: ReviewedExecution, criteria: Sequence[JudgedCriterion]) -> bool:
    """Tell whether these were decided, and either one of them failed or nothing else did."""
    verdicts = [criterion.passed for criterion in criteria]
    if None in verdicts:
        return False
    others = [criterion for criterion in execution.criteria if criterion not in criteria]
    nothing_else_failed = (
        execution.error_code is None
        and not execution.checks_failed
        and all(criterion.passed for criterion in others)
    )
    return False in verdicts or nothing_else_failed


def _grouped(
    executions: Iterable[ReviewedExecution], verdicts: Callable[[ReviewedExecution], _Verdicts]
) -> Iterator[Comparison]:
    pairs: dict[_Key, list[tuple[bool | None, bool | None]]] = {}
    for execution in executions:
        for key, passed in verdicts(execution):
            pairs.setdefault(key, []).append((passed, execution.people))
    for judge, criterion in sorted(pairs, key=lambda key: (key[1] or "", key[0])):
        compared = _comparison(judge, criterion, pairs[judge, criterion])
        if compared is not None:
            yield compared


def _comparison(
    judge: str | None, criterion: str | None, pairs: Iterable[tuple[bool | None, bool | None]]
) -> Comparison | None:
    """Compare verdicts, all of which are there; None if there are none."""
    table = agreement((bool(one), bool(other)) for one, other in pairs)
    if table is None:
        return None
    return Comparison(
        judge, criterion, table, kappa_interval(table), reviews_needed(table, SUBSTANTIAL)
    )
