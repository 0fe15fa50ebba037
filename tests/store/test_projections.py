"""Projections: folded with every append, rebuilt at will, always the same tables."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindlm_store import (
    Append,
    Delete,
    EventLog,
    Insert,
    NewEvent,
    Operation,
    Projection,
    ProjectionError,
    RecordedEvent,
    Table,
    Update,
    Upsert,
    open_reader,
)


def on_opened(event: RecordedEvent) -> list[Operation]:
    return [
        Upsert("accounts", {"id": event.subject}, {"stream": event.stream, "total": 0}),
        Insert("entries", {"position": event.position, "account": event.subject, "amount": 0}),
    ]


def on_paid(event: RecordedEvent) -> list[Operation]:
    amount = event.data["amount"]
    return [
        Update("accounts", {"id": event.subject}, {"last": event.version}, {"total": amount}),
        Insert("entries", {"position": event.position, "account": event.subject, "amount": amount}),
        Upsert(
            "latest",
            {"account": event.subject},
            {"at": event.data["at"], "id": str(event.id), "amount": amount},
            newest=("at", "id"),
        ),
    ]


def on_closed(event: RecordedEvent) -> list[Operation]:
    return [Delete("accounts", {"id": event.subject}), Delete("latest", {"account": event.subject})]


ACCOUNTS = Projection(
    name="accounts",
    version=1,
    tables=(
        Table(
            "accounts",
            {"id": "TEXT", "stream": "TEXT", "total": "REAL", "last": "INTEGER"},
            ("id",),
            indexes=(("stream",), ("stream", "total")),
        ),
        Table(
            "entries",
            {"position": "INTEGER", "account": "TEXT", "amount": "REAL NOT NULL"},
            ("position",),
            foreign_keys={"account": ("accounts", "id")},
        ),
        Table(
            "latest",
            {"account": "TEXT", "at": "TEXT", "id": "TEXT", "amount": "REAL"},
            ("account",),
            clustered=True,
        ),
    ),
    handlers={"opened": on_opened, "paid": on_paid, "closed": on_closed},
    views={"rich": "SELECT id, total FROM accounts WHERE total > 10"},
)


def tables(path: Path, *names: str) -> dict[str, list[tuple[Any, ...]]]:
    with closing(open_reader(path)) as reader:
        return {
            name: [tuple(row) for row in reader.execute(f"SELECT * FROM {name} ORDER BY 1")]
            for name in names or ("accounts", "entries", "latest", "rich")
        }


def paid(account: str, amount: float, at: str = "1") -> NewEvent:
    return NewEvent("paid", {"amount": amount, "at": at}, subject=account)


steps = st.tuples(
    st.sampled_from(["s/1", "s/2", "s/3"]),
    st.sampled_from(["opened", "paid", "closed", "ignored"]),
    st.sampled_from(["a", "b", "c"]),
    st.integers(-5, 20),
    st.sampled_from(["1", "2", "3"]),
)


@settings(max_examples=50)
@given(groups=st.lists(st.lists(steps, min_size=1, max_size=12), min_size=1, max_size=5))
def test_a_rebuild_gives_the_tables_of_the_incremental_fold(
    groups: list[list[tuple[str, str, str, int, str]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        with EventLog.open(path, projections=[ACCOUNTS]) as log:
            for group in groups:
                for stream, kind, account, amount, at in group:
                    event = NewEvent(kind, {"amount": amount, "at": at}, subject=account)
                    log.submit(Append(stream, [event]))
                log.flush()
            incremental = tables(path)
            assert log.projection_errors() == {}
            log.rebuild()
            assert tables(path) == incremental
            log.rebuild()
            assert tables(path) == incremental
            assert log.projection_errors() == {}


def test_newest_decides_by_columns_and_not_by_arrival(path: Path) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [paid("a", 5, at="2")])
        log.append("s", [paid("a", 1, at="1")])
        log.append("s", [paid("a", 7, at="2")])
    assert tables(path, "latest")["latest"][0][3] == 7


def test_what_a_process_without_projections_appended_is_caught_up(path: Path) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a")])
        with EventLog.open(path) as other:
            other.append("s", [paid("a", 20)])
        log.append("s", [paid("a", 5)])
    assert tables(path, "rich")["rich"] == [("a", 25.0)]


def test_what_is_behind_is_folded_when_the_log_is_opened(path: Path) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a")])
    with EventLog.open(path) as other:
        other.append("s", [paid("a", 20)])
    assert tables(path, "rich")["rich"] == []
    with EventLog.open(path, projections=[ACCOUNTS]):
        assert tables(path, "rich")["rich"] == [("a", 20.0)]


def test_a_projection_that_is_new_folds_the_whole_history(path: Path) -> None:
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("opened", {}, subject="a"), paid("a", 20)])
    with EventLog.open(path, projections=[ACCOUNTS]):
        assert tables(path, "rich")["rich"] == [("a", 20.0)]


NO_VALUES: dict[str, Any] = {"id": ["a list"]}


def fails_on(amount: float) -> Callable[[RecordedEvent], Iterable[Operation]]:
    def handler(event: RecordedEvent) -> Iterable[Operation]:
        if event.data["amount"] == amount:
            raise ZeroDivisionError("planted")
        yield from on_paid(event)

    return handler


@pytest.mark.parametrize(
    "fault",
    [
        fails_on(13),
        lambda event: [Insert("accounts", {"id": "a"})] if event.data["amount"] == 13 else (),
        lambda event: [Insert("nowhere", {"id": "a"})] if event.data["amount"] == 13 else (),
        lambda event: [Insert("accounts", NO_VALUES)] if event.data["amount"] == 13 else (),
    ],
    ids=["raises", "repeats a key", "unknown table", "no value of SQL"],
)
def test_a_faulty_projection_loses_its_fold_and_nothing_else(
    path: Path, fault: Callable[[RecordedEvent], Iterable[Operation]]
) -> None:
    faulty = replace(ACCOUNTS, handlers={**ACCOUNTS.handlers, "paid": fault})
    counts = Projection(
        "counts",
        1,
        (Table("counts", {"id": "INTEGER", "n": "INTEGER"}, ("id",)),),
        {
            "paid": lambda e: [
                Upsert("counts", {"id": 1}, {}),
                Update("counts", {"id": 1}, {}, {"n": 1}),
            ]
        },
    )
    with EventLog.open(path, projections=[faulty, counts]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a"), paid("a", 1)])
        before = tables(path)
        log.append("s", [NewEvent("opened", {}, subject="b"), paid("a", 13)])
        log.append("s", [paid("a", 1)])
        assert len(list(log.read())) == 5
        assert tables(path) == before
        assert tables(path, "counts") == {"counts": [(1, 3)]}
        assert list(log.projection_errors()) == ["accounts"]
    with EventLog.open(path, projections=[ACCOUNTS, counts]) as log:
        assert list(log.projection_errors()) == ["accounts"]
        log.rebuild()
        assert log.projection_errors() == {}
        assert tables(path, "rich")["rich"] == [("a", 15.0)]
        assert log.verify().ok


SECOND = replace(
    ACCOUNTS,
    version=2,
    tables=(Table("accounts", {"id": "TEXT", "owner": "TEXT"}, ("id",), indexes=(("owner",),)),),
    handlers={"opened": lambda e: [Insert("accounts", {"id": e.subject, "owner": e.stream})]},
    views={"owners": "SELECT owner FROM accounts"},
)


def test_a_newer_version_folds_itself_and_drops_what_it_no_longer_has(path: Path) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a"), paid("a", 20)])
    with EventLog.open(path, projections=[SECOND]) as log:
        assert tables(path, "accounts", "owners") == {
            "accounts": [("a", "s")],
            "owners": [("s",)],
        }
        with closing(log.reader()) as reader:
            left = reader.execute(
                "SELECT name FROM sqlite_master WHERE name IN ('entries', 'latest', 'rich')"
                " OR name LIKE '%shadow%'"
            )
            assert left.fetchall() == []


def test_older_code_leaves_newer_tables_alone(path: Path) -> None:
    with EventLog.open(path, projections=[SECOND]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a")])
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="b")])
        assert tables(path, "accounts")["accounts"] == [("a", "s")]
        assert "update the program" in log.projection_errors()["accounts"]
        with pytest.raises(ProjectionError, match="update the program"):
            log.rebuild()
    with EventLog.open(path, projections=[SECOND]) as log:
        log.append("t", [NewEvent("opened", {}, subject="c")])
        assert tables(path, "accounts")["accounts"] == [("a", "s"), ("b", "s"), ("c", "t")]


def test_a_rebuild_leaves_the_schema_as_a_fresh_one_is(path: Path) -> None:
    def schema() -> list[tuple[Any, ...]]:
        with closing(open_reader(path)) as reader:
            rows = reader.execute(
                "SELECT type, tbl_name, coalesce(replace(sql, '_2\"', '\"'), '') FROM sqlite_master"
            )
            return sorted(map(tuple, rows))

    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        fresh = schema()
        for _ in range(3):
            log.rebuild()
            assert schema() == fresh


def test_a_rebuild_reports_its_progress_and_lets_others_append(path: Path) -> None:
    with (
        EventLog.open(path, projections=[ACCOUNTS]) as log,
        EventLog.open(path, projections=[ACCOUNTS]) as other,
    ):
        log.append("s", [NewEvent("opened", {}, subject="a")])
        log.append("s", [paid("a", 1) for _ in range(12_000)])
        seen: list[tuple[int, int]] = []

        def progress(done: int, total: int) -> None:
            seen.append((done, total))
            if len(seen) <= 2:
                other.append("other", [paid("a", 1)])

        log.rebuild(progress=progress)
        assert [done for done, _ in seen] == [5_000, 10_000, 12_003]
        assert seen[-1] == (12_003, 12_003)
        log.append("s", [paid("a", 1)])
        assert tables(path, "rich")["rich"] == [("a", 12_003.0)]
        assert log.projection_errors() == {}


def test_a_rebuild_that_breaks_off_leaves_the_old_tables(path: Path) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a")])
        log.append("s", [paid("a", 1) for _ in range(6_000)])
        before = tables(path)

        def stop(done: int, total: int) -> None:
            raise ConnectionAbortedError

        with pytest.raises(ConnectionAbortedError):
            log.rebuild(progress=stop)
        assert tables(path) == before
        log.append("s", [paid("a", 1)])
        log.rebuild()
        assert tables(path, "rich")["rich"] == [("a", 6_001.0)]


def test_views_over_several_projections_survive_a_rebuild_of_one(path: Path) -> None:
    views = Projection("views", 1, (), {}, {"both": "SELECT a.id FROM accounts a JOIN entries e"})
    with EventLog.open(path, projections=[views, ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a")])
        log.rebuild()
        assert tables(path, "both")["both"] == [("a",)]


def test_null_keys_are_found(path: Path) -> None:
    projection = Projection(
        "nulls",
        1,
        (Table("nulls", {"id": "INTEGER", "k": "TEXT", "n": "INTEGER"}, ("id",)),),
        {
            "t": lambda e: [
                Insert("nulls", {"id": e.position, "k": None}),
                Update("nulls", {"k": None}, {}, {"n": 2}),
            ]
        },
    )
    with EventLog.open(path, projections=[projection]) as log:
        log.append("s", [NewEvent("t", {})])
    assert tables(path, "nulls")["nulls"] == [(1, None, 2)]


def test_a_table_cannot_be_folded_outside_the_log(path: Path) -> None:
    with (
        EventLog.open(path, projections=[ACCOUNTS]) as log,
        closing(log.reader()) as reader,
        pytest.raises(sqlite3.OperationalError),
    ):
        reader.execute("DELETE FROM accounts")
