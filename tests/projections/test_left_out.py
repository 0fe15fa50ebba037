"""What is empty unless somebody says otherwise is left out of the log; older logs hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from kindlm.events import load_event
from kindlm.events.codec import Payload, classes_in, new_event, stored_fields
from kindlm.events.execution_events import (
    AgentReplied,
    AgentSent,
    AssertionEvaluated,
    ExecutionFinished,
    ExecutionStarted,
    ProviderRequested,
    ProviderResponded,
    ToolCalled,
    ToolSimulated,
)
from kindlm.events.run import GitState, PlannedTest, ReviewRecorded, RunStarted, SuiteStarted
from kindlm.outcome import CheckResult, Outcome, Status
from kindlm.projections import PROJECTIONS
from kindlm.transcript import Message, Role, ToolCall
from kindlm_store import EventLog, NewEvent, Text

RUN = RunStarted(project="p", planned=1, versions={}, git=GitState(commit="c0ffee"))
SUITE = SuiteStarted(
    suite="s",
    ordinal=0,
    project="p",
    front_end="kindlm",
    path="kindlm.yaml",
    config_hash="0",
    config="{}",
    gates=(),
    tests=(PlannedTest(name="t", target="m"),),
)
MESSAGE = Message(Role.USER, "Hi")
CALL = ToolCall("c", "look_up", {})
EXECUTION: tuple[Payload, ...] = (
    ExecutionStarted(suite=0, test="t", target="m", repeat=1, attempt=1, messages=(MESSAGE,)),
    ProviderRequested(purpose="test", provider="openai", model="gpt", call=1, fingerprint="f"),
    ProviderResponded(call=1, text="", latency_ms=1.0, tool_calls=(CALL,)),
    ToolCalled(index=0, call=1, name="look_up", call_id="c", arguments="{}"),
    ToolSimulated(index=0, call_id="c", rule="defaultResponse", response={}),
    AgentSent(agent="a", adapter="http", call=2, after=1),
    AgentReplied(call=2, text="Hello", latency_ms=1.0),
    AssertionEvaluated(index=0, result=CheckResult("contains", "Hello", Outcome.PASSED)),
    ExecutionFinished(status=Status.PASSED),
)

TABLES = (
    "runs",
    "suites",
    "planned_tests",
    "executions",
    "provider_calls",
    "tool_calls",
    "assertions",
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog.open(tmp_path / "kindlm.db", projections=PROJECTIONS) as log:
        yield log


def events(written_out: bool) -> list[NewEvent]:
    about = [(RUN, None), (SUITE, None), *((payload, "1.1") for payload in EXECUTION)]
    made = [new_event(payload, subject=subject) for payload, subject in about]
    if not written_out:
        return made
    return [
        NewEvent(e.type, whole(payload, e.data), subject=e.subject)
        for e, (payload, _) in zip(made, about, strict=True)
    ]


def whole(value: Any, stored: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a value, with all that was left out: as older versions recorded it."""
    data = dict(stored)
    for field in stored_fields(type(value)):
        held = getattr(value, field.name)
        has_parts = held is not None and any(map(is_dataclass, classes_in(field.annotation)))
        if field.key is None:
            data |= whole(held, stored)
        elif has_parts and isinstance(held, Sequence):
            parts = zip(held, stored.get(field.key, ()), strict=True)
            data[field.key] = [whole(*pair) for pair in parts]
        elif has_parts:
            data[field.key] = whole(held, stored[field.key])
        elif field.left_out_if_empty and not held and field.encode is None:
            data.setdefault(field.key, held)
    return data


def loaded(log: EventLog) -> list[Payload]:
    events = list(log.read())
    return [load_event(event.type, event.data, lambda ref: str(log.text(ref))) for event in events]


def rows(log: EventLog, table: str) -> list[dict[str, Any]]:
    kept = "_at", "_ref", "messages", "tool_calls"
    with closing(log.reader()) as reader:
        found = [dict(row) for row in reader.execute(f"SELECT * FROM {table}")]
    return [{name: row[name] for name in row if not name.endswith(kept)} for row in found]


def test_an_older_log_that_holds_what_is_empty_folds_into_the_same_rows(
    log: EventLog, tmp_path: Path
) -> None:
    log.append("run/r", events(written_out=False))
    with EventLog.open(tmp_path / "older.db", projections=PROJECTIONS) as older:
        older.append("run/r", events(written_out=True))
        sizes = [sum(len(str(event.data)) for event in each.read()) for each in (log, older)]
        assert sizes[0] < sizes[1]
        for table in TABLES:
            assert rows(log, table) == rows(older, table) != [], table
        assert log.projection_errors() == older.projection_errors() == {}
        assert loaded(older) == loaded(log)


def test_what_is_read_is_the_event_that_was_recorded(log: EventLog) -> None:
    log.append("run/r", events(written_out=False))
    assert loaded(log) == [RUN, SUITE, *EXECUTION]


def test_a_message_without_its_text_is_not_read(log: EventLog) -> None:
    log.append("run/r", events(written_out=False))

    def gone(ref: str) -> str:
        raise LookupError(ref)

    started = next(log.read(types=["execution.started"]))
    with pytest.raises(LookupError):
        load_event(started.type, started.data, gone)


def test_nothing_that_says_something_is_left_out() -> None:
    """A zero, an empty list that has to be given, a `no` that somebody said."""
    review = new_event(ReviewRecorded(run="r", execution=1, passed=False, by="me"))
    assert review.data["passed"] is False
    skipped = ExecutionStarted(suite=0, test="t", target="m", repeat=1, attempt=1, messages=())
    assert new_event(skipped).data["messages"] == []
    assert new_event(skipped).data["suite"] == 0
    assert new_event(ExecutionFinished(status=Status.SKIPPED)).data["answers"] == 0
    prefill = Message(Role.ASSISTANT, "Hi", prefill=True)
    sent = AgentSent(agent="a", adapter="http", call=1, after=0, messages=(prefill,))
    (message,) = new_event(sent).data["messages"]
    assert message == {"role": "assistant", "text": Text("Hi"), "prefill": True}
