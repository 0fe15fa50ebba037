"""A recorded run, read back: what passed, failed and is pending, and what gates look at."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from kindlm.errors import Ok
from kindlm.events.execution_events import AssertionEvaluated
from kindlm.history import queries
from kindlm.history.trends import failing_tests, read_trend
from kindlm.history.verdict import StatusCounts
from kindlm.outcome import Outcome, Status
from kindlm.plan import QualifiedName
from kindlm.reports.facts import totals_of
from kindlm.reports.report_registry import ReportOptions, find_report
from kindlm_store import NewEvent, stream_lock


def test_a_run_is_read_back_whole(history: Any, make: Any) -> None:
    run = history.run(label="first")
    run.suite(tests=[make.planned("greets", repeat=2), make.planned("refuses")])
    run.execution("greets", assertions=(make.passed(),), tools=(("lookup", {"id": 1}, {"ok": 1}),))
    run.execution("greets", repeat=2, assertions=(make.failed(),))
    run.execution("refuses", judge="0.5")
    view = run.finish()

    assert view.info.label == "first"
    assert view.info.passed is False
    assert [(t.name, t.status, t.flaky) for t in view.tests()] == [
        ("greets", Status.FAILED, True),
        ("refuses", Status.PASSED, False),
    ]
    (suite,) = view.suites
    assert suite.tests.passed == 1
    assert suite.executions.total == 3
    first, _ = view.executions(next(view.tests()))
    assert first.output == "Hi there."
    assert [m["text"] for m in view.first_messages(first)] == ["You are kind.", "Hello!"]
    (call,) = view.tool_calls(first)
    assert (call.tool, call.arguments, call.response) == ("lookup", {"id": 1}, {"ok": 1})
    assert [c.purpose for c in view.calls(first)] == ["test", "test"]
    assert view.summary.paid.agents_usd == 0.003
    assert view.summary.paid.judges_usd == 0.002


def test_a_run_is_running_while_its_lock_is_held(history: Any, make: Any) -> None:
    run = history.run(planned=2)
    run.suite(tests=[make.planned(repeat=2)])
    run.execution(assertions=(make.passed(),))
    view = run.leave()

    with stream_lock(history.path, f"run/{run.id}"):
        assert view.status == "running"
    view = history.view(run.id)
    assert view.status == "killed"
    assert (view.missing, view.complete, view.passed) == (1, False, False)


def test_tests_keep_the_order_of_their_file(history: Any, make: Any) -> None:
    names = ["zebra", "apple", "mango"]
    run = history.run()
    run.suite(tests=[make.planned(name, target) for name in names for target in ("m2", "m1")])
    # Executions end in any order.
    for name in reversed(names):
        run.execution(name, "m1")
        run.execution(name, "m2")
    view = run.finish()

    assert [(test.name, test.target) for test in view.tests()] == [
        (name, target) for name in names for target in ("m2", "m1")
    ]
    assert view.targets(view.suites[0]) == ["m2", "m1"]


def test_tags_of_a_suite_are_inherited(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(tags=["own", "both"])], tags=["both", "suite"])
    run.execution()
    (test,) = run.finish().tests()
    assert test.tags == ("both", "suite", "own")


def test_an_execution_is_found_by_number_and_id(varied_run: Any) -> None:
    assert varied_run.execution("1") == varied_run.execution("k3f9x2ab-1")
    assert varied_run.execution("99") is None


@pytest.fixture
def varied_run(history: Any, make: Any) -> Any:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(assertions=(make.passed(),))
    return run.finish()


def test_a_run_that_is_not_there(history: Any) -> None:
    with pytest.raises(LookupError):
        _ = history.view("nope").info


def test_erased_texts_are_shown_as_such(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(output="secret plan", tools=(("lookup", {"id": 1}, "x"),))
    run.finish()
    history.erase(f"run/{run.id}")
    view = history.view(run.id)
    (execution,) = view.executions(next(view.tests()))

    assert execution.output == "[erased]"
    (call,) = view.tool_calls(execution)
    assert call.arguments == "[erased]"
    assert {message["text"] for message in view.first_messages(execution)} == {"[erased]"}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM tests WHERE suite IN $ids ORDER BY ordinal",
        queries.FIGURES,
        queries.FIGURES.replace("run IN $ids", "suite IN $ids"),
        queries.UNPRICED,
    ],
)
@pytest.mark.parametrize("ids", [("r",), ("r", "s", "t")], ids=["run", "shards"])
def test_one_run_is_read_without_reading_the_whole_history(
    history: Any, query: str, ids: tuple[str, ...]
) -> None:
    asked, parameters = queries.among(query, ids)
    plan = [row[3] for row in history.reader().execute(f"EXPLAIN QUERY PLAN {asked}", parameters)]
    large = re.compile(r"^SCAN (e|c|a|p|executions|provider_calls|assertions|planned_tests)\b")
    assert not [step for step in plan if large.search(step)]


def test_a_check_whose_duration_was_not_recorded_took_none(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(assertions=(make.passed(),))
    at, event = next(
        (at, event) for at, event in enumerate(run._events) if event.type == AssertionEvaluated.type
    )
    data = {key: value for key, value in event.data.items() if key != "duration_ms"}
    run._events[at] = NewEvent(event.type, data, event.schema, event.subject)
    view = run.leave()
    (execution,) = view.executions(next(view.tests()))
    (assertion,) = view.assertions(execution)
    assert assertion.duration_ms == 0.0


WANTED = {("good", "gpt"), ("bad", "gpt"), ("bad", "claude")}


def record(history: Any, make: Any, run: str, results: dict[str, bool], **suite: Any) -> None:
    """Record a run with one execution for each test, passed or not."""
    writer = history.run(run)
    writer.suite(tests=[make.planned(name) for name in results], **suite)
    for name, passed in results.items():
        writer.execution(name, assertions=(make.passed() if passed else make.failed(),))
    writer.finish()


def failing(history: Any, suite: str = "support", project: str = "shop") -> set[tuple[str, str]]:
    return failing_tests(history.reader(), project, suite, WANTED)


def test_the_last_result_of_each_test_counts(history: Any, make: Any) -> None:
    record(history, make, "first", {"good": False, "bad": False})
    record(history, make, "second", {"good": True})
    assert failing(history) == {("bad", "gpt")}
    record(history, make, "third", {"bad": True})
    assert failing(history) == set()


def test_other_suites_and_projects_are_others(history: Any, make: Any) -> None:
    record(history, make, "first", {"bad": False})
    assert failing(history, suite="sales") == set()
    assert failing(history, project="bank") == set()


def test_a_failure_that_the_pass_rate_tolerates_does_not_fail(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("bad", repeat=2, pass_rate=0.5)])
    run.execution("bad", repeat=1, assertions=(make.passed(),))
    run.execution("bad", repeat=2, assertions=(make.failed(),))
    run.finish()
    assert failing(history) == set()


def test_a_stopped_run_counts_as_far_as_it_went(history: Any, make: Any) -> None:
    record(history, make, "first", {"good": True, "bad": False})
    run = history.run("second")
    run.suite(tests=[make.planned("good"), make.planned("bad")])
    run.execution("good", assertions=(make.failed(),))
    run.interrupt("--fail-fast")
    assert failing(history) == {("good", "gpt"), ("bad", "gpt")}


@pytest.mark.parametrize("unfinished", [None, "skipped"])
def test_repeats_that_passed_do_not_clear_a_failure_while_others_did_not_run(
    history: Any, make: Any, unfinished: str | None
) -> None:
    def repeats(run: str, passed: int) -> Any:
        writer = history.run(run)
        writer.suite(tests=[make.planned("bad", repeat=3)])
        for repeat in range(1, passed + 1):
            writer.execution("bad", repeat=repeat, assertions=(make.passed(),))
        return writer

    record(history, make, "first", {"bad": False})
    stopped = repeats("second", passed=1)
    if unfinished == "skipped":
        for repeat in (2, 3):
            stopped.execution("bad", repeat=repeat, status="skipped")
        stopped.finish()
    else:
        stopped.interrupt("--fail-fast")
    assert failing(history) == {("bad", "gpt")}
    repeats("third", passed=3).finish()
    assert failing(history) == set()


def test_repeats_that_passed_are_no_failure_where_the_test_had_not_failed(
    history: Any, make: Any
) -> None:
    record(history, make, "first", {"bad": True})
    run = history.run("second")
    run.suite(tests=[make.planned("bad", repeat=3)])
    run.execution("bad", assertions=(make.passed(),))
    run.interrupt("--fail-fast")
    assert failing(history) == set()


def test_runs_that_are_not_live_say_nothing_of_now(history: Any, make: Any) -> None:
    run = history.run("rescored", mode="rescored")
    run.suite(tests=[make.planned("bad")])
    run.execution("bad", assertions=(make.failed(),))
    run.finish()
    assert failing(history) == set()


@pytest.fixture
def half_way(history: Any, make: Any) -> Any:
    """A run of four executions: one passed, one has begun, two wait; nobody is at it."""
    run = history.run("abc11111", planned=4)
    run.suite(tests=[make.planned(repeat=2), make.planned("refunds"), make.planned("waits")])
    run.execution(assertions=(make.passed(),))
    run.execution("refunds", finished=False)
    return run.leave()


def test_it_is_counted_apart(half_way: Any) -> None:
    summary = half_way.summary
    assert summary.tests == StatusCounts(passed=1, pending=2)
    assert summary.executions == StatusCounts(passed=1, pending=1)
    trend = read_trend(half_way.db, QualifiedName("shop", "support", "refunds", "gpt"), limit=1)
    assert trend.points[0].test.counts == StatusCounts(pending=1)


def test_a_run_that_goes_on_says_what_is_pending(half_way: Any, history: Any) -> None:
    with stream_lock(history.path, "run/abc11111"):
        totals = dict(totals_of(history.view("abc11111")))
    assert totals["tests"] == "3: 1 passed, 2 pending"
    assert totals["executions"] == "4: 1 passed, 3 pending"


def test_of_a_run_without_a_process_it_was_not_run(half_way: Any) -> None:
    totals = dict(totals_of(half_way))
    assert totals["tests"] == "3: 1 passed, 2 not run"
    assert totals["executions"] == "4: 1 passed, 3 not run"


def test_formats_for_programs_call_it_skipped(half_way: Any) -> None:
    out = io.StringIO()
    found = find_report("json")
    assert isinstance(found, Ok)
    found.value.write(half_way, out, ReportOptions())
    counts = json.loads(out.getvalue())["summary"]["tests"]
    assert counts == {"total": 3, "passed": 1, "failed": 0, "errored": 0, "skipped": 2}


def test_every_metric(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("one", repeat=2), make.planned("two")])
    for repeat, score in ((1, 0.6), (2, 1.0)):
        run.execution(
            "one",
            repeat=repeat,
            latency_ms=100.0 * repeat,
            judge=str(score),
            assertions=(
                make.passed("judge", "is kind", score=score),
                make.failed("schema", "is JSON", "SCHEMA_INVALID"),
                make.failed("keywords_deny", "no promises", "KEYWORD_DENIED"),
                make.passed("drift", "like the baseline", score=0.9),
            ),
        )
    run.execution(
        "two",
        latency_ms=300.0,
        cost_usd=None,
        assertions=(
            make.passed("judge", "is kind", score=0.4),
            make.failed(
                "judge", "is right", "JUDGE_EVAL_ERROR", outcome="inconclusive", score=None
            ),
            make.failed("pii", "no personal data", "PII_DETECTED"),
            make.failed("contains", "says hi", "CONTAINS_FAILED"),
        ),
    )
    view = run.finish()
    metrics = view.suites[0].figures

    assert metrics.executions.failed == 3
    assert (metrics.schema_failures, metrics.pii_failures, metrics.keyword_failures) == (2, 1, 2)
    # The mean over (test, criterion) of its mean: (0.8 + 0.4) / 2, not (0.6 + 1.0 + 0.4) / 3.
    assert metrics.judge_average == pytest.approx(0.6)
    assert metrics.drift_maximum == 0.1
    assert metrics.cost_usd == pytest.approx(2 * 0.001 + 2 * 0.002)
    assert metrics.paid.unknown == 1
    assert metrics.latency_average_ms == pytest.approx(200.0)
    assert not metrics.narrowed


def test_only_the_last_attempt_counts_but_all_its_spend(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned()])
    failed = make.failed("schema", "is JSON", "SCHEMA_INVALID")
    run.execution(assertions=(failed,), finished=False)
    run.execution(number=1, attempt=2, assertions=(make.passed(),))
    view = run.finish()
    metrics = view.suites[0].figures

    assert metrics.schema_failures == 0
    assert metrics.executions.passed == 1
    assert metrics.cost_usd == pytest.approx(0.002)


def test_a_selection_narrows(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned("one"), make.planned("two", selected=False)])
    run.execution("one")
    view = run.finish()

    assert view.suites[0].figures.narrowed
    assert [test.name for test in view.tests()] == ["one"]


def test_suites_and_runs_are_kept_apart(history: Any, make: Any) -> None:
    for name in ("run1", "run2"):
        run = history.run(name)
        for ordinal in (0, 1):
            run.suite(f"suite {ordinal}", tests=[make.planned()])
            run.execution(suite=ordinal, assertions=(make.failed("pii", "p", "PII_DETECTED"),))
        view = run.finish()
    for suite in view.suites:
        metrics = suite.figures
        assert (metrics.executions.total, metrics.pii_failures) == (1, 1)
        assert metrics.cost_usd == pytest.approx(0.001)
    assert view.summary.paid.agents_usd == pytest.approx(0.002)


def test_the_repeats_of_each_target_are_counted_apart(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(target=target, repeat=3) for target in ("gpt", "claude")])
    for target, passed, skipped in (("gpt", 2, 1), ("claude", 1, 2)):
        for _ in range(passed):
            run.execution(target=target, assertions=(make.passed(),))
        for _ in range(skipped):
            run.execution(target=target, status=make.SKIPPED)
    view = run.finish()
    found = {test.target: test.counts for test in view.tests()}
    assert {target: (it.passed, it.skipped, it.pending) for target, it in found.items()} == {
        "gpt": (2, 1, 0),
        "claude": (1, 2, 0),
    }


def test_repeats_that_did_not_end_are_counted(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(repeat=4)])
    run.execution(assertions=(make.passed(),))
    for _ in range(2):
        run.execution(finished=False)
    (test,) = run.leave().tests()
    assert (test.counts.passed, test.counts.pending) == (1, 2)


def test_the_pass_rate_in_the_list_of_tests_is_that_of_repeats_with_a_result(
    history: Any, make: Any
) -> None:
    run = history.run()
    run.suite(tests=[make.planned(repeat=5)])
    for made in (make.passed(), make.passed(), make.passed(), make.failed()):
        run.execution(assertions=(made,))
    run.execution(status=make.SKIPPED)
    run.finish()
    (row,) = history.reader().execute("SELECT pass_rate, executions FROM tests")
    assert tuple(row) == (0.75, 5)


def test_the_list_of_costs_counts_answered_and_failed_calls(history: Any, make: Any) -> None:
    run = history.run()
    run.suite(tests=[make.planned(repeat=2)])
    failures = (make.provider_failed(), make.provider_failed())
    run.execution(failures=failures, assertions=(make.passed(),), judge="0.9")
    run.execution(repeat=2, failures=failures, assertions=(make.passed(),))
    run.leave()
    listed = history.reader().execute("SELECT purpose, calls, responded, failed FROM spend")
    assert set(map(tuple, listed)) == {("test", 6, 2, 4), ("judge", 1, 1, 0)}


def test_the_list_of_runs_counts_executions_by_status(history: Any, make: Any) -> None:
    error = ("PROVIDER_TIMEOUT", 203, "Too slow.", None)
    for run_id, passed, failed, errored in (("one", 1, 2, 3), ("two", 3, 1, 2)):
        run = history.run(run_id)
        run.suite(tests=[make.planned(repeat=6)])
        for each, number in (
            ({"assertions": (make.passed(),)}, passed),
            ({"assertions": (make.failed(),)}, failed),
            ({"error": error}, errored),
        ):
            for _ in range(number):
                run.execution(**each)
        (test,) = run.finish().tests()
        counts = test.counts
        assert (counts.passed, counts.failed, counts.errored) == (passed, failed, errored)
    numbers = "passed_executions, failed_executions, errored_executions"
    rows = history.reader().execute(f"SELECT run, {numbers} FROM run_list ORDER BY run")
    assert [tuple(row) for row in rows] == [("one", 1, 2, 3), ("two", 3, 1, 2)]


def test_a_limit_of_drift_that_nothing_measures_is_not_kept(history: Any, make: Any) -> None:
    for run_id, check, kept in (
        ("compared", make.passed("drift", score=0.9), True),
        ("nobase", make.passed("drift", outcome=Outcome.SKIPPED, score=None), True),
        ("nothing", make.passed(outcome=Outcome.SKIPPED, score=None), False),
        ("unknown", make.failed("drift", outcome=Outcome.INCONCLUSIVE, score=None), False),
    ):
        run = history.run(run_id)
        run.suite(tests=[make.planned()], gates={"driftScoreMax": 0.2})
        run.execution(assertions=(make.passed(), check))
        gates = {gate.name: gate.passed for gate in run.finish().suites[0].gates}
        assert gates["driftScoreMax"] is kept


def test_only_models_of_the_run_are_named_as_without_a_price(history: Any, make: Any) -> None:
    for run_id, target, cost_usd in (("free", "gpt", None), ("priced", "claude", 0.5)):
        run = history.run(run_id)
        run.suite(tests=[make.planned(target=target)])
        run.execution(target=target, cost_usd=cost_usd)
        run.finish()
    unpriced = {run: list(history.view(run).ask(queries.UNPRICED)) for run in ("free", "priced")}
    assert {run: [name for (name,) in found] for run, found in unpriced.items()} == {
        "free": ["gpt"],
        "priced": [],
    }


def test_reasons_to_skip_are_no_warnings_and_those_of_failures_are_not_listed(
    history: Any, make: Any
) -> None:
    run = history.run()
    run.suite(tests=[make.planned(repeat=4)])
    run.execution(assertions=(make.passed(),), warnings=("odd",))
    run.execution(assertions=(make.passed(),))
    run.execution(assertions=(make.failed(),), warnings=("bad",))
    run.execution(status=make.SKIPPED, warnings=("no key",))
    view = run.finish()
    assert [tuple(row) for row in view.ask(queries.SKIPPED)] == [("support", "no key", 1)]
    assert view.warnings_of_passed() == [("odd", 1)]


def test_checks_that_the_last_attempt_skipped_are_listed(history: Any, make: Any) -> None:
    skipped = {"outcome": Outcome.SKIPPED, "score": None}
    run = history.run()
    run.suite(tests=[make.planned()])
    run.execution(assertions=(make.passed("drift", **skipped, message="then"),), retried=True)
    last = make.passed("drift", **skipped, message="now")
    run.execution(number=1, attempt=2, assertions=(make.passed(), last))
    found = run.finish().ask(queries.SKIPPED_ASSERTIONS)
    assert [tuple(row) for row in found] == [("drift", "now", 1)]


def test_the_mean_latency_is_that_of_executions_with_an_answer(history: Any, make: Any) -> None:
    unanswered = {"error": ("PROVIDER_TIMEOUT", 203, "Too slow.", None), "output": None}
    run = history.run()
    run.suite(tests=[make.planned(repeat=4)])
    for latency_ms in (100.0, 300.0):
        run.execution(latency_ms=latency_ms, assertions=(make.passed(),))
    run.execution(latency_ms=0.0, **unanswered)
    run.execution(status=make.SKIPPED)
    view = run.finish()
    (test,) = view.tests()
    assert view.summary.latency_average_ms == test.latency_ms == pytest.approx(200.0)


@pytest.mark.parametrize(("second", "total"), [(0.5, 0.75), (None, None)])
def test_the_cost_of_a_test_is_that_of_all_its_repeats(
    history: Any, make: Any, second: float | None, total: float | None
) -> None:
    run = history.run()
    run.suite(tests=[make.planned(repeat=2)])
    for cost_usd in (0.25, second):
        run.execution(cost_usd=cost_usd, assertions=(make.passed(),))
    (test,) = run.finish().tests()
    assert test.cost_usd == total
