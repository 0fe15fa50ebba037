"""Table `provider_calls`: a row for each call of a model or an agent, retries and judges included.

Of an agent, `provider` is the adapter and `model` the agent's id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindlm.projections.naming import attempt_number, execution_id, json_column, run_id, text_ref
from kindlm_store import Insert, Operation, Projection, RecordedEvent, Table, Update

__all__ = ["PROVIDER_CALLS"]


def _requested(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield Insert(
        "provider_calls",
        {
            **_key(event),
            "run": run_id(event),
            "purpose": data["purpose"],
            "provider": data["gen_ai.provider.name"],
            "model": data["gen_ai.request.model"],
            "try": data["attempt"],
            "fingerprint": data["fingerprint"],
            "parameters": json_column(data.get("parameters", {})),
            "after": data.get("after"),
            "assertion": data.get("assertion"),
            "messages": json_column(data.get("messages", [])),
            "requested_at": event.at,
        },
    )


def _sent(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield Insert(
        "provider_calls",
        {
            **_key(event),
            "run": run_id(event),
            "purpose": "test",
            "provider": data["adapter"],
            "model": data["agent"],
            "try": data["attempt"],
            "parameters": "{}",
            "after": data["after"],
            "messages": json_column(data.get("messages", [])),
            "requested_at": event.at,
        },
    )


def _key(event: RecordedEvent) -> dict[str, Any]:
    return {
        "execution": execution_id(event),
        "attempt": attempt_number(event),
        "call": event.data["call"],
    }


def _responded(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield Update(
        "provider_calls",
        _key(event),
        {
            "status": "responded",
            "answered_at": event.at,
            "text_ref": text_ref(data, "text"),
            "tool_calls": json_column(data.get("tool_calls", [])),
            "finish_reason": data.get("gen_ai.response.finish_reason"),
            "reported_model": data.get("gen_ai.response.model"),
            "input_tokens": data.get("gen_ai.usage.input_tokens"),
            "output_tokens": data.get("gen_ai.usage.output_tokens"),
            "latency_ms": data["latency_ms"],
            "cost_usd": data.get("cost_usd"),
            "cost_source": data["cost_source"],
            "recorded_in": data.get("recorded_in"),
            "cost_then_usd": data.get("cost_then_usd"),
            "raw_ref": text_ref(data, "raw"),
            "reported_ref": text_ref(data, "reported"),
            "reports_tools": _reports_tools(event),
            "warnings": json_column(data.get("warnings", [])),
        },
    )


def _reports_tools(event: RecordedEvent) -> bool:
    """Whether tool calls would be in the answer: always of a model, of an agent if that is shown.

    Earlier versions did not record it: there, only a call shows it.
    """
    if event.type != "agent.replied":
        return True
    shown: bool | None = event.data.get("reports_tools")
    return bool(event.data.get("tool_calls")) if shown is None else shown


def _failed(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield Update(
        "provider_calls",
        _key(event),
        {
            "status": "failed",
            "answered_at": event.at,
            "error_code": data["error_code"],
            "error_number": data["error_number"],
            "http_status": data.get("status"),
            "error_ref": text_ref(data, "message"),
            "raw_ref": text_ref(data, "raw"),
            "latency_ms": data["latency_ms"],
            "retry_in_ms": data.get("retry_in_ms"),
        },
    )


PROVIDER_CALLS = Projection(
    name="provider_calls",
    version=4,
    tables=(
        Table(
            "provider_calls",
            {
                "execution": "TEXT",
                "attempt": "INTEGER",
                "call": "INTEGER",
                "run": "TEXT",
                "purpose": "TEXT",
                "provider": "TEXT",
                "model": "TEXT",
                "reported_model": "TEXT",
                "try": "INTEGER",
                "status": "TEXT",
                "requested_at": "TEXT",
                "answered_at": "TEXT",
                "fingerprint": "TEXT",
                "parameters": "TEXT",
                "after": "INTEGER",
                "assertion": "INTEGER",
                "messages": "TEXT",
                "text_ref": "TEXT",
                "tool_calls": "TEXT",
                "finish_reason": "TEXT",
                "input_tokens": "INTEGER",
                "output_tokens": "INTEGER",
                "latency_ms": "REAL",
                "cost_usd": "REAL",
                "cost_source": "TEXT",
                "recorded_in": "TEXT",
                "cost_then_usd": "REAL",
                "error_code": "TEXT",
                "error_number": "INTEGER",
                "http_status": "INTEGER",
                "error_ref": "TEXT",
                "retry_in_ms": "REAL",
                "raw_ref": "TEXT",
                "reported_ref": "TEXT",
                "reports_tools": "INTEGER",
                "warnings": "TEXT",
            },
            primary_key=("execution", "attempt", "call"),
            foreign_keys={
                "execution": ("executions", "id"),
                "run": ("runs", "id"),
                "text_ref": ("contents", "ref"),
                "error_ref": ("contents", "ref"),
                "raw_ref": ("contents", "ref"),
                "reported_ref": ("contents", "ref"),
            },
        ),
    ),
    handlers={
        "provider.requested": _requested,
        "provider.responded": _responded,
        "provider.failed": _failed,
        "agent.sent": _sent,
        "agent.replied": _responded,
        "agent.failed": _failed,
    },
)
