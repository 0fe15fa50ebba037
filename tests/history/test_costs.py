"""What was paid: the same in every list, page and report."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from kindlm.history.queries import UNPRICED, Paid, paid_for_execution, paid_for_runs
from kindlm.history.recorded_attempts import RecordedAttempt
from kindlm.history.runs import RunFilter, read_figures, runs
from kindlm.history.trends import read_trend
from kindlm.plan import QualifiedName
from kindlm.reports.facts import cost_of, totals_of
from kindlm.reports.figures import cost
from kindlm.transcript import CostSource, PaidBefore

TEST = QualifiedName("shop", "support", "greets", "gpt")


@pytest.fixture
def judged(history: Any, make: Any) -> Any:
    """A run of one test: two attempts and a judge; an answer costs $0.001, the judge $0.002."""
    run = history.run("abc11111")
    run.suite(tests=[make.planned()])
    run.execution(finished=False)
    run.execution(number=1, attempt=2, assertions=(make.passed(),), judge="0.9")
    return run.finish()


def test_judges_and_earlier_attempts_count_everywhere(judged: Any, history: Any) -> None:
    db = judged.db
    assert paid_for_runs(db, ["abc11111"])["abc11111"].total_usd == pytest.approx(0.004)
    (run,) = runs(db, RunFilter())
    assert read_figures(db, [run])[run.id].paid.total_usd == pytest.approx(0.004)
    assert judged.summary.paid.total_usd == pytest.approx(0.004)
    assert read_trend(db, TEST, limit=1).points[0].cost_usd == pytest.approx(0.004)
    assert paid_for_execution(db, "abc11111-1").total_usd == pytest.approx(0.004)
    (test,) = judged.tests()
    assert cost_of(judged, test) == "$0.0040"


@pytest.mark.parametrize(
    ("paid", "told"),
    [
        (Paid(), "none"),
        (Paid(0.5), "$0.50"),
        (Paid(0.5, 0.25), "$0.75 (agents $0.50, judges $0.25)"),
        (Paid(None, 0.25), "$0.25 (judges $0.25)"),
        (Paid(0.0, 0.25), "$0.25 (agents $0, judges $0.25)"),
        (Paid(0.5, None, 2), "$0.50 + unknown"),
        (Paid(0.5, 0.25, 1), "$0.75 (agents $0.50, judges $0.25) + unknown"),
        (Paid(None, None, 1), "unknown"),
    ],
)
def test_agents_and_judges_are_distinguished(paid: Paid, told: str) -> None:
    assert cost(paid) == told


def test_of_a_rescored_run_it_is_known_that_no_agent_was_called(history: Any, make: Any) -> None:
    run = history.run("abc11111", mode="rescored", source_run="abd22222")
    run.suite(tests=[make.planned()])
    run.execution(output=None, assertions=(make.passed(),), judge="0.9")
    view = run.finish()
    paid = paid_for_runs(view.db, ["abc11111"])["abc11111"]
    assert (paid.agents_usd, paid.judges_usd) == (0.0, pytest.approx(0.002))
    assert view.summary.paid == paid


def test_a_rescored_run_counts_what_all_tries_and_attempts_cost_then(
    history: Any, make: Any
) -> None:
    live = history.run("abd22222")
    live.suite(tests=[make.planned()])
    live.execution(retried=True)
    failed = make.provider_failed(cost_usd=0.5)
    live.execution(number=1, attempt=2, failures=(failed,), assertions=(make.passed(),))
    then = live.finish().suites[0].figures
    rescored = history.run("abc11111", mode="rescored", source_run="abd22222")
    rescored.suite(tests=[make.planned()])
    rescored.execution(output=None, source="abd22222-1.2", assertions=(make.passed(),))
    view = rescored.finish()

    # An attempt that begins again is given the same again, which was paid once.
    change(
        history,
        "UPDATE provider_calls SET recorded_in = ?, cost_then_usd = 8, failed_then_usd = 8,"
        " unknown_then = 8 WHERE attempt = 1",
        ELSEWHERE,
    )
    assert then.cost_usd == pytest.approx(0.502)
    assert view.suites[0].figures.cost_usd == pytest.approx(0.501)
    assert view.summary.paid_then == Paid(pytest.approx(0.501))
    assert view.summary.paid.total_usd == 0


def test_an_earlier_attempt_of_unknown_cost_is_unknown_in_a_rescored_run(
    history: Any, make: Any
) -> None:
    live = history.run("abd22222")
    live.suite(tests=[make.planned()])
    live.execution(retried=True, cost_usd=None)
    live.execution(number=1, attempt=2, assertions=(make.passed(),))
    then = live.finish().suites[0].figures
    rescored = history.run("abc11111", mode="rescored", source_run="abd22222")
    rescored.suite(tests=[make.planned()])
    rescored.execution(output=None, source="abd22222-1.2", assertions=(make.passed(),))
    view = rescored.finish()
    assert then.paid.unknown == 1
    assert view.suites[0].figures.paid_then.unknown == 1
    assert dict(totals_of(view))["cost"] == "$0; when it was recorded $0.0010 + unknown"


def test_a_failed_try_of_unknown_cost_is_unknown_everywhere(history: Any, make: Any) -> None:
    """An answer that could not be used, of a model without a price; a refusal costs nothing."""
    live = history.run("abd22222")
    live.suite(tests=[make.planned()], gates={"costMaxUsd": 1})
    unusable = make.provider_failed(input_tokens=9, cost_source=CostSource.UNKNOWN)
    failures = (unusable, make.provider_failed())
    live.execution(failures=failures, assertions=(make.passed(),))
    view = live.finish()
    paid = Paid(0.001, None, 1)
    assert paid_for_runs(view.db, ["abd22222"])["abd22222"] == view.summary.paid == paid
    assert paid_for_execution(view.db, "abd22222-1") == paid
    assert [model for (model,) in view.ask(UNPRICED)] == ["gpt"]
    assert not view.fulfilled
    rescored = history.run("abc11111", mode="rescored", source_run="abd22222")
    rescored.suite(tests=[make.planned()])
    rescored.execution(output=None, source="abd22222-1.1", assertions=(make.passed(),))
    view = rescored.finish()
    assert view.suites[0].figures.paid_then.unknown == 1


def test_earlier_attempts_were_paid_before_the_first_answer(history: Any, make: Any) -> None:
    live = history.run("abd22222")
    live.suite(tests=[make.planned()])
    live.execution(judge="0.1", retried=True)
    live.execution(number=1, attempt=2, tools=(("lookup", {}, "found"),), judge="0.9")
    live.finish()
    attempt = RecordedAttempt(history.reader(), "abd22222-1", 2)
    # The answer and the judge of the first attempt; nothing before the other calls.
    paid = [attempt.paid_before(call) for call in (1, 2, 3)]
    assert paid == [PaidBefore(pytest.approx(0.001 + 0.002)), PaidBefore(), PaidBefore()]


def test_an_unknown_cost_makes_that_of_the_test_unknown(history: Any, make: Any) -> None:
    run = history.run("abc11111")
    run.suite(tests=[make.planned(repeat=2)])
    run.execution(assertions=(make.passed(),))
    run.execution(repeat=2, assertions=(make.passed(),), cost_usd=None)
    view = run.finish()
    assert paid_for_runs(view.db, ["abc11111"])["abc11111"] == Paid(0.001, None, 1)
    assert read_trend(view.db, TEST, limit=1).points[0].cost_usd is None


def test_if_no_cost_of_a_live_run_is_known_nothing_says_that_its_agents_cost_nothing(
    history: Any, make: Any
) -> None:
    run = history.run("abc11111")
    run.suite(tests=[make.planned()])
    run.execution(assertions=(make.passed(),), cost_usd=None)
    view = run.finish()
    assert (
        view.summary.paid == paid_for_runs(view.db, ["abc11111"])["abc11111"] == Paid(None, None, 1)
    )


def change(history: Any, sql: str, *values: Any) -> None:
    """Change what was recorded."""
    with closing(sqlite3.connect(history.path)) as db, db:
        assert db.execute(sql, values).rowcount > 0


HERE, ELSEWHERE = "abc11111-1.1/1", "abd22222-7.1/1"


@pytest.mark.parametrize(
    ("recorded_in", "cost_then", "failed_then", "unknown_then", "expected"),
    [
        (ELSEWHERE, 0.25, None, None, Paid(0.25, None, 0)),
        (ELSEWHERE, 0.25, 0.5, 2, Paid(0.75, None, 2)),
        (ELSEWHERE, None, 0.5, None, Paid(0.5, None, 1)),
        (ELSEWHERE, None, None, None, Paid(None, None, 1)),
        # A new answer, before which tries of the earlier run had failed.
        (None, None, 0.5, 2, Paid(0.5, None, 2)),
        # Of an earlier attempt of the same execution, which has its own costs.
        (HERE, 0.25, 0.5, 2, Paid()),
    ],
)
def test_what_an_answer_cost_in_an_earlier_run_is_counted_once(
    judged: Any,
    history: Any,
    recorded_in: str | None,
    cost_then: float | None,
    failed_then: float | None,
    unknown_then: int | None,
    expected: Paid,
) -> None:
    change(
        history,
        "UPDATE provider_calls SET recorded_in = ?, cost_then_usd = ?, failed_then_usd = ?,"
        " unknown_then = ? WHERE purpose = 'test' AND attempt = 2",
        *(recorded_in, cost_then, failed_then, unknown_then),
    )
    assert history.view("abc11111").summary.paid_then == expected


@pytest.mark.parametrize("recorded", ["purpose = 'test'", "attempt = 2"])
def test_calls_and_tokens_are_those_of_agents_and_judges_together(
    judged: Any, history: Any, recorded: str
) -> None:
    change(history, f"UPDATE provider_calls SET recorded_in = ? WHERE {recorded}", ELSEWHERE)
    figures = history.view("abc11111").summary
    assert (figures.calls, figures.calls_from_history) == (3, 2)
    assert (figures.input_tokens, figures.output_tokens) == (30, 15)


def test_what_answers_cost_then_is_told_apart_for_agents_and_judges(
    history: Any, make: Any
) -> None:
    run = history.run("abc11111")
    run.suite(tests=[make.planned()])
    run.execution(earlier=("Hm.",), assertions=(make.passed(),), judge="0.9")
    run.finish()
    change(history, "UPDATE provider_calls SET recorded_in = ?", ELSEWHERE)
    assert history.view("abc11111").summary.paid_then == Paid(None, None, 3)
    change(
        history,
        "UPDATE provider_calls SET cost_then_usd = iif(purpose = 'test', 0.25, 4.0)",
    )
    assert history.view("abc11111").summary.paid_then == Paid(0.5, 4.0)


def test_each_call_of_a_judge_counts_in_lists_of_runs(history: Any, make: Any) -> None:
    run = history.run("abc11111")
    run.suite(tests=[make.planned(repeat=2)])
    for repeat in (1, 2):
        run.execution(repeat=repeat, assertions=(make.passed(),), judge="0.9")
    paid = paid_for_runs(run.finish().db, ["abc11111"])["abc11111"]
    assert paid == Paid(pytest.approx(2 * 0.001), pytest.approx(2 * 0.002))


@pytest.mark.parametrize(("cost_usd", "agents_usd", "unknown"), [(0.25, 0.5, 0), (None, None, 2)])
def test_the_costs_of_all_suites_count(
    history: Any, make: Any, cost_usd: float | None, agents_usd: float | None, unknown: int
) -> None:
    run = history.run("abc11111")
    for suite, name in enumerate(("orders", "refunds")):
        run.suite(name, tests=[make.planned()])
        run.execution(suite=suite, assertions=(make.passed(),), cost_usd=cost_usd, judge="0.9")
    expected = Paid(agents_usd, pytest.approx(2 * 0.002), unknown)
    assert run.finish().summary.paid == expected


def test_each_call_of_unknown_cost_counts(history: Any, make: Any) -> None:
    run = history.run("abc11111")
    run.suite(tests=[make.planned(repeat=2)])
    for repeat in (1, 2):
        run.execution(repeat=repeat, assertions=(make.passed(),), cost_usd=None)
    view = run.finish()
    assert view.summary.paid == paid_for_runs(view.db, ["abc11111"])["abc11111"] == Paid(unknown=2)
    assert view.summary.paid_then == Paid()


@pytest.mark.parametrize("judge_usd", [0.002, None])
def test_what_judges_cost_then_is_no_cost_of_the_agents_of_a_rescored_run(
    history: Any, make: Any, judge_usd: float | None
) -> None:
    live = history.run("abd22222")
    live.suite(tests=[make.planned()])
    live.execution(assertions=(make.passed(),), judge="0.9")
    live.finish()
    rescored = history.run("abc11111", mode="rescored", source_run="abd22222")
    rescored.suite(tests=[make.planned()])
    rescored.execution(output=None, source="abd22222-1.1", assertions=(make.passed(),))
    rescored.finish()
    change(history, "UPDATE provider_calls SET cost_usd = ? WHERE purpose = 'judge'", judge_usd)
    assert history.view("abc11111").summary.paid_then == Paid(pytest.approx(0.001))


def test_a_rescored_run_has_the_costs_of_all_its_conversations(history: Any, make: Any) -> None:
    live = history.run("abd22222")
    live.suite(tests=[make.planned(repeat=2)])
    rescored = history.run("abc11111", mode="rescored", source_run="abd22222")
    rescored.suite(tests=[make.planned(repeat=2)])
    for repeat in (1, 2):
        live.execution(repeat=repeat, earlier=("Hm.",), assertions=(make.passed(),))
        source = f"abd22222-{repeat}.1"
        rescored.execution(repeat=repeat, output=None, source=source, assertions=(make.passed(),))
    live.finish()
    assert rescored.finish().summary.paid_then == Paid(pytest.approx(2 * 0.001))
    change(history, "UPDATE provider_calls SET cost_usd = NULL")
    assert history.view("abc11111").summary.paid_then == Paid(None, None, 4)


@pytest.mark.parametrize(("recorded", "expected"), [(0.5, Paid(0.5)), (None, Paid(None, None, 1))])
def test_without_its_source_a_rescored_run_has_the_costs_that_it_recorded(
    history: Any, make: Any, recorded: float | None, expected: Paid
) -> None:
    rescored = history.run("abc11111", mode="rescored", source_run="abd22222")
    rescored.suite(tests=[make.planned()])
    rescored.execution(output=None, source="abd22222-1.1", assertions=(make.passed(),))
    rescored.finish()
    change(history, "UPDATE executions SET answers = 1, cost_then_usd = ?", recorded)
    assert history.view("abc11111").summary.paid_then == expected
