"""Events per second of the event store: durable appends in groups, and rebuilds.

Events have about 1 kB, and seven of them belong to a task, similar to those of an execution. The
projection has a row for each task. kindlm's own events and tables are measured separately.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import in_process
from kindlm_store import Append, EventLog, NewEvent, Projection, Redactor, Text
from kindlm_store.verification import verify_file

EVENTS = 7
"""The number of events of a task."""

WINDOW = 200
"""After this number of tasks, producers await the ticket of the window before, as runs do."""

PAYLOAD = "The order 4711 was shipped on Tuesday and arrives within three working days. " * 10


TASKS = Projection(
    "tasks",
    version=1,
    sql="""
    CREATE TABLE tasks (
        id TEXT, stream TEXT, started_at TEXT, finished_at TEXT, steps INTEGER, tokens INTEGER,
        PRIMARY KEY (id))
    ON task.started:
        INSERT INTO tasks SELECT subject, stream, at, NULL, 0, NULL FROM new_events
    ON task.stepped:
        UPDATE tasks SET steps = tasks.steps + n.steps
          FROM (SELECT subject, count(*) AS steps FROM new_events GROUP BY 1) n
         WHERE id = n.subject
    ON task.finished:
        UPDATE tasks SET finished_at = n.at, tokens = n.data ->> 'tokens'
          FROM new_events n WHERE tasks.id = n.subject
    """,
)


def task(number: int, *, text: bool) -> list[NewEvent]:
    """Return the events of a task, about 1 kB each, similar to those of an execution."""
    subject = f"task-{number:08}"
    body = f"{number} {PAYLOAD}"
    data = {"name": "shipping", "tokens": number, "latency_ms": 12.5, "tags": ["a", "b"]}
    data["body"] = Text(body) if text else body
    types = ["task.started", *["task.stepped"] * 5, "task.finished"]
    return [NewEvent(type_, data, subject=subject) for type_ in types]


def open_log(path: Path, *, own: bool = False) -> EventLog:
    """Open a log with the projection of this module, or with kindlm's own read models."""
    redact = Redactor(["sk-proj-0123456789abcdef", "another-secret-0123456789"])
    if own:
        from kindlm.projections import PROJECTIONS

        return EventLog.open(path, projections=PROJECTIONS, redact=redact)
    return EventLog.open(path, projections=[TASKS], redact=redact)


def store(sizes: Sizes) -> Iterator[Figure]:
    """Yield the rates of appends in different ways, and of rebuilds."""
    each = max(sizes.tasks // sizes.processes, 1)

    def rates(function: str, **arguments: Any) -> list[float]:
        calls = range(sizes.runs)
        return [in_process(f"store.{function}", **arguments) for _ in calls]

    bare = rates("bare_rate", tasks=sizes.tasks)
    yield Figure("bare SQLite, for comparison", bare, "events/s")
    for what, together in (("one event a submit", 1), ("seven events a submit", EVENTS)):
        found = rates("append_rate", tasks=sizes.tasks, together=together)
        yield Figure(f"append, {what}", found, "events/s", "at least 20,000")
    texts = rates("append_rate", tasks=sizes.tasks, together=1, text=True)
    yield Figure("append, payloads as texts", texts, "events/s", "at least 20,000")
    shared = rates("shared_rate", tasks=each, processes=sizes.processes)
    what = f"append, {sizes.processes} processes together"
    yield Figure(what, shared, "events/s", "at least 10,000")
    yield Figure("rebuild", rates("rebuild_rate", tasks=sizes.tasks), "events/s", "at least 40,000")
    own = [in_process("store.kindlm_rates", executions=sizes.tasks) for _ in range(sizes.runs)]
    yield Figure("append, kindlm's events and tables", [a for a, _ in own], "events/s")
    yield Figure("rebuild of kindlm's tables", [b for _, b in own], "events/s")


def append_rate(tasks: int, together: int, *, text: bool = False) -> float:
    """Return events per second of one process that submits `together` events at once."""
    with tempfile.TemporaryDirectory() as folder, open_log(Path(folder) / "log.db") as log:
        began = time.perf_counter()
        asyncio.run(_produce(log, tasks, together, text=text))
        return tasks * EVENTS / (time.perf_counter() - began)


async def _produce(log: EventLog, tasks: int, together: int, *, text: bool) -> None:
    before = log.flush()
    for number in range(tasks):
        events = task(number, text=text)
        for first in range(0, EVENTS, together):
            ticket = log.submit(Append("s/1", events[first : first + together]))
        if number % WINDOW == 0:
            await before
            before = ticket
    await log.flush()


def bare_rate(tasks: int) -> float:
    """Return events per second of the bare minimum: JSON, a hash, rows of a plain table.

    It has no checks, redaction, triggers and projections, and shows what the machine can do.
    """
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "CREATE TABLE events (seq INTEGER PRIMARY KEY, id BLOB UNIQUE, stream INTEGER,"
            " version INTEGER, type TEXT, at TEXT, subject TEXT, data TEXT, hash BLOB,"
            " UNIQUE (stream, version))"
        )
        began, seq, head = time.perf_counter(), 0, b""
        for number in range(0, tasks, 100):
            rows = []
            for one in range(number, min(number + 100, tasks)):
                for event in task(one, text=False):
                    seq += 1
                    data = json.dumps(event.data, sort_keys=True, ensure_ascii=False)
                    head = sha256(head + data.encode()).digest()
                    about = (event.type, event.at, event.subject)
                    rows.append((seq, event.id.bytes, 1, seq, *about, data, head))
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            connection.execute("COMMIT")
        rate = seq / (time.perf_counter() - began)
        connection.close()
        return rate


def shared_rate(tasks: int, processes: int) -> float:
    """Return the total events per second of several processes with one file."""
    context = get_context("spawn")
    started = context.Barrier(processes + 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        workers = [
            context.Process(target=_work, args=(path, str(n), tasks, started))
            for n in range(processes)
        ]
        for worker in workers:
            worker.start()
        started.wait()
        began = time.perf_counter()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - began
        events = processes * tasks * EVENTS
        with open_log(path) as log:
            assert sum(1 for _ in log.read()) == events
            assert verify_file(log.path).ok
        return events / seconds


def _work(path: Path, name: str, tasks: int, started: Barrier) -> None:
    with open_log(path) as log:
        started.wait()
        for number in range(tasks):
            for event in task(number, text=False):
                unique = NewEvent(event.type, event.data, subject=f"{name}-{event.subject}")
                log.submit(Append(f"s/{name}", (unique,)))


def rebuild_rate(tasks: int) -> float:
    """Return events per second of a rebuild."""
    with tempfile.TemporaryDirectory() as folder, open_log(Path(folder) / "log.db") as log:
        asyncio.run(_produce(log, tasks, EVENTS, text=False))
        return _rebuilt(log, tasks * EVENTS)


def _rebuilt(log: EventLog, events: int) -> float:
    began = time.perf_counter()
    log.rebuild()
    took = time.perf_counter() - began
    assert log.projection_errors() == {}  # a fold that fails is fast
    return events / took


def kindlm_rates(executions: int) -> tuple[float, float]:
    """Return events per second of appending kindlm's events of executions, and of a rebuild."""
    from benchmarks.recorded import run_events

    stream, start, executed = "run/benchmark", *run_events(executions)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_log(Path(folder) / "log.db", own=True) as log,
    ):
        log.append(stream, start)
        began = time.perf_counter()
        asyncio.run(_submit(log, stream, executed))
        rate = len(executed) / (time.perf_counter() - began)
        return rate, _rebuilt(log, len(executed))


async def _submit(log: EventLog, stream: str, events: list[NewEvent]) -> None:
    before = log.flush()
    for number, event in enumerate(events):
        ticket = log.submit(Append(stream, (event,)))
        if number % (WINDOW * EVENTS) == 0:
            await before
            before = ticket
    await log.flush()
