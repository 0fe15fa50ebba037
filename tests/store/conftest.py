"""What the tests of the event store share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kindlm_store import EventLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[EventLog]:
    with EventLog.open(path) as log:
        yield log


@pytest.fixture
def raw(log: EventLog) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the file, with SQLite's defaults."""
    with closing(sqlite3.connect(log.path, isolation_level=None)) as connection:
        yield connection
