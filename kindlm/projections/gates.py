"""Table `gates`: what each gate said when the run finished, as the user was told then."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.projections.naming import run_id
from kindlm_store import Insert, Operation, Projection, RecordedEvent, Table

__all__ = ["GATES"]


def _finished(event: RecordedEvent) -> Iterator[Operation]:
    for gate in event.data["gates"]:
        yield Insert(
            "gates",
            {
                "run": run_id(event),
                "suite": gate["suite"],
                "name": gate["name"],
                "threshold": gate["threshold"],
                "actual": gate.get("actual"),
                "passed": gate["passed"],
                "written": gate["written"],
                "message": gate["message"],
            },
        )


GATES = Projection(
    name="gates",
    version=1,
    tables=(
        Table(
            "gates",
            {
                "run": "TEXT",
                "suite": "TEXT",
                "name": "TEXT",
                "threshold": "REAL",
                "actual": "REAL",
                "passed": "INTEGER",
                "written": "INTEGER",
                "message": "TEXT",
            },
            primary_key=("run", "suite", "name"),
            foreign_keys={"run": ("runs", "id"), "suite": ("suites", "id")},
        ),
    ),
    handlers={"run.finished": _finished},
)
