"""Table `assertions`: one row for each assertion that was evaluated."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.projections.naming import (
    attempt_number,
    execution_id,
    json_column,
    run_id,
    text_ref,
)
from kindlm_store import Insert, Operation, Projection, RecordedEvent, Table

__all__ = ["ASSERTIONS"]


def _evaluated(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield Insert(
        "assertions",
        {
            "execution": execution_id(event),
            "attempt": attempt_number(event),
            "position": data["index"],
            "run": run_id(event),
            "kind": data["gen_ai.evaluation.name"],
            "label": data["label"],
            "outcome": data["gen_ai.evaluation.score.label"],
            "score": data.get("gen_ai.evaluation.score.value"),
            "threshold": data.get("threshold"),
            "failure_code": data.get("failure_code"),
            "message_ref": text_ref(data, "message"),
            "expected_ref": text_ref(data, "expected"),
            "actual_ref": text_ref(data, "actual"),
            "evidence": json_column(data.get("evidence", [])),
            "reasoning_ref": text_ref(data, "gen_ai.evaluation.explanation"),
            "trace_ref": text_ref(data, "trace"),
            "duration_ms": data["duration_ms"],
            "line": data.get("line"),
            "turn": data.get("turn"),
            "advisory": data.get("advisory", False),
        },
    )


ASSERTIONS = Projection(
    name="assertions",
    version=3,
    tables=(
        Table(
            "assertions",
            {
                "execution": "TEXT",
                "attempt": "INTEGER",
                "position": "INTEGER",
                "run": "TEXT",
                "kind": "TEXT",
                "label": "TEXT",
                "outcome": "TEXT",
                "score": "REAL",
                "threshold": "REAL",
                "failure_code": "TEXT",
                "message_ref": "TEXT",
                "expected_ref": "TEXT",
                "actual_ref": "TEXT",
                "evidence": "TEXT",
                "reasoning_ref": "TEXT",
                "trace_ref": "TEXT",
                "duration_ms": "REAL",
                "line": "INTEGER",
                "turn": "INTEGER",
                "advisory": "INTEGER",
            },
            primary_key=("execution", "attempt", "position"),
            clustered=True,
            foreign_keys={
                "execution": ("executions", "id"),
                "run": ("runs", "id"),
                "message_ref": ("contents", "ref"),
                "expected_ref": ("contents", "ref"),
                "actual_ref": ("contents", "ref"),
                "reasoning_ref": ("contents", "ref"),
            },
        ),
    ),
    handlers={"assertion.evaluated": _evaluated},
)
