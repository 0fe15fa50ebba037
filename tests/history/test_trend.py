"""A test over its runs: how flaky it is, and what it cost."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from recorded_history import History, Make

from kindlm.events.run import GitState
from kindlm.history.trends import Trend, find_tests, read_trend, repeat_statistics
from kindlm.plan import QualifiedName


def record(history: History, run: str, *signs: str, mode: str = "live") -> None:
    """Record a run of a test; each repeat passed (`+`), failed (`-`), or passed later (`-+`)."""
    made = {"+": Make.passed, "-": Make.failed}
    writer = history.run(run, mode=mode)
    writer.suite(tests=[Make.planned(repeat=len(signs))])
    for number, attempts in enumerate(signs, start=1):
        for attempt, sign in enumerate(attempts, start=1):
            writer.execution(
                repeat=number,
                number=number,
                attempt=attempt,
                assertions=(made[sign](),),
                retried=attempt < len(attempts),
            )
    writer.finish()


def trend(history: History) -> Trend:
    name = QualifiedName("shop", "support", "greets", "gpt")
    return read_trend(history.reader(), name, limit=9)


def test_what_passed_only_when_it_was_run_again_counts_as_flaky(history: History) -> None:
    record(history, "aaaa2222", "+", "+")
    record(history, "bbbb2222", "+", "-+")
    found = trend(history)
    assert found.flakiness == (2 / 4, 1.0)
    assert found.passed_later == (1, 4)
    assert [point.test.flaky for point in found.points] == [True, False]


def test_each_repeat_that_passed_later_counts(history: History) -> None:
    record(history, "aaaa2222", "-+", "-+", "+", "-")
    assert trend(history).passed_later == (2, 4)


def test_only_live_runs_show_how_flaky_a_test_is(history: History) -> None:
    for run, sign, mode in (
        ("aaaa2222", "+", "live"),
        ("bbbb2222", "-", "imported"),
        ("cccc2222", "+", "live"),
    ):
        record(history, run, sign, mode=mode)
    found = trend(history)
    assert len(found.counted) == 3
    assert found.flakiness.between == 0.0


def test_a_cost_with_an_unknown_part_is_unknown(history: History) -> None:
    for run, costs in (("aaaa2222", (0.002, 0.003)), ("bbbb2222", (0.002, None))):
        writer = history.run(run)
        writer.suite(tests=[Make.planned(repeat=2)])
        for repeat, cost in enumerate(costs, start=1):
            writer.execution(repeat=repeat, assertions=(Make.passed(),), cost_usd=cost)
        writer.finish()
    assert [point.cost_usd for point in trend(history).points] == [None, pytest.approx(0.005)]


def test_a_run_that_never_came_to_the_test_leaves_a_gap(history: History) -> None:
    record(history, "aaaa2222", "+")
    stopped = history.run("bbbb2222")
    stopped.suite(tests=[Make.planned()])
    stopped.interrupt()
    found = trend(history)
    assert [point.run.id for point in found.counted] == ["bbbb2222", "aaaa2222"]
    assert found.flakiness.between is None


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Größe", ["Größe"]),
        ("GRÖSSE", ["Größe", "Größe prüfen"]),
        ("prÜf", ["Größe prüfen"]),
        ("Preis", []),
    ],
)
def test_a_test_is_found_by_its_name_or_a_part_of_it_in_any_case(
    history: History, name: str, found: list[str]
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[Make.planned("Größe"), Make.planned("Größe prüfen")])
    writer.finish()
    assert [test.name for test in find_tests(history.reader(), name)] == found


def test_the_models_of_a_run_are_those_that_answered_for_the_target(history: History) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[Make.planned()])
    writer.execution(
        failures=(Make.provider_failed(),),
        assertions=(Make.passed(),),
        answers_as="gpt-2026",
        judge="0.9",
    )
    writer.finish()
    assert [point.models for point in trend(history).points] == [("gpt-2026",)]


@pytest.mark.parametrize(("purpose", "counts"), [("test", False), ("judge", True)])
def test_a_run_with_recorded_answers_of_its_target_does_not_count(
    history: History, purpose: str, counts: bool
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[Make.planned()])
    writer.execution(assertions=(Make.passed(),), judge="0.9")
    writer.finish()
    with closing(sqlite3.connect(history.path)) as db, db:
        recorded = "UPDATE provider_calls SET recorded_in = 'bbbb2222-1.1/1' WHERE purpose = ?"
        db.execute(recorded, (purpose,))
    assert len(trend(history).counted) == counts


def test_the_score_of_judges_is_the_mean_over_criteria_of_last_attempts(history: History) -> None:
    def judged(**scores: float) -> tuple[Any, ...]:
        return tuple(Make.passed("judge", label, score=score) for label, score in scores.items())

    writer = history.run("aaaa2222")
    writer.suite(tests=[Make.planned(repeat=2)])
    writer.execution(number=1, assertions=judged(kind=0.0), retried=True)
    writer.execution(number=1, attempt=2, assertions=judged(kind=1.0, brief=0.4))
    writer.execution(number=2, repeat=2, assertions=judged(kind=0.8))
    writer.finish()
    (point,) = trend(history).points
    assert point.judge == pytest.approx((0.9 + 0.4) / 2)


def test_the_score_of_repeats_is_the_weighted_score_of_their_last_attempts(
    history: History,
) -> None:
    def scored(score: float | None) -> tuple[Any, ...]:
        return (
            Make.passed("judge", "kind", score=0.1),
            Make.passed("weighted_score", "weighted score", score=score),
        )

    writer = history.run("aaaa2222")
    writer.suite(tests=[Make.planned(repeat=3), Make.planned("parts")])
    writer.execution(number=1, assertions=scored(0.2), retried=True)
    writer.execution(number=1, attempt=2, assertions=scored(0.6))
    writer.execution(number=2, repeat=2, assertions=scored(0.8))
    writer.execution(number=3, repeat=3, assertions=scored(None))
    writer.execution("parts", number=4, assertions=scored(0.4))
    view = writer.finish()
    found = repeat_statistics(view.db, next(iter(view.tests())))
    assert found is not None
    assert found.score is not None
    assert (found.n, found.score.n, found.score.mean) == (3, 2, pytest.approx(0.7))


def test_only_runs_that_selected_the_test_of_this_project_are_its_runs(history: History) -> None:
    for run, project, selected in (
        ("aaaa2222", "shop", True),
        ("bbbb2222", "other", True),
        ("cccc2222", "shop", False),
    ):
        writer = history.run(run, project=project)
        writer.suite(tests=[Make.planned(selected=selected)], project=project)
        writer.execution(assertions=(Make.passed(),))
        writer.finish()
    assert [point.run.id for point in trend(history).points] == ["aaaa2222"]


def test_what_changed_since_the_run_before_is_told(history: History) -> None:
    states = (
        GitState(commit="a" * 40),
        GitState(commit="a" * 40, dirty=True),
        GitState(commit="a" * 40, dirty=True),
        GitState(commit="b" * 40),
        GitState(commit="b" * 40),
        None,
    )
    for number, git in enumerate(states):
        writer = history.run(f"aaaa222{number}", git=git)
        writer.suite(tests=[Make.planned()])
        writer.finish()
    told = [point.changes for point in reversed(trend(history).points)]
    moved, removed = "git aaaaaaaa → bbbbbbbb", "git bbbbbbbb → none"
    assert told == [(), ("uncommitted changes",), (), (moved,), (), (removed,)]


def test_a_run_that_began_at_the_given_time_counts(history: History) -> None:
    for run in ("aaaa2222", "bbbb2222", "cccc2222"):
        record(history, run, "+")
    since = next(p.run.started_at for p in trend(history).points if p.run.id == "bbbb2222")
    name = QualifiedName("shop", "support", "greets", "gpt")
    found = read_trend(history.reader(), name, limit=9, since=since)
    assert [point.run.id for point in found.points] == ["cccc2222", "bbbb2222"]
