"""What the tables hold of recorded runs, also of earlier versions; a change takes a version."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kindlm.events import merge_of
from kindlm.events.codec import new_event
from kindlm.events.execution_events import AgentReplied, AgentSent, AgentToolUse, ExecutionStarted
from kindlm.projections import PROJECTIONS
from kindlm.recording.export_file import read_export
from kindlm.transcript import ToolCall, ToolUse
from kindlm_store import EventLog, Projection

DATA = Path(__file__).with_name("data")


def rows(log: EventLog) -> Iterator[str]:
    """Yield the rows of all tables without what is null, a text in the place of its reference."""
    with closing(log.reader()) as reader:
        texts = dict(reader.execute("SELECT ref, substr(body, 1, 60) FROM contents").fetchall())
        for projection in PROJECTIONS:
            for table in projection.tables:
                yield table
                for row in reader.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3"):
                    values = {
                        column: {"text": texts[value]} if column.endswith("_ref") else value
                        for column, value in dict(row).items()
                        if value is not None
                    }
                    yield f"  {json.dumps(values, ensure_ascii=False)}"


@pytest.mark.parametrize("name", ["suite", "agent", "retried"])
def test_a_recorded_run_gives_the_tables_that_it_gave(name: str, tmp_path: Path) -> None:
    with (
        EventLog.open(tmp_path / "kindlm.db", projections=PROJECTIONS) as log,
        (DATA / f"{name}.jsonl").open("rb") as file,
        read_export(file) as export,
    ):
        merge_of(log, export.log, DATA / f"{name}.jsonl").take(together=True)
        folded = list(rows(log))
        log.rebuild()
        assert list(rows(log)) == folded
        assert log.projection_errors() == {}
    expected = DATA / f"{name}.tables"
    if os.environ.get("KINDLM_TABLES") == "write":
        expected.write_text("\n".join(folded) + "\n", encoding="utf-8")
    assert folded == expected.read_text(encoding="utf-8").splitlines()


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


_KNOWN = {
    "runs": (7, "9bcfef7cdb82"),
    "suites": (9, "75d0f16f1304"),
    "executions": (8, "6f565c2daaec"),
    "provider_calls": (7, "8c9e00879e92"),
    "tool_calls": (2, "a340d5e64e1f"),
    "agent_spans": (1, "f84eae61e084"),
    "assertions": (5, "14be6c95d82d"),
    "gates": (2, "ed96ea106dea"),
    "baselines": (3, "337f16ed290c"),
    "reviews": (3, "4df0dcc1ce98"),
    "views": (17, "932b2a7c6c0c"),
}
"""The version of each projection, and a digest of its tables and views."""


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.name)
def test_changed_tables_and_views_have_a_new_version(projection: Projection) -> None:
    # A changed comment counts: recorded histories would be taken for changed by somebody.
    text = "\n".join(statement for _, statement in projection.parts.values())
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert _KNOWN[projection.name] == (projection.version, digest), (
        "raise the version, and put it and this digest into _KNOWN"
    )
