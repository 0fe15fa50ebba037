"""Tables `suites`, `suite_gates` and `planned_tests`: what a run was asked to do.

A suite may be told of again when its run is resumed, also as one that could not be loaded the first
time: what was told last holds, whole. Tests that are dealt to a shard one by one are selected as
they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.projections.naming import json_column, run_id, suite_id, text_ref
from kindlm_store import Delete, Operation, Projection, RecordedEvent, Table, Update, Upsert

__all__ = ["SUITES"]


_COLUMNS = {
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
    "unread": "TEXT",
}


_USUAL_CONFIDENCE = 0.95
"""What intervals that are shown hold with, where nothing else was asked for."""


def _started(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    suite = suite_id(run_id(event), data["ordinal"])
    yield from _told(
        event,
        {
            "project": data["project"],
            "front_end": data["front_end"],
            "config_hash": data["config_hash"],
            "config_ref": text_ref(data, "config"),
            "baseline_run": data.get("baseline_run"),
            "tags": json_column(data.get("tags", [])),
            "unread": json_column(data.get("unread", [])),
        },
    )
    for gate in data["gates"]:
        key = {"suite": suite, "name": gate["name"]}
        yield Upsert("suite_gates", key, {"suite": suite, **gate})
    for ordinal, test in enumerate(data["tests"]):
        key = {"suite": suite, "test": test["name"], "target": test["target"]}
        yield Upsert(
            "planned_tests",
            key,
            {
                **key,
                "ordinal": ordinal,
                "selected": test["selected"],
                "skip": test.get("skip", False),
                "repeat": test["repeat"],
                "pass_rate": test["pass_rate"],
                "tags": json_column(test.get("tags", [])),
                "line": test.get("line"),
                "file": test.get("file"),
                **_limits(test.get("score_limits")),
                "confidence": test.get("confidence", _USUAL_CONFIDENCE),
            },
        )


def _limits(limits: Mapping[str, Any] | None) -> dict[str, Any]:
    found = limits or {}
    return {
        "score_mean_min": found.get("min_mean"),
        "score_std_dev_max": found.get("max_std_dev"),
    }


def _skipped(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    yield from _told(
        event,
        {
            "skipped_tests": data["tests"],
            "error_code": data["error_code"],
            "error_number": data["error_number"],
            "error_ref": text_ref(data, "message"),
            "hint_ref": text_ref(data, "hint"),
            "line": data.get("line"),
        },
    )


def _dealt(event: RecordedEvent) -> Iterator[Operation]:
    for test in event.data.get("tests", []):
        suite = suite_id(run_id(event), test["suite"])
        key = {"suite": suite, "test": test["name"], "target": test["target"]}
        yield Update("planned_tests", key, {"selected": True})


def _told(event: RecordedEvent, facts: Mapping[str, Any]) -> Iterator[Operation]:
    """Write the row of a suite, and take back what was told of it before."""
    data = event.data
    suite = suite_id(run_id(event), data["ordinal"])
    row = dict.fromkeys(_COLUMNS) | {
        "id": suite,
        "run": run_id(event),
        "ordinal": data["ordinal"],
        "name": data["suite"],
        "path": data["path"],
        "started_at": event.at,
        **facts,
    }
    yield Upsert("suites", {"id": suite}, row)
    yield Delete("suite_gates", {"suite": suite})
    yield Delete("planned_tests", {"suite": suite})


SUITES = Projection(
    name="suites",
    version=6,
    tables=(
        Table(
            "suites",
            _COLUMNS,
            primary_key=("id",),
            foreign_keys={"run": ("runs", "id"), "config_ref": ("contents", "ref")},
            # By both: a history holds as many suites of a name as it holds runs.
            indexes=(("run", "name"), ("name",)),
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
                "file": "TEXT",
                "score_mean_min": "REAL",
                "score_std_dev_max": "REAL",
                "confidence": "REAL",
            },
            primary_key=("suite", "test", "target"),
            clustered=True,
            foreign_keys={"suite": ("suites", "id")},
        ),
    ),
    handlers={
        "suite.started": _started,
        "suite.skipped": _skipped,
        "run.extended": _dealt,
    },
)
