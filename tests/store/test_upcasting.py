"""Old events are lifted when they are read; what is stored stays as it is.

`data/version-1.db` was written by the first version of this package and is never written again.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kindlm_store import (
    EventLog,
    Head,
    NewEvent,
    Projection,
    Upcasters,
    on,
    verify_file,
)

FIRST = Path(__file__).parent / "data" / "version-1.db"
DIGEST = "67874e0225d93bdc67ed6819c0e9c72a2773b793fd5bd995d2046271318e4f33"

UPCASTERS = Upcasters()


@UPCASTERS.register("order.placed", 1)
def split_total(data: dict[str, Any]) -> dict[str, Any]:
    amount, _, currency = data.pop("total").partition(" ")
    return {**data, "amount": amount, "currency": currency}


@UPCASTERS.register("order.placed", 2)
def count_in_cents(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "amount": round(float(data["amount"]) * 100)}


ORDERS = Projection(
    "orders",
    1,
    "CREATE TABLE orders (id TEXT, cents INTEGER, PRIMARY KEY (id))",
    (on("order.placed", "INSERT INTO orders SELECT subject, data ->> 'amount' FROM new_events"),),
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIRST, tmp_path / "log.db"))


def stored(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM events WHERE seq <= 4").fetchall()


def test_the_file_is_the_one_that_was_checked_in() -> None:
    assert hashlib.sha256(FIRST.read_bytes()).hexdigest() == DIGEST


def test_events_of_version_1_are_lifted_and_their_bytes_stay(old: Path) -> None:
    before = stored(old)
    with EventLog.open(old, upcasters=UPCASTERS) as log:
        placed = list(log.read(types=["order.placed"]))
        assert [(e.schema, e.data["amount"], e.data["currency"]) for e in placed] == [
            (3, 1250, "EUR"),
            (3, 700, "EUR"),
        ]
        assert [e.data for e in log.read(types=["order.shipped"])] == [{"days": 3}]
        assert log.text(placed[0].data["note"]["$ref"]) == "Please ring twice. ☂"
        assert log.head("order/2") == Head(1, placed[1].hash, sealed=False)
        assert log.verify().ok
    assert stored(old) == before


def test_the_heads_of_version_1_are_what_was_noted_then(old: Path) -> None:
    result = verify_file(
        old, claims={"order.sealed": lambda event: {event.data["order"]: event.data["head"]}}
    )
    assert result.ok
    assert (result.streams, result.events, result.texts, result.heads) == (3, 4, 2, 1)


def test_old_and_new_events_live_side_by_side(old: Path) -> None:
    with EventLog.open(old, projections=[ORDERS], upcasters=UPCASTERS) as log:
        for schema, data in ((3, {"amount": 5}), (1, {"total": "6 EUR"})):
            log.append("o", [NewEvent("order.placed", data, schema, f"order-{schema + 10}")])
        with closing(log.reader()) as reader:

            def rows() -> list[tuple[Any, ...]]:
                return [tuple(row) for row in reader.execute("SELECT * FROM orders ORDER BY id")]

            incremental = rows()
            assert incremental == [
                ("order-1", 1250),
                ("order-11", 600),
                ("order-13", 5),
                ("order-2", 700),
            ]
            log.rebuild()
            assert rows() == incremental
        assert log.verify().ok


def test_without_upcasters_events_are_read_as_they_are(old: Path) -> None:
    with EventLog.open(old) as log:
        assert next(log.read()).schema == 1
        assert next(log.read()).data["total"] == "12.50 EUR"


def test_a_step_is_registered_once() -> None:
    with pytest.raises(ValueError, match="has an upcaster from schema 1 already"):
        UPCASTERS.register("order.placed", 1)(lambda data: data)
