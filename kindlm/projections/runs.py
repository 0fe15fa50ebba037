"""Table `runs`: one row for each run; `run_labels` and `seals` hold what the journal says of it."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.projections.naming import run_id
from kindlm_store import Insert, Operation, Projection, RecordedEvent, Table, Update, Upsert

__all__ = ["RUNS"]


def _started(event: RecordedEvent) -> Iterator[Operation]:
    data = event.data
    git = data.get("git") or {}
    yield Insert(
        "runs",
        {
            "id": run_id(event),
            "project": data["project"],
            "label": data.get("label"),
            "mode": data["mode"],
            "planned": data["planned"],
            "started_at": event.at,
            "group_id": data.get("group"),
            "shard": data.get("shard"),
            "git_commit": git.get("commit"),
            "git_branch": git.get("branch"),
            "git_dirty": git.get("dirty", False) if git else None,
            "ci": data.get("ci"),
            "kindlm_version": data["versions"].get("kindlm"),
            "source_run": data.get("source_run"),
        },
    )


def _resumed(event: RecordedEvent) -> Iterator[Operation]:
    changes = {"ended": None, "reason": None, "planned": event.data["planned"]}
    yield Update("runs", {"id": run_id(event)}, changes)


def _extended(event: RecordedEvent) -> Iterator[Operation]:
    yield Update("runs", {"id": run_id(event)}, {"planned": event.data["planned"]})


def _interrupted(event: RecordedEvent) -> Iterator[Operation]:
    ended = event.type.removeprefix("run.")
    yield Update("runs", {"id": run_id(event)}, {"ended": ended, "reason": event.data["reason"]})


def _finished(event: RecordedEvent) -> Iterator[Operation]:
    yield Update(
        "runs",
        {"id": run_id(event)},
        {
            "ended": "finished",
            "finished_at": event.at,
            "passed": event.data["passed"],
            "exit_code": event.data["exit_code"],
            "duration_ms": event.data["duration_ms"],
        },
    )


def _labelled(event: RecordedEvent) -> Iterator[Operation]:
    row = {
        "run": event.data["run"],
        # None: its name was taken away, also the one that it began with.
        "label": event.data.get("label"),
        "labelled_by": event.data["by"],
        "at": event.at,
        "event": str(event.id),
    }
    yield Upsert("run_labels", {"run": row["run"]}, row, newest=("at", "event"))


def _sealed(event: RecordedEvent) -> Iterator[Operation]:
    row = {
        "run": event.data["run"],
        "head": event.data["head"],
        "sealed_at": event.at,
        "event": str(event.id),
    }
    yield Upsert("seals", {"run": row["run"]}, row, newest=("sealed_at", "event"))


RUNS = Projection(
    name="runs",
    version=4,
    tables=(
        Table(
            "runs",
            {
                "id": "TEXT",
                "project": "TEXT",
                "label": "TEXT",
                "mode": "TEXT",
                "planned": "INTEGER",
                "started_at": "TEXT",
                "finished_at": "TEXT",
                "ended": "TEXT",
                "reason": "TEXT",
                "passed": "INTEGER",
                "exit_code": "INTEGER",
                "duration_ms": "REAL",
                "group_id": "TEXT",
                "shard": "TEXT",
                "git_commit": "TEXT",
                "git_branch": "TEXT",
                "git_dirty": "INTEGER",
                "ci": "TEXT",
                "kindlm_version": "TEXT",
                "source_run": "TEXT",
            },
            primary_key=("id",),
            indexes=(("started_at",),),
        ),
        Table(
            "run_labels",
            {
                "run": "TEXT",
                "label": "TEXT",
                "labelled_by": "TEXT",
                "at": "TEXT",
                "event": "TEXT",
            },
            primary_key=("run",),
            foreign_keys={"run": ("runs", "id")},
        ),
        Table(
            "seals",
            {"run": "TEXT", "head": "TEXT", "sealed_at": "TEXT", "event": "TEXT"},
            primary_key=("run",),
            foreign_keys={"run": ("runs", "id")},
        ),
    ),
    handlers={
        "run.started": _started,
        "run.resumed": _resumed,
        "run.extended": _extended,
        "run.interrupted": _interrupted,
        "run.aborted": _interrupted,
        "run.finished": _finished,
        "run.labelled": _labelled,
        "run.sealed": _sealed,
    },
)
