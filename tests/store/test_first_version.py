"""Files of the first version are read, verified and appended to.

`data/version-1.db` was written by the first version of this package and is never written again.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from kindlm_store import EventLog, Head, NewEvent, open_reader
from kindlm_store.verification import verify_file

FIRST = Path(__file__).parent / "data" / "version-1.db"
DIGEST = "67874e0225d93bdc67ed6819c0e9c72a2773b793fd5bd995d2046271318e4f33"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIRST, tmp_path / "log.db"))


def test_the_file_is_the_one_that_was_checked_in() -> None:
    assert hashlib.sha256(FIRST.read_bytes()).hexdigest() == DIGEST


def test_a_new_file_has_the_schema_of_version_1(old: Path, tmp_path: Path) -> None:
    def schema(file: Path) -> dict[str, str]:
        with closing(open_reader(file)) as db:
            rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL")
            # sqlite-utils records migrations in a table, which it may change.
            return {name: sql for name, sql in rows if "_sqlite_migrations" not in name}

    EventLog.open(tmp_path / "new.db").close()
    assert schema(tmp_path / "new.db") == schema(old)


def test_events_of_version_1_are_read_and_verified(old: Path) -> None:
    with EventLog.open(old) as log:
        placed = list(log.read(types=["order.placed"]))
        assert [(e.schema, e.data["total"]) for e in placed] == [(1, "12.50 EUR"), (1, "7 EUR")]
        assert [e.data for e in log.read(types=["order.shipped"])] == [{"days": 3}]
        assert log.text(placed[0].data["note"]["$ref"]) == "Please ring twice. ☂"
        assert log.head("order/2") == Head(1, placed[1].hash, sealed=False)
        log.append("order/3", [NewEvent("order.placed", {"amount": 5}, 2)])
        assert [e.schema for e in log.read(types=["order.placed"])] == [1, 1, 2]
        assert verify_file(log.path).ok


def test_the_heads_of_version_1_are_what_was_noted_then(old: Path) -> None:
    result = verify_file(
        old, claims={"order.sealed": lambda event: {event.data["order"]: event.data["head"]}}
    )
    assert result.ok
    assert (result.streams, result.events, result.texts, result.heads) == (3, 4, 2, 1)
