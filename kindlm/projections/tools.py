"""Table `tool_calls`: one row for each call of a tool, with the answer it got."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindlm.projections.naming import attempt_number, execution_id, json_column, run_id, text_ref
from kindlm_store import Insert, Operation, Projection, RecordedEvent, Table, Update

__all__ = ["TOOL_CALLS"]


def _key(event: RecordedEvent) -> dict[str, Any]:
    return {
        "execution": execution_id(event),
        "attempt": attempt_number(event),
        "position": event.data["index"],
    }


def _called(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield Insert(
        "tool_calls",
        {
            **_key(event),
            "run": run_id(event),
            "call": data["call"],
            "tool": data["gen_ai.tool.name"],
            "call_id": data["gen_ai.tool.call.id"],
            "arguments_ref": text_ref(data, "arguments"),
            "called_at": event.at,
        },
    )


def _simulated(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield Update(
        "tool_calls",
        _key(event),
        {
            "rule": data["rule"],
            "response_ref": text_ref(data, "response"),
            "problems": json_column(data["problems"]) if data.get("problems") else None,
        },
    )


def _reported(event: RecordedEvent) -> Iterator[Operation]:
    """Fold the tool calls that an agent reports with its answer: it ran them itself.

    Those that were simulated for it are there already.
    """
    for use in event.data.get("tool_calls", ()):
        if use.get("simulated"):
            continue
        yield Insert(
            "tool_calls",
            {
                "execution": execution_id(event),
                "attempt": attempt_number(event),
                "position": use["index"],
                "run": run_id(event),
                "call": event.data["call"],
                "tool": use["name"],
                "call_id": use["id"],
                "arguments_ref": text_ref(use, "arguments"),
                "rule": use.get("rule") or "agent",
                "response_ref": text_ref(use, "response"),
                "problems": json_column(use["problems"]) if use.get("problems") else None,
                "called_at": event.at,
            },
        )


TOOL_CALLS = Projection(
    name="tool_calls",
    version=1,
    tables=(
        Table(
            "tool_calls",
            {
                "execution": "TEXT",
                "attempt": "INTEGER",
                "position": "INTEGER",
                "run": "TEXT",
                "call": "INTEGER",
                "tool": "TEXT",
                "call_id": "TEXT",
                "arguments_ref": "TEXT",
                "rule": "TEXT",
                "response_ref": "TEXT",
                "problems": "TEXT",
                "called_at": "TEXT",
            },
            primary_key=("execution", "attempt", "position"),
            foreign_keys={
                "execution": ("executions", "id"),
                "run": ("runs", "id"),
                "arguments_ref": ("contents", "ref"),
                "response_ref": ("contents", "ref"),
            },
        ),
    ),
    handlers={"tool.called": _called, "tool.simulated": _simulated, "agent.replied": _reported},
)
