"""Human verdicts on executions, and whether judges agree with them.

A review belongs to a conversation. If a later run checked the same conversation again, the review
is compared with the results of that run.

A person passes or fails a whole execution. If a judge passed an execution that failed another
check, the person may have objected to something that the judge was not asked about. Such executions
are left out of the figures of the judge, and likewise of a criterion.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from kindlm.dataclass import dataclass
from kindlm.history.rows import ExecutionView, ReviewView
from kindlm.history.run_view import RunView
from kindlm.history.statistics import wilson_interval

SUBSTANTIAL = 0.6
"""The kappa from which agreement is called substantial.

J. R. Landis and G. G. Koch, "The Measurement of Observer Agreement for Categorical Data",
Biometrics 33 (1977), 159-174.
"""

# The newest execution of each conversation.
_EXECUTIONS = """
WITH looked_at AS (
  SELECT e.id, e.run, e.started_at,
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
SELECT run, id FROM looked_at WHERE age = 1 ORDER BY started_at, id
"""

# All calls of a judge to decide an assertion have the same model.
_JUDGES = """
SELECT (SELECT coalesce(c.reported_model, c.model) FROM provider_calls c
         WHERE c.execution = a.execution AND c.attempt = a.attempt
           AND c.purpose = 'judge' AND c.assertion = a.position
         ORDER BY c.status = 'responded' DESC, c.call LIMIT 1)
  FROM assertions a
 WHERE a.execution = ? AND a.attempt = ? AND a.kind = 'judge'
 ORDER BY a.position
"""


class JudgedCriterion(NamedTuple):
    """The verdict of a judge on an execution; `passed` is None if it gave none."""

    label: str
    judge: str | None
    score: float | None
    threshold: float | None
    passed: bool | None


@dataclass(frozen=True, slots=True)
class ReviewedExecution:
    """A reviewed execution, with the verdicts of judges, and whether another check did not pass."""

    execution: ExecutionView
    reviews: tuple[ReviewView, ...]
    criteria: tuple[JudgedCriterion, ...]
    checks_failed: bool

    @property
    def people(self) -> bool | None:
        """The verdict of the majority of reviewers; None if they are evenly divided."""
        passed = sum(review.passed for review in self.reviews)
        failed = len(self.reviews) - passed
        return None if passed == failed else passed > failed

    @property
    def recorded(self) -> bool | None:
        """The recorded verdict; None if it errored."""
        return _PASSES.get(self.execution.status or "")

    def counts_for(self, criteria: Sequence[JudgedCriterion]) -> bool:
        """Return whether all these criteria were decided, and one failed, or nothing else did."""
        if any(criterion.passed is None for criterion in criteria):
            return False
        if not all(criterion.passed for criterion in criteria):
            return True
        others_failed = self.execution.error_code is not None or self.checks_failed
        return not others_failed and all(criterion.passed for criterion in self.criteria)


_PASSES: dict[str, bool] = {"passed": True, "failed": False}
"""Verdicts by the status of an execution or the outcome of an assertion."""


class Trust(StrEnum):
    """Whether the reviews show substantial agreement between a judge and people."""

    TRUSTED = "trusted"
    NOT_TRUSTED = "not trusted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a judge and people agree on executions.

    `judge` is the model, "" if it is unknown, None if people are compared with the recorded
    verdicts. `criterion` is None if all criteria of the judge count together.
    """

    both_passed: int
    judge_passed_only: int
    person_passed_only: int
    both_failed: int
    judge: str | None = None
    criterion: str | None = None

    @property
    def reviews(self) -> int:
        """The number of compared executions; at least one."""
        return self.agreed + self.judge_passed_only + self.person_passed_only

    @property
    def agreed(self) -> int:
        """The number of executions with the same verdict."""
        return self.both_passed + self.both_failed

    @property
    def observed(self) -> float:
        """The share of executions with the same verdict."""
        return self.agreed / self.reviews

    @property
    def kappa(self) -> float | None:
        """The agreement beyond chance: 1 at best, 0 for chance, None if chance would always agree.

        kappa = (observed - expected) / (1 - expected): J. Cohen, "A Coefficient of Agreement for
        Nominal Scales", Educational and Psychological Measurement 20 (1960), 37-46.
        """
        return self._beyond_chance(self.observed)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of kappa; None without kappa.

        The agreement by chance is treated as known, as in Cohen's own standard error (equation 8).
        The interval of the observed agreement is Wilson's, which has a width even if all agree.

            (w - expected) / (1 - expected), for both ends w of Wilson's interval
        """
        ends = wilson_interval(self.agreed, self.reviews) or ()
        kappas = [kappa for kappa in map(self._beyond_chance, ends) if kappa is not None]
        return (max(-1.0, kappas[0]), kappas[1]) if kappas else None

    @property
    def trust(self) -> Trust:
        """Whether the interval of kappa is above `SUBSTANTIAL`, below it, or undecided."""
        interval = self.interval
        if interval is None or interval[0] < SUBSTANTIAL <= interval[1]:
            return Trust.UNDECIDED
        return Trust.TRUSTED if interval[0] >= SUBSTANTIAL else Trust.NOT_TRUSTED

    def _beyond_chance(self, agreement: float) -> float | None:
        judge = (self.both_passed + self.judge_passed_only) / self.reviews
        person = (self.both_passed + self.person_passed_only) / self.reviews
        expected = judge * person + (1 - judge) * (1 - person)
        return None if expected == 1 else (agreement - expected) / (1 - expected)


@dataclass(frozen=True, slots=True)
class PeopleAndJudges:
    """The comparison of all reviews.

    `verdicts` compares people with the recorded verdicts of whole executions. Reviewers are evenly
    `divided` on some. `errored` counts executions without a recorded verdict, `left_out` those that
    a judge graded but no figure of a judge includes.
    """

    reviewed: int
    people: tuple[str, ...]
    verdicts: Agreement | None
    judges: tuple[Agreement, ...]
    criteria: tuple[Agreement, ...]
    disagreements: tuple[ReviewedExecution, ...]
    divided: tuple[ReviewedExecution, ...]
    errored: int
    left_out: int


def reviewed_executions(
    db: sqlite3.Connection, *, run: str | None, suite: str | None, since: str | None
) -> list[ReviewedExecution]:
    """Return the executions that people reviewed, in the order in which they ran.

    They are of runs that began at `since` (UTC, ISO 8601) or later, as far as it is given.
    """
    wanted = {"run": run, "suite": suite, "since": since}
    found = []
    for in_run, identity in db.execute(_EXECUTIONS, wanted).fetchall():
        view = RunView(db, in_run)
        execution = view.execution(identity)
        assert execution is not None
        assertions = view.assertions(execution)
        judges = db.execute(_JUDGES, (execution.id, execution.attempt))
        judged = (assertion for assertion in assertions if assertion.kind == "judge")
        criteria = (
            JudgedCriterion(it.label, judge, it.score, it.threshold, _PASSES.get(it.outcome))
            for it, (judge,) in zip(judged, judges, strict=True)
        )
        others_failed = any(each.is_wrong for each in assertions if each.kind != "judge")
        reviews = tuple(view.reviews(execution))
        found.append(ReviewedExecution(execution, reviews, tuple(criteria), others_failed))
    return found


def compare_reviews(executions: Sequence[ReviewedExecution]) -> PeopleAndJudges:
    """Compare the verdicts of people on executions with those of judges, and the recorded ones."""
    clear = [execution for execution in executions if execution.people is not None]
    decided = [execution for execution in clear if execution.recorded is not None]
    # Pairs of verdicts, of a judge and of people, by criterion ("" for all together) and judge.
    pairs = defaultdict[tuple[str, str], list[tuple[bool | None, bool | None]]](list)
    left_out = 0
    for execution in clear:
        judged = defaultdict[tuple[str, str], list[JudgedCriterion]](list)
        for criterion in execution.criteria:
            for label in ("", criterion.label):
                judged[label, criterion.judge or ""].append(criterion)
        counted = [key for key, own in judged.items() if execution.counts_for(own)]
        for key in counted:
            passed = all(criterion.passed for criterion in judged[key])
            pairs[key].append((passed, execution.people))
        left_out += bool(judged) and all(label for label, _ in counted)
    found = [_count_agreement(pairs[key], *key) for key in sorted(pairs)]
    return PeopleAndJudges(
        reviewed=len(executions),
        people=tuple(sorted({review.by for each in executions for review in each.reviews})),
        verdicts=_count_agreement((e.recorded, e.people) for e in decided) if decided else None,
        judges=tuple(each for each in found if each.criterion is None),
        criteria=tuple(each for each in found if each.criterion is not None),
        disagreements=tuple(e for e in decided if e.recorded is not e.people),
        divided=tuple(execution for execution in executions if execution.people is None),
        errored=len(clear) - len(decided),
        left_out=left_out,
    )


def _count_agreement(
    pairs: Iterable[tuple[bool | None, bool | None]], criterion: str = "", judge: str | None = None
) -> Agreement:
    """Count pairs of verdicts: (the judge passed it, people passed it)."""
    cells = Counter(pairs)
    return Agreement(
        both_passed=cells[True, True],
        judge_passed_only=cells[True, False],
        person_passed_only=cells[False, True],
        both_failed=cells[False, False],
        judge=judge,
        criterion=criterion or None,
    )
