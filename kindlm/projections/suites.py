"""Tables `suites`, `suite_gates` and `planned_tests`: what a run was asked to do."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.projections.naming import json_column, run_id, suite_id, text_ref
from kindlm_store import Insert, Operation, Projection, RecordedEvent, Table

__all__ = ["SUITES"]


def _started(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    suite = suite_id(run_id(event), data["ordinal"])
    yield Insert(
        "suites",
        {
            "id": suite,
            "run": run_id(event),
            "ordinal": data["ordinal"],
            "name": data["suite"],
            "project": data["project"],
            "front_end": data["front_end"],
            "path": data["path"],
            "config_hash": data["config_hash"],
            "config_ref": text_ref(data, "config"),
            "baseline_run": data.get("baseline_run"),
            "tags": json_column(data["tags"]),
            "started_at": event.at,
        },
    )
    for gate in data["gates"]:
        yield Insert("suite_gates", {"suite": suite, **gate})
    for ordinal, test in enumerate(data["tests"]):
        yield Insert(
            "planned_tests",
            {
                "suite": suite,
                "ordinal": ordinal,
                "test": test["name"],
                "target": test["target"],
                "selected": test["selected"],
                "skip": test["skip"],
                "repeat": test["repeat"],
                "pass_rate": test["pass_rate"],
                "tags": json_column(test["tags"]),
                "line": test.get("line"),
            },
        )


def _skipped(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield Insert(
        "suites",
        {
            "id": suite_id(run_id(event), data["ordinal"]),
            "run": run_id(event),
            "ordinal": data["ordinal"],
            "name": data["suite"],
            "path": data["path"],
            "started_at": event.at,
            "skipped_tests": data["tests"],
            "error_code": data["error_code"],
            "error_number": data["error_number"],
            "error_ref": text_ref(data, "message"),
            "hint_ref": text_ref(data, "hint"),
            "line": data.get("line"),
        },
    )


SUITES = Projection(
    name="suites",
    version=1,
    tables=(
        Table(
            "suites",
            {
                "id": "TEXT",
                "run": "TEXT",
                "ordinal": "INTEGER",
                "name": "TEXT",
                "project": "TEXT",
                "front_end": "TEXT",
                "path": "TEXT",
                "config_hash": "TEXT",
                "config_ref": "TEXT",
                "baseline_run": "TEXT",
                "tags": "TEXT",
                "started_at": "TEXT",
                "skipped_tests": "INTEGER",
                "error_code": "TEXT",
                "error_number": "INTEGER",
                "error_ref": "TEXT",
                "hint_ref": "TEXT",
                "line": "INTEGER",
            },
            primary_key=("id",),
            foreign_keys={"run": ("runs", "id"), "config_ref": ("contents", "ref")},
            indexes=(("run",), ("name",)),
        ),
        Table(
            "suite_gates",
            {"suite": "TEXT", "name": "TEXT", "threshold": "REAL", "written": "INTEGER"},
            primary_key=("suite", "name"),
            foreign_keys={"suite": ("suites", "id")},
        ),
        Table(
            "planned_tests",
            {
                "suite": "TEXT",
                "ordinal": "INTEGER",
                "test": "TEXT",
                "target": "TEXT",
                "selected": "INTEGER",
                "skip": "INTEGER",
                "repeat": "INTEGER",
                "pass_rate": "REAL",
                "tags": "TEXT",
                "line": "INTEGER",
            },
            primary_key=("suite", "test", "target"),
            foreign_keys={"suite": ("suites", "id")},
        ),
    ),
    handlers={"suite.started": _started, "suite.skipped": _skipped},
)
