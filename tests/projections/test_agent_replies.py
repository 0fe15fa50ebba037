"""What the table of calls holds of answers of agents, also of those of earlier versions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kindlm.events.codec import new_event
from kindlm.events.execution_events import AgentReplied, AgentSent, AgentToolUse, ExecutionStarted
from kindlm.projections import PROJECTIONS
from kindlm.transcript import ToolCall, ToolUse
from kindlm_store import EventLog


@pytest.mark.parametrize(
    ("recorded", "calls", "shown"),
    [(True, 0, 1), (False, 0, 0), (False, 1, 0), (None, 0, 0), (None, 1, 1)],
)
def test_an_answer_of_an_earlier_version_shows_only_by_a_call_that_calls_are_reported(
    tmp_path: Path, recorded: bool | None, calls: int, shown: int
) -> None:
    started = ExecutionStarted(suite=0, test="t", target="shop", repeat=1, attempt=1, messages=[])
    call = AgentToolUse(index=0, use=ToolUse(ToolCall("c", "lookup", {}), 1))
    replied = AgentReplied(
        call=1,
        text="Done.",
        latency_ms=1.0,
        tool_calls=[call] * calls,
        reports_tools=recorded,
    )
    sent = AgentSent(agent="shop", adapter="http", call=1, after=0)
    with EventLog.open(tmp_path / "kindlm.db", projections=PROJECTIONS) as log:
        events = [new_event(payload, subject="1.1") for payload in (started, sent, replied)]
        log.append("run/r", events)
        assert log.projection_errors() == {}
        with closing(log.reader()) as reader:
            row = reader.execute("SELECT reports_tools FROM provider_calls").fetchone()
    assert row[0] == shown
