"""A recorded run, read back."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kindlm.events.execution_events import AssertionEvaluated
from kindlm.history import queries
from kindlm.outcome import Status
from kindlm_store import NewEvent, StreamLock


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
    assert view.summary.cost_usd == 0.003
    assert view.summary.judge_cost_usd == 0.002


def test_a_run_is_running_while_its_lock_is_held(history: Any, make: Any) -> None:
    run = history.run(planned=2)
    run.suite(tests=[make.planned(repeat=2)])
    run.execution(assertions=(make.passed(),))
    view = run.leave()

    with StreamLock(history.path, f"run/{run.id}"):
        assert view.status == "running"
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
        queries.TESTS,
        queries.SPENT,
        "SELECT * FROM spend WHERE suite IN $ids",
        queries.CAME_TO,
        queries.CHECKED,
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
