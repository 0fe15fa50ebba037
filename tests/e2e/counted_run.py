"""Runs a command of kindlm as its command line does, and counts what that takes.

    python -m counted_run COUNTS.json test …

Counted are SQL statements on every connection to SQLite and the steps they take (by SQLite itself),
connections made to servers (by Python's audit hooks) and bytes written (by the operating system).
Memory is what Python allocates from the first connection on: what is imported before does not
matter here.
"""

from __future__ import annotations

import gc
import json
import sqlite3
import sys
import tracemalloc
from pathlib import Path
from typing import Any

from kindlm.__main__ import main

STEPS = 50
"""Steps of SQLite's virtual machine between two counts of them."""

_connect = sqlite3.connect


class Counts:
    """What was seen so far."""

    def __init__(self) -> None:
        self.statements = 0
        self.steps = 0
        self.connections = 0
        self.held = 0

    def audit(self, event: str, _: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            self.connections += 1
            if self.connections == 1:
                tracemalloc.start()

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        # The history is opened anew when all tests have run: what is held then was kept of them.
        gc.collect()
        self.held = max(self.held, tracemalloc.get_traced_memory()[0])
        connection = _connect(*arguments, **options)
        connection.set_trace_callback(self.statement)
        connection.set_progress_handler(self.progress, STEPS)
        return connection

    def progress(self) -> None:
        self.steps += STEPS

    def statement(self, sql: str) -> None:
        # What a trigger does begins with a comment: it is part of the statement that fired it.
        self.statements += not sql.startswith("--")


def bytes_written() -> int:
    """All that this process gave to `write` and its like; 0 where the system does not tell."""
    io = Path("/proc/self/io")
    if not io.exists():
        return 0
    lines = dict(line.split(": ") for line in io.read_text("ascii").splitlines())
    return int(lines["wchar"])


def run(out: Path, arguments: list[str]) -> int | str | None:
    counts, written = Counts(), bytes_written()
    sys.addaudithook(counts.audit)
    # The event of the audit hooks comes before a connection can be used.
    sqlite3.connect = counts.connect  # type: ignore[assignment]
    sys.argv = ["kindlm", *arguments]
    code: int | str | None = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    found = {
        "statements": counts.statements,
        "steps": counts.steps,
        "connections": counts.connections,
        "bytes_written": bytes_written() - written,
        "held": counts.held,
        "peak": tracemalloc.get_traced_memory()[1],
    }
    out.write_text(json.dumps(found), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
