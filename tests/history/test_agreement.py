"""What reviews tell of judges, of criteria and of recorded verdicts, and how sure that is."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from kindlm.history.reviews import (
    Agreement,
    JudgedCriterion,
    ReviewedExecution,
    Trust,
    compare_reviews,
    reviewed_executions,
)
from kindlm.history.rows import ReviewView
from kindlm.outcome import Status


def judged(passed: bool | None, label: str = "Is kind", judge: str | None = "j1") -> Any:
    return JudgedCriterion(label, judge, score=0.9, threshold=0.8, passed=passed)


def reviewed(
    people: str, *criteria: JudgedCriterion, checks_failed: bool = False, **fields: Any
) -> ReviewedExecution:
    """An execution that people, each a letter of `people`, pass (y) or fail (n)."""
    decided = [criterion.passed for criterion in criteria]
    failed = checks_failed or False in decided
    status = Status.FAILED if failed else Status.ERRORED if None in decided else Status.PASSED
    reviews = tuple(
        ReviewView(word == "y", None, f"person{place}", "2026-01-01T00:00:00.000000Z")
        for place, word in enumerate(people)
    )
    values = {"status": status, "error_code": None} | fields
    execution: Any = SimpleNamespace(id="k3f-1", run="k3f", number=1, **values)
    return ReviewedExecution(execution, reviews, criteria, checks_failed)


def cells(compared: Any) -> tuple[int, ...]:
    return (
        compared.both_passed,
        compared.judge_passed_only,
        compared.person_passed_only,
        compared.both_failed,
    )


def test_the_confusion_table_of_a_judge() -> None:
    found = compare_reviews(
        [reviewed("y", judged(True))] * 4
        + [reviewed("n", judged(True))] * 3
        + [reviewed("y", judged(False))] * 2
        + [reviewed("n", judged(False))]
    )
    (judge,) = found.judges
    assert cells(judge) == (4, 3, 2, 1)
    assert (judge.judge, judge.criterion, judge.reviews) == ("j1", None, 10)
    assert found.verdicts is not None
    assert cells(found.verdicts) == (4, 3, 2, 1)
    assert len(found.disagreements) == 5


def test_the_majority_decides_and_a_tie_decides_nothing() -> None:
    found = compare_reviews(
        [reviewed("yny", judged(True)), reviewed("nny", judged(True)), reviewed("yn", judged(True))]
    )
    (judge,) = found.judges
    assert cells(judge) == (1, 1, 0, 0)
    assert len(found.divided) == 1
    assert [len(execution.reviews) for execution in found.disagreements] == [3]
    assert found.people == ("person0", "person1", "person2")


def test_a_judge_with_an_undecided_criterion_is_left_out_whatever_the_others() -> None:
    found = compare_reviews([reviewed("n", judged(None, "Is kind"), judged(False, "Is short"))])
    assert found.judges == ()
    assert [each.criterion for each in found.criteria] == ["Is short"]
    assert found.left_out == 1


def test_an_execution_that_counts_for_one_of_its_judges_is_not_left_out() -> None:
    found = compare_reviews([reviewed("n", judged(True, judge="j1"), judged(False, judge="j2"))])
    assert [one.judge for one in found.judges] == ["j2"]
    assert found.left_out == 0


def test_a_known_kappa() -> None:
    # Both passed 20 and failed 15 of 50; by chance, they would agree on half.
    assert Agreement(20, 5, 10, 15).kappa == pytest.approx(0.4)
    assert Agreement(20, 10, 5, 15).kappa == pytest.approx(0.4)
    # 60 of 100 agree; by chance, (60 x 70 + 40 x 30) / 10,000 = 0.54.
    assert Agreement(45, 15, 25, 15).kappa == pytest.approx((0.6 - 0.54) / (1 - 0.54))


def test_what_only_checks_failed_says_nothing_of_a_judge_that_passes_it() -> None:
    found = compare_reviews(
        [
            reviewed("n", judged(True), checks_failed=True),
            reviewed("y", judged(True), checks_failed=True),
            reviewed("n", judged(True), error_code="ENGINE_MAX_TURNS", status=Status.ERRORED),
            reviewed("n", judged(False), checks_failed=True),
        ]
    )
    (judge,) = found.judges
    assert cells(judge) == (0, 0, 0, 1)
    assert found.left_out == 3
    assert found.errored == 1
    assert found.verdicts is not None
    assert cells(found.verdicts) == (0, 0, 1, 2)


def test_criteria_are_distinguished() -> None:
    found = compare_reviews(
        [
            reviewed("n", judged(True, "Is kind"), judged(False, "Is short")),
            reviewed("y", judged(True, "Is kind"), judged(True, "Is short")),
        ]
    )
    kind, short = found.criteria
    assert (kind.criterion, cells(kind)) == ("Is kind", (1, 0, 0, 0))
    assert (short.criterion, cells(short)) == ("Is short", (1, 0, 0, 1))
    (judge,) = found.judges
    assert cells(judge) == (1, 0, 0, 1)


def test_judges_are_distinguished() -> None:
    found = compare_reviews([reviewed("y", judged(True)), reviewed("y", judged(True, judge=None))])
    assert [(one.judge, cells(one)) for one in found.judges] == [
        ("", (1, 0, 0, 0)),
        ("j1", (1, 0, 0, 0)),
    ]


def test_executions_without_a_judge_count_for_verdicts() -> None:
    found = compare_reviews([reviewed("y"), reviewed("n", checks_failed=True)])
    assert (found.judges, found.criteria, found.left_out) == ((), (), 0)
    assert found.verdicts is not None
    assert cells(found.verdicts) == (1, 0, 0, 1)


def test_a_judge_that_could_not_decide_is_left_out() -> None:
    found = compare_reviews([reviewed("y", judged(None))])
    assert (found.judges, found.left_out, found.errored) == ((), 1, 1)


def test_agreement_beyond_chance() -> None:
    # J. Cohen's own kind of table: 20 both, 5 and 10 alone, 15 neither.
    found = Agreement(20, 5, 10, 15)
    assert found.observed == pytest.approx(0.7)
    assert found.kappa == pytest.approx(0.4)


def test_agreement_that_chance_alone_would_give_has_no_kappa() -> None:
    found = Agreement(5, 0, 0, 0)
    assert (found.observed, found.kappa) == (1.0, None)
    assert compare_reviews([]).verdicts is None


@pytest.mark.parametrize(
    ("agreed", "differed", "trust"),
    [(60, 2, Trust.TRUSTED), (10, 1, Trust.UNDECIDED), (30, 25, Trust.NOT_TRUSTED)],
)
def test_a_judge_is_trusted_once_enough_reviews_agree(
    agreed: int, differed: int, trust: Trust
) -> None:
    executions = [
        reviewed("yn"[number % 2], judged(number % 2 == 0)) for number in range(agreed)
    ] + [reviewed("yn"[number % 2], judged(number % 2 == 1)) for number in range(differed)]
    (judge,) = compare_reviews(executions).judges
    assert judge.trust is trust


def test_full_agreement_of_few_is_not_certain() -> None:
    few, many = Agreement(5, 0, 0, 5).interval, Agreement(50, 0, 0, 50).interval
    assert few is not None
    assert many is not None
    assert few[0] < 0.6 < many[0]
    assert few[1] == many[1] == 1.0


def test_the_interval_holds_the_estimate_and_stays_in_bounds() -> None:
    for cells in [(20, 3, 2, 15), (1, 9, 9, 1), (30, 0, 3, 0), (0, 5, 5, 0)]:
        found = Agreement(*cells)
        low, high = found.interval or (9.0, -9.0)
        assert found.kappa is not None
        assert -1 <= low <= found.kappa <= high <= 1


def test_without_a_kappa_there_is_none() -> None:
    assert Agreement(7, 0, 0, 0).interval is None


@pytest.mark.parametrize(
    ("kappa", "rate", "n"), [(0.3, 0.5, 20), (0.6, 0.75, 60), (0.6, 0.5, 20), (0.8, 0.75, 20)]
)
def test_the_level_holds(kappa: float, rate: float, n: int) -> None:
    dice = random.Random(f"{kappa} {rate} {n}")
    chance = rate * (1 - rate)
    weights = [
        rate**2 + kappa * chance,
        chance * (1 - kappa),
        chance * (1 - kappa),
        (1 - rate) ** 2 + kappa * chance,
    ]
    missed = too_high = drawn = 0
    for _ in range(800):
        cells = Counter(dice.choices(range(4), weights, k=n))
        found = Agreement(*(cells[place] for place in range(4)))
        interval = found.interval
        if interval is None:
            continue
        drawn += 1
        missed += not interval[0] <= kappa <= interval[1]
        too_high += interval[0] > kappa
    assert missed / drawn < 0.08
    assert too_high / drawn < 0.045, "a judge is not trusted that should not be"


def test_the_last_review_by_each_person_of_what_has_ended_counts(history: Any, make: Any) -> None:
    run = history.run("abc11111")
    run.suite(tests=[make.planned(repeat=2)])
    run.execution(assertions=(make.passed(),))
    run.execution(repeat=2, finished=False)
    run.leave()
    for passed in (True, False):
        for execution in (1, 2):
            history.review("abc11111", execution, passed=passed)
    history.review("abc11111", 1, passed=True, by="you")
    (found,) = reviewed_executions(history.reader(), run=None, suite=None, since=None)
    assert found.execution.id == "abc11111-1"
    assert {review.by: review.passed for review in found.reviews} == {"me": False, "you": True}


def test_the_judge_of_a_criterion_is_that_of_the_last_attempt(history: Any, make: Any) -> None:
    criterion = make.passed("judge", "Is kind", score=0.9)
    run = history.run("abc11111")
    run.suite(tests=[make.planned()])
    run.execution(assertions=(criterion,), judge="0.1", judge_answers_as="old", retried=True)
    run.execution(
        number=1,
        attempt=2,
        earlier=("Hm.",),
        assertions=(criterion,),
        judge="0.9",
        judge_answers_as="new",
    )
    run.finish()
    history.review("abc11111", 1, passed=True)
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("UPDATE provider_calls SET assertion = 0 WHERE purpose = 'judge'")
    (found,) = reviewed_executions(history.reader(), run=None, suite=None, since=None)
    assert [each.judge for each in found.criteria] == ["new"]


def test_reviews_of_a_run_that_began_at_the_given_time_count(history: Any, make: Any) -> None:
    for identity in ("abc11111", "abc22222"):
        run = history.run(identity)
        run.suite(tests=[make.planned()])
        run.execution(assertions=(make.passed(),))
        run.finish()
        history.review(identity, 1, passed=True)
    db = history.reader()
    (since,) = db.execute("SELECT max(started_at) FROM runs").fetchone()
    (found,) = reviewed_executions(db, run=None, suite=None, since=since)
    assert found.execution.id == "abc22222-1"
