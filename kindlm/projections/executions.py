"""Tables `executions`, as their last attempts left them, and `retried_attempts` before those."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindlm.projections.naming import (
    attempt_number,
    execution_id,
    execution_number,
    json_column,
    run_id,
    suite_id,
    text_ref,
)
from kindlm_store import Insert, Operation, Projection, RecordedEvent, Table, Update, Upsert

__all__ = ["EXECUTIONS"]

# What an attempt came to.
_OUTCOME_COLUMNS = {
    "output_ref": "TEXT",
    "error_code": "TEXT",
    "error_number": "INTEGER",
    "error_ref": "TEXT",
    "hint": "TEXT",
    "trace_ref": "TEXT",
    "answers": "INTEGER",
    "latency_ms": "REAL",
    "input_tokens": "INTEGER",
    "output_tokens": "INTEGER",
    "cost_usd": "REAL",
    "cost_source": "TEXT",
    "cost_then_usd": "REAL",
    "finish_reason": "TEXT",
    "warnings": "TEXT",
    "score": "REAL",
}

_COLUMNS = {
    "id": "TEXT",
    "run": "TEXT",
    "suite": "TEXT",
    "number": "INTEGER",
    "test": "TEXT",
    "target": "TEXT",
    "repeat": "INTEGER",
    "attempt": "INTEGER",
    "status": "TEXT",
    "tags": "TEXT",
    "started_at": "TEXT",
    "finished_at": "TEXT",
    "messages": "TEXT",
    "tools_ref": "TEXT",
    **_OUTCOME_COLUMNS,
    # The attempt that held the conversation: its own, unless it was held in another run.
    "source": "TEXT",
    "source_attempt": "INTEGER",
}


def _started(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    source, _, attempt = (data.get("source") or "").rpartition(".")
    row = dict.fromkeys(_COLUMNS) | {
        "id": execution_id(event),
        "run": run_id(event),
        "suite": suite_id(run_id(event), data["suite"]),
        "number": execution_number(event),
        "test": data["test"],
        "target": data["target"],
        "repeat": data["repeat"],
        "attempt": data["attempt"],
        "tags": json_column(data.get("tags", [])),
        "started_at": event.at,
        "messages": json_column(data["messages"]),
        "tools_ref": text_ref(data, "tools"),
        "source": source or execution_id(event),
        "source_attempt": int(attempt) if source else data["attempt"],
    }
    # An attempt that is not the last one changes nothing, in whatever order they are folded.
    yield Upsert("executions", {"id": row["id"]}, row, newest=("attempt",))


# An attempt that was run again, with what it came to.
_ATTEMPT_COLUMNS = {
    "execution": "TEXT",
    "attempt": "INTEGER",
    "status": "TEXT",
    "finished_at": "TEXT",
    **_OUTCOME_COLUMNS,
}


def _finished(event: RecordedEvent) -> Iterator[Operation]:
    facts = _facts(event)
    attempt = attempt_number(event)
    if event.data.get("retried"):
        # The execution itself has not ended.
        told = {name: value for name, value in facts.items() if name in _ATTEMPT_COLUMNS}
        yield Insert(
            "retried_attempts", {"execution": execution_id(event), "attempt": attempt, **told}
        )
        return
    yield Update("executions", {"id": execution_id(event), "attempt": attempt}, facts)


def _facts(event: RecordedEvent) -> dict[str, Any]:
    data = event.data
    return {
        "status": data["status"],
        "finished_at": event.at,
        "output_ref": text_ref(data, "output"),
        "error_code": data.get("error_code"),
        "error_number": data.get("error_number"),
        "error_ref": text_ref(data, "error"),
        "hint": data.get("hint"),
        "trace_ref": text_ref(data, "trace"),
        "answers": data["answers"],
        "latency_ms": data["latency_ms"],
        "input_tokens": data.get("gen_ai.usage.input_tokens"),
        "output_tokens": data.get("gen_ai.usage.output_tokens"),
        "cost_usd": data.get("cost_usd"),
        "cost_source": data["cost_source"],
        "cost_then_usd": data.get("cost_then_usd"),
        "finish_reason": data.get("gen_ai.response.finish_reason"),
        "warnings": json_column(data.get("warnings", [])),
        "score": data.get("score"),
    }


EXECUTIONS = Projection(
    name="executions",
    version=7,
    tables=(
        Table(
            "executions",
            _COLUMNS,
            primary_key=("id",),
            foreign_keys={
                "run": ("runs", "id"),
                "suite": ("suites", "id"),
                "output_ref": ("contents", "ref"),
                "error_ref": ("contents", "ref"),
            },
            # The second one answers how the runs of a list went without looking at their rows.
            indexes=(("suite", "test", "target"), ("run", "status", "cost_usd", "answers")),
        ),
        Table(
            "retried_attempts",
            _ATTEMPT_COLUMNS,
            primary_key=("execution", "attempt"),
            clustered=True,
            foreign_keys={
                "execution": ("executions", "id"),
                "output_ref": ("contents", "ref"),
                "error_ref": ("contents", "ref"),
            },
        ),
    ),
    handlers={"execution.started": _started, "execution.finished": _finished},
)
