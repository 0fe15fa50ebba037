"""What the event store does per second: durable appends in groups, and a rebuild.

Run it from a checkout with the package installed: `python benchmarks/store.py`. Figures are those
of this machine and its load at that moment; compare them within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

from kindlm_store import (
    Append,
    EventLog,
    Insert,
    NewEvent,
    Operation,
    Projection,
    RecordedEvent,
    Redactor,
    Table,
    Text,
    Update,
)

PAYLOAD = "The order 4711 was shipped on Tuesday and arrives within three working days. " * 10


def on_started(event: RecordedEvent) -> list[Operation]:
    row = {"id": event.subject, "stream": event.stream, "started_at": event.at, "steps": 0}
    return [Insert("tasks", row)]


def on_stepped(event: RecordedEvent) -> list[Operation]:
    return [Update("tasks", {"id": event.subject}, add={"steps": 1})]


def on_finished(event: RecordedEvent) -> list[Operation]:
    changes = {"finished_at": event.at, "tokens": event.data["tokens"]}
    return [Update("tasks", {"id": event.subject}, changes)]


TASKS = Projection(
    name="tasks",
    version=1,
    tables=(
        Table(
            "tasks",
            {
                "id": "TEXT",
                "stream": "TEXT",
                "started_at": "TEXT",
                "finished_at": "TEXT",
                "steps": "INTEGER",
                "tokens": "INTEGER",
            },
            primary_key=("id",),
        ),
    ),
    handlers={"task.started": on_started, "task.stepped": on_stepped, "task.finished": on_finished},
)


def task(number: int, *, text: bool) -> list[NewEvent]:
    """Seven events of about 1 kB about one thing, as a test of a suite makes them."""
    subject = f"task-{number:08}"
    body = f"{number} {PAYLOAD}"
    data = {"name": "shipping", "tokens": number, "latency_ms": 12.5, "tags": ["a", "b"]}
    data["body"] = Text(body) if text else body
    types = ["task.started", *["task.stepped"] * 5, "task.finished"]
    return [NewEvent(type_, data, subject=subject) for type_ in types]


def open_log(path: Path) -> EventLog:
    redact = Redactor(["sk-proj-0123456789abcdef", "another-secret-0123456789"])
    return EventLog.open(path, projections=[TASKS], redact=redact)


async def produce(log: EventLog, stream: str, tasks: int, *, text: bool) -> None:
    for number in range(tasks):
        for event in task(number, text=text):
            log.submit(Append(stream, (event,)))
        await log.ready()
    await log.aflush()


def append(path: Path, tasks: int, *, text: bool) -> float:
    """Events per second of one process."""
    with open_log(path) as log:
        start = time.perf_counter()
        asyncio.run(produce(log, "s/1", tasks, text=text))
        return tasks * 7 / (time.perf_counter() - start)


def append_bare(path: Path, tasks: int) -> float:
    """Events per second of the least that could do: JSON, a hash, rows of a plain table.

    No checks, no redaction, no triggers, no projection, nobody to tell: what the machine can do.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, id BLOB UNIQUE, stream INTEGER,"
        " version INTEGER, type TEXT, at TEXT, subject TEXT, data TEXT, hash BLOB,"
        " UNIQUE (stream, version))"
    )
    start, seq, head = time.perf_counter(), 0, b""
    for number in range(0, tasks, 100):
        rows = []
        for one in range(number, min(number + 100, tasks)):
            for event in task(one, text=False):
                seq += 1
                data = json.dumps(event.data, sort_keys=True, ensure_ascii=False)
                head = sha256(head + data.encode()).digest()
                rows.append(
                    (seq, event.id.bytes, 1, seq, event.type, event.at, event.subject, data, head)
                )
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    connection.close()
    return seq / (time.perf_counter() - start)


def work(path: Path, name: str, tasks: int, started: object) -> None:
    with open_log(path) as log:
        started.wait()  # type: ignore[attr-defined]
        for number in range(tasks):
            for event in task(number, text=False):
                unique = NewEvent(event.type, event.data, subject=f"{name}-{event.subject}")
                log.submit(Append(f"s/{name}", (unique,)))


def append_together(path: Path, processes: int, tasks: int) -> float:
    """Events per second of several processes on one file, together."""
    context = get_context("spawn")
    started = context.Barrier(processes + 1)
    workers = [
        context.Process(target=work, args=(path, str(n), tasks, started)) for n in range(processes)
    ]
    for worker in workers:
        worker.start()
    started.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    rate = processes * tasks * 7 / (time.perf_counter() - start)
    with open_log(path) as log:
        assert sum(1 for _ in log.read()) == processes * tasks * 7
        assert log.verify().ok
    return rate


def rebuild(path: Path, events: int) -> float:
    """Events per second of a rebuild."""
    with open_log(path) as log:
        start = time.perf_counter()
        log.rebuild()
        return events / (time.perf_counter() - start)


def report(what: str, rates: list[float], target: int | None = None) -> None:
    if not rates:
        return
    aim = f"; target {target:,}" if target else ""
    print(
        f"{what:<36} {statistics.median(rates):>8,.0f} events/s"
        f"  ({min(rates):,.0f} to {max(rates):,.0f}{aim})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=5_000, help="of seven events each")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args()
    bare, inline, texts, rebuilds, together = [], [], [], [], []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.db"
            bare.append(append_bare(path.with_name("bare.db"), options.tasks))
            inline.append(append(path, options.tasks, text=False))
            rebuilds.append(rebuild(path, options.tasks * 7))
            texts.append(append(path.with_name("texts.db"), options.tasks, text=True))
            each = options.tasks // options.processes
            if each:
                shared = path.with_name("shared.db")
                together.append(append_together(shared, options.processes, each))
    report("bare SQLite, for comparison", bare)
    report("append, payload in the event", inline, 20_000)
    report("append, payload as a text", texts, 20_000)
    report(f"append, {options.processes} processes together", together, 10_000)
    report("rebuild", rebuilds, 40_000)


if __name__ == "__main__":
    main()
