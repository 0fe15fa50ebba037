"""What is empty unless somebody says otherwise is left out of the log; older logs hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from kindlm.events import (
    AgentReplied,
    AgentSent,
    AssertionEvaluated,
    ContentRef,
    ExecutionFinished,
    ExecutionStarted,
    GitState,
    MessageData,
    Payload,
    PlannedTest,
    ProviderRequested,
    ProviderResponded,
    ReviewRecorded,
    RunStarted,
    SuiteStarted,
    ToolCallData,
    ToolCalled,
    ToolSimulated,
    load_event,
    new_event,
)
from kindlm.outcome import Outcome, Status
from kindlm.projections import PROJECTIONS
from kindlm.transcript import Role
from kindlm_store import EventLog, NewEvent, Text

RUN = RunStarted(project="p", planned=1, versions={}, git=GitState(commit="c0ffee"))
SUITE = SuiteStarted(
    suite="s",
    ordinal=0,
    project="p",
    front_end="kindlm",
    path="kindlm.yaml",
    config_hash="0",
    config=Text("{}"),
    gates=[],
    tests=[PlannedTest(name="t", target="m")],
)
MESSAGE = MessageData(role=Role.USER, text=Text("Hi"))
CALL = ToolCallData(id="c", name="look_up", arguments=Text("{}"))
EXECUTION: tuple[Payload, ...] = (
    ExecutionStarted(suite=0, test="t", target="m", repeat=1, attempt=1, messages=[MESSAGE]),
    ProviderRequested(purpose="test", provider="openai", model="gpt", call=1, fingerprint="f"),
    ProviderResponded(call=1, text=Text(""), latency_ms=1.0, tool_calls=[CALL]),
    ToolCalled(index=0, call=1, name="look_up", call_id="c", arguments=Text("{}")),
    ToolSimulated(index=0, call_id="c", rule="defaultResponse", response=Text("{}")),
    AgentSent(agent="a", adapter="http", call=2, after=1),
    AgentReplied(call=2, text=Text("Hello"), latency_ms=1.0),
    AssertionEvaluated(index=0, kind="contains", label="Hello", outcome=Outcome.PASSED),
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


def whole(model: BaseModel, stored: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a model, with all that was left out: as older versions recorded it."""
    data = dict(stored)
    for name, field in type(model).model_fields.items():
        value, key = getattr(model, name), field.alias or name
        if name == "type" or value is None:
            continue
        if isinstance(value, list) and value and isinstance(value[0], BaseModel):
            data[key] = [whole(*pair) for pair in zip(value, stored[key], strict=True)]
        elif isinstance(value, BaseModel):
            data[key] = whole(value, stored[key])
        else:
            data.setdefault(key, value)
    return data


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
        assert [load_event(e).type for e in older.read()] == [
            load_event(e).type for e in log.read()
        ]


def test_what_was_left_out_is_there_again_when_an_event_is_read(log: EventLog) -> None:
    log.append("run/r", events(written_out=False))
    started = load_event(next(log.read(types=["execution.started"])))
    responded = load_event(next(log.read(types=["provider.responded"])))
    assert isinstance(started, ExecutionStarted)
    assert isinstance(responded, ProviderResponded)
    message, call = started.messages[0], responded.tool_calls[0]
    assert (started.tags, message.tool_calls, message.prefill) == ([], [], False)
    assert (responded.warnings, call.malformed) == ([], False)
    assert isinstance(message.text, ContentRef)


def test_nothing_that_says_something_is_left_out() -> None:
    """A zero, an empty list that has to be given, a `no` that somebody said."""
    review = new_event(ReviewRecorded(run="r", execution=1, passed=False, by="me"))
    assert review.data["passed"] is False
    skipped = ExecutionStarted(suite=0, test="t", target="m", repeat=1, attempt=1, messages=[])
    assert new_event(skipped).data["messages"] == []
    assert new_event(skipped).data["suite"] == 0
    assert new_event(ExecutionFinished(status=Status.SKIPPED)).data["answers"] == 0
    prefill = MessageData(role=Role.ASSISTANT, text=Text("Hi"), prefill=True)
    sent = AgentSent(agent="a", adapter="http", call=1, after=0, messages=[prefill])
    (message,) = new_event(sent).data["messages"]
    assert message == {"role": "assistant", "text": Text("Hi"), "prefill": True}
