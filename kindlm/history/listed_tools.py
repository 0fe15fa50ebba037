"""The tools that the MCP servers of a suite listed when a run began."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from functools import partial
from typing import Any

from kindlm.events import read
from kindlm.history.recorded_attempts import PurgedError, text_of
from kindlm.suite import ListedTools

_SERVERS = "SELECT servers FROM suites WHERE run = ? AND project = ? AND name = ?"


def listed_in(
    db: sqlite3.Connection, run: str, project: str, suite: str
) -> tuple[ListedTools, ...]:
    """Return what the servers of a suite listed in a run, but for lists that were purged."""
    row = db.execute(_SERVERS, (run, project, suite)).fetchone()
    return tuple(read_servers(db, row["servers"] if row else None))


def read_servers(db: sqlite3.Connection, column: str | None) -> Iterator[ListedTools]:
    """Yield the servers of a column that holds them, but for lists that were purged."""
    servers: list[dict[str, Any]] = json.loads(column or "[]")
    for server in servers:
        try:
            yield read(ListedTools, server, partial(text_of, db))
        except PurgedError:
            continue
