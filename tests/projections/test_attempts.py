"""Attempts of an execution, and suites that are told of again: what holds is the last word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kindlm.dataclass import replace
from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import (
    ExecutionFinished,
    ExecutionStarted,
    ProviderRequested,
    ProviderResponded,
    ToolCalled,
    ToolSimulated,
)
from kindlm.events.run import DealtTest, PlannedTest, RunExtended, SuiteSkipped, SuiteStarted
from kindlm.outcome import Gate, Status
from kindlm.projections import PROJECTIONS
from kindlm_store import Append, EventLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog.open(tmp_path / "kindlm.db", projections=PROJECTIONS) as log:
        yield log
        assert log.projection_errors() == {}


def record(log: EventLog, *payloads: Payload, subject: str | None = None) -> None:
    log.append("run/r", [new_event(payload, subject=subject) for payload in payloads])


def rows(log: EventLog, query: str) -> list[tuple[Any, ...]]:
    with closing(log.reader()) as reader:
        return [tuple(row) for row in reader.execute(query)]


def started(attempt: int) -> ExecutionStarted:
    return ExecutionStarted(
        suite=0, test=f"as of {attempt}", target="m", repeat=1, attempt=attempt, messages=[]
    )


def start(log: EventLog, attempt: int) -> None:
    record(log, started(attempt), subject=f"1.{attempt}")


def finish(log: EventLog, attempt: int, status: Status) -> None:
    record(log, ExecutionFinished(status=status), subject=f"1.{attempt}")


EXECUTIONS = "SELECT test, attempt, status FROM executions"


def test_a_new_attempt_begins_without_the_outcome_of_the_one_before(log: EventLog) -> None:
    start(log, 1)
    finish(log, 1, Status.ERRORED)
    start(log, 2)
    assert rows(log, EXECUTIONS) == [("as of 2", 2, None)]


def test_an_attempt_that_is_not_the_last_one_overwrites_nothing(log: EventLog) -> None:
    start(log, 1)
    start(log, 2)
    finish(log, 2, Status.PASSED)
    finish(log, 1, Status.FAILED)
    start(log, 1)
    finish(log, 3, Status.FAILED)
    assert rows(log, EXECUTIONS) == [("as of 2", 2, "passed")]


ASKED = ProviderRequested(purpose="test", provider="p", model="m", call=1, fingerprint="f")
ANSWERED = ProviderResponded(call=1, text="Hi", latency_ms=1.0)
CALLED = ToolCalled(index=0, call=1, name="look_up", call_id="c", arguments="{}")
SIMULATED = ToolSimulated(index=0, call_id="c", rule="defaultResponse", response={})


@pytest.mark.parametrize(
    ("table", "begins", "ends", "column"),
    [
        ("executions", started(1), ExecutionFinished(status=Status.PASSED), "status"),
        ("provider_calls", ASKED, ANSWERED, "status"),
        ("tool_calls", CALLED, SIMULATED, "rule"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_an_end_before_a_beginning_ends_nothing_even_if_both_are_folded_at_once(
    log: EventLog, table: str, begins: Payload, ends: Payload, column: str, together: bool
) -> None:
    for payloads in [(ends, begins)] if together else [(ends,), (begins,)]:
        record(log, *payloads, subject="1.1")
    query = f"SELECT {column} FROM {table}"
    assert rows(log, query) == [(None,)]
    record(log, ends, subject="1.1")
    assert rows(log, query) != [(None,)]


def suite_started(*tests: str, gates: tuple[str, ...] = ()) -> SuiteStarted:
    return SuiteStarted(
        suite="shop",
        ordinal=0,
        project="p",
        front_end="kindlm",
        path="kindlm.yaml",
        config_hash="0" * 12,
        config="{}",
        gates=[Gate(name=name, threshold=1.0, written=True) for name in gates],
        tests=[PlannedTest(name=test, target="m") for test in tests],
    )


def suite_skipped() -> SuiteSkipped:
    return SuiteSkipped(
        suite="shop",
        ordinal=0,
        path="kindlm.yaml",
        tests=3,
        error_code="CONFIG_INVALID",
        error_number=101,
        message="no",
    )


def test_a_suite_that_is_reported_again_is_what_was_told_last(log: EventLog) -> None:
    record(log, suite_started("a", "b", gates=("passRateMin", "costMaxUsd")))
    record(log, suite_started("b", "c", gates=("passRateMin",)))
    assert rows(log, "SELECT test, ordinal FROM planned_tests ORDER BY ordinal") == [
        ("b", 0),
        ("c", 1),
    ]
    names = "SELECT g.value ->> 'name' FROM suites, json_each(gates) g"
    assert rows(log, names) == [("passRateMin",)]


def test_a_suite_that_can_be_loaded_at_last_is_not_skipped_any_more(log: EventLog) -> None:
    record(log, suite_skipped(), suite_started("a"))
    assert rows(log, "SELECT project, error_code, skipped_tests FROM suites") == [("p", None, None)]


def test_a_suite_that_cannot_be_loaded_any_more_plans_nothing(log: EventLog) -> None:
    record(log, suite_started("a", gates=("passRateMin",)), suite_skipped())
    suites = rows(log, "SELECT project, error_code, gates FROM suites")
    assert suites == [(None, "CONFIG_INVALID", None)]
    assert rows(log, "SELECT * FROM planned_tests") == []


def test_an_attempt_that_is_run_again_ends_no_execution(log: EventLog) -> None:
    start(log, 1)
    record(log, ExecutionFinished(status=Status.FAILED, retried=True), subject="1.1")
    assert rows(log, EXECUTIONS) == [("as of 1", 1, None)]
    assert rows(log, "SELECT attempt, status FROM retried_attempts") == [(1, "failed")]
    start(log, 2)
    finish(log, 2, Status.PASSED)
    assert rows(log, EXECUTIONS) == [("as of 2", 2, "passed")]
    assert rows(log, "SELECT attempt, status FROM retried_attempts") == [(1, "failed")]


@pytest.mark.parametrize(
    ("described", "selected"), [(None, 1), ("r/0", 0), ("r/1", 1), ("another/0", 1)]
)
@pytest.mark.parametrize("together", [True, False])
def test_a_dealt_test_is_selected_unless_its_suite_is_described_again(
    log: EventLog, described: str | None, selected: int, together: bool
) -> None:
    def suite(name: str) -> Append:
        run, ordinal = name.split("/")
        tests = [PlannedTest(name="a", target="m", selected=False)]
        payload = replace(suite_started(), ordinal=int(ordinal), tests=tests)
        return Append(f"run/{run}", [new_event(payload)])

    dealt = RunExtended(planned=1, tests=[DealtTest(suite=0, name="a", target="m")])
    appends = [suite("r/0"), Append("run/r", [new_event(dealt)])]
    if described is not None:
        appends.append(suite(described))
    for each in [appends] if together else [[append] for append in appends]:
        log.submit(*each).result()
    query = "SELECT selected FROM planned_tests WHERE suite = 'r/0'"
    assert rows(log, query) == [(selected,)]
