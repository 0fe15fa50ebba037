"""Projections: folded with every append, rebuilt at will, always the same tables."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import Append, EventLog, NewEvent, Projection, ProjectionError, Text, open_reader
from kindlm_store.projecting import MISREADS_NUMBERS, Projector
from kindlm_store.verification import verify_file

ACCOUNTS = Projection(
    "accounts",
    version=1,
    sql="""
    CREATE TABLE accounts (id TEXT, stream TEXT, total REAL, last INTEGER, PRIMARY KEY (id));
    CREATE INDEX accounts_stream ON accounts (stream);
    CREATE INDEX accounts_stream_total ON accounts (stream, total);
    CREATE TABLE entries (
        position INTEGER, account TEXT REFERENCES accounts (id), amount REAL NOT NULL,
        PRIMARY KEY (position));
    CREATE TABLE latest (account TEXT, at TEXT, id TEXT, amount REAL, PRIMARY KEY (account))
        WITHOUT ROWID;
    ON opened paid:
        INSERT INTO accounts BY NAME
        SELECT subject AS id, stream, total(data ->> 'amount') AS total, max(seq) AS last
          FROM new_events WHERE true GROUP BY subject
        ON CONFLICT (id) DO UPDATE
           SET total = total + excluded.total, stream = excluded.stream, last = excluded.last
    ON paid:
        INSERT INTO entries BY NAME
        SELECT seq AS position, subject AS account, data ->> 'amount' AS amount
          FROM new_events
    ON paid:
        INSERT INTO latest BY NAME
        SELECT subject AS account, data ->> 'at' AS at, id, data ->> 'amount' AS amount
          FROM new_events WHERE true ORDER BY seq
        ON CONFLICT (account) DO UPDATE BY NAME
         WHERE (excluded.at, excluded.id) >= (latest.at, latest.id)
    VIEW rich:
        SELECT id, total FROM accounts WHERE total > 10
    """,
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


@examples(20)
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
                log.flush().result()
            incremental = tables(path)
            assert log.projection_errors() == {}
            log.rebuild()
            assert tables(path) == incremental
            log.rebuild()
            assert tables(path) == incremental
            assert log.projection_errors() == {}


def test_what_is_no_version_is_folded_anew(path: Path) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [paid("a", 20)])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE projections SET version = 'x', checkpoint = 'y'")
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        assert log.projection_errors() == {}
        assert tables(path, "rich")["rich"] == [("a", 20.0)]


@pytest.mark.parametrize("ahead", [1, 2, 1_000])
def test_a_checkpoint_behind_the_last_event_loses_no_row(path: Path, ahead: int) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [paid("a", 1)])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE projections SET checkpoint = checkpoint + ?", (ahead,))
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        for amount in (2, 3, 4):
            log.append("s", [paid("a", amount)])
        assert log.projection_errors() == {}
    assert [row[2] for row in tables(path)["entries"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("stored", ["[", "[1]", "7", "null", b"\xff"])
def test_a_rebuild_repairs_an_invalid_list_of_tables(path: Path, stored: object) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [paid("a", 20)])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE projections SET tables = ?, views = ?", (stored, stored))
    with EventLog.open(path, projections=[ACCOUNTS], repair=True) as log:
        log.rebuild()
        assert tables(path, "rich")["rich"] == [("a", 20.0)]
        with closing(log.reader()) as reader:
            lists = reader.execute("SELECT tables, views FROM projections").fetchone()
        assert tuple(map(json.loads, lists)) == ([*ACCOUNTS.tables], [*ACCOUNTS.views])


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


COUNTS = Projection(
    "counts",
    1,
    """
    CREATE TABLE counts (id INTEGER, n INTEGER, PRIMARY KEY (id))
    ON paid:
        INSERT INTO counts SELECT 1, count(*) FROM new_events WHERE true
        ON CONFLICT (id) DO UPDATE SET n = n + excluded.n
    """,
)


@pytest.mark.parametrize(
    "fault",
    [
        "INSERT INTO entries SELECT 0, json('{'), 0 FROM new_events WHERE data ->> 'amount' = 13",
        "INSERT INTO entries SELECT 2, subject, 0 FROM new_events WHERE data ->> 'amount' = 13",
        "INSERT INTO nowhere SELECT seq FROM new_events",
        "INSERT INTO entries SELECT 0, NULL, NULL FROM new_events WHERE data ->> 'amount' = 13",
        "INSERT INTO entries SELECT :missing, subject, 0 FROM new_events",
    ],
    ids=["raises", "repeats a key", "unknown table", "breaks a constraint", "refused by Python"],
)
def test_a_faulty_projection_loses_its_fold_and_nothing_else(path: Path, fault: str) -> None:
    types = "paid" if "13" in fault else "closed"
    faulty = replace(ACCOUNTS, sql=f"{ACCOUNTS.sql}\nON {types}:\n{fault}")
    counts = COUNTS
    with EventLog.open(path, projections=[faulty, counts]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a"), paid("a", 1)])
        before = tables(path)
        more = [NewEvent("opened", {}, subject="b"), paid("a", 13), NewEvent("closed", {})]
        log.append("s", more)
        log.append("s", [paid("a", 1)])
        assert len(list(log.read())) == 6
        assert tables(path) == before
        assert tables(path, "counts") == {"counts": [(1, 3)]}
        assert list(log.projection_errors()) == ["accounts"]
    with EventLog.open(path, projections=[ACCOUNTS, counts]) as log:
        assert list(log.projection_errors()) == ["accounts"]
        log.rebuild()
        assert log.projection_errors() == {}
        assert tables(path, "rich")["rich"] == [("a", 15.0)]
        assert verify_file(log.path).ok


SECOND = Projection(
    "accounts",
    2,
    """
    CREATE TABLE accounts (id TEXT, owner TEXT, PRIMARY KEY (id));
    CREATE INDEX accounts_owner ON accounts (owner);
    ON opened:
        INSERT INTO accounts SELECT subject, stream FROM new_events
    VIEW owners:
        SELECT owner FROM accounts
    """,
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
        assert [done for done, _ in seen] == [5_000, 10_000, 12_001, 12_003]
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


def test_a_position_far_behind_the_others_takes_no_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EventLog.open(path, projections=[ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a"), paid("a", 1)])
    with closing(sqlite3.connect(path, isolation_level=None)) as changed:
        changed.execute("DROP TRIGGER events_update")
        changed.execute("UPDATE events SET seq = 1 << 60 WHERE seq = 2")
    folded = Projector._fold
    pieces: list[int] = []

    def fold(self: Projector, *piece: Any) -> dict[str, str]:
        pieces.append(piece[-1])
        assert len(pieces) < 10, "positions without events are gone through"
        return folded(self, *piece)

    monkeypatch.setattr(Projector, "_fold", fold)
    with EventLog.open(path, projections=[ACCOUNTS], repair=True) as log:
        log.rebuild()
        log.append("s", [paid("a", 1)])
        assert tables(path, "rich", "entries")["entries"] == [
            (1 << 60, "a", 1.0),
            ((1 << 60) + 1, "a", 1.0),
        ]


def test_views_over_several_projections_survive_a_rebuild_of_one(path: Path) -> None:
    views = Projection("views", 1, "VIEW both:\nSELECT a.id FROM accounts a JOIN entries e")
    with EventLog.open(path, projections=[views, ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a"), paid("a", 1)])
        log.rebuild()
        assert tables(path, "both")["both"] == [("a",)]


FAULT = "\nON paid:\nINSERT INTO entries SELECT seq, 1, NULL FROM new_events WHERE seq = 70"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild folds 50 events at once."""
    monkeypatch.setattr("kindlm_store.projecting._PIECE", 50)


@pytest.mark.usefixtures("small_pieces")
def test_what_fails_in_a_rebuild_stays_where_it_failed(path: Path) -> None:
    faulty = replace(ACCOUNTS, version=2, sql=ACCOUNTS.sql + FAULT)
    with EventLog.open(path, projections=[COUNTS]) as log:
        log.append("s", [paid("a", 1) for _ in range(120)])
    with EventLog.open(path, projections=[COUNTS, faulty]) as log:
        assert tables(path, "counts", "rich") == {"counts": [(1, 120)], "rich": [("a", 50.0)]}
        assert list(log.projection_errors()) == ["accounts"]


@pytest.mark.usefixtures("small_pieces")
def test_what_fails_in_a_rebuild_keeps_its_tables(path: Path) -> None:
    faulty = replace(ACCOUNTS, sql=ACCOUNTS.sql + FAULT)
    with EventLog.open(path, projections=[COUNTS, ACCOUNTS]) as log:
        log.append("s", [NewEvent("opened", {}, subject="a")])
        log.append("s", [paid("a", 1) for _ in range(80)])
        before = tables(path)
    with EventLog.open(path, projections=[COUNTS, faulty]) as log:
        log.rebuild()
        assert list(log.projection_errors()) == ["accounts"]
        assert tables(path) == before
        log.append("s", [paid("a", 1)])
        assert tables(path) == before
        assert tables(path, "counts") == {"counts": [(1, 81)]}
        assert verify_file(log.path).ok
    with EventLog.open(path, projections=[COUNTS, ACCOUNTS]) as log:
        assert list(log.projection_errors()) == ["accounts"]
        log.rebuild()
        assert log.projection_errors() == {}
        assert tables(path, "rich")["rich"] == [("a", 81.0)]


@pytest.mark.parametrize("misreads", {True, MISREADS_NUMBERS})
def test_numbers_are_read_as_python_reads_them(
    path: Path, monkeypatch: pytest.MonkeyPatch, misreads: bool
) -> None:
    """Also where SQLite misreads some: then Python reads them. Other values stay as SQLite's."""
    monkeypatch.setattr("kindlm_store.projecting.MISREADS_NUMBERS", misreads)
    monkeypatch.setattr("kindlm_store.projecting._BUILT", {})
    sql = """
    CREATE TABLE n (id INTEGER PRIMARY KEY, x REAL, y REAL, z, plain)
    ON t:
        INSERT INTO n SELECT seq, real(data ->> 'x'), real(data ->> '$.of.y'), real(data ->> 'x'),
               data ->> 'x' FROM new_events
    """
    numbers = [
        0.1,
        1e300,
        5e-324,
        -12345.6789,
        0.965784323,
        3744.565835397,
        0.1 + 0.2,
        3,
        2**53 - 1,
        None,
    ]
    others = [True, "1.5", "-2e3", "", "null", [1.5], {"a": 0.1}, 2**63 - 1, 2**63, -(10**20)]
    with EventLog.open(path, projections=[Projection("n", 1, sql)]) as log:
        log.append("s", [NewEvent("t", {"x": x, "of": {"y": x}}) for x in numbers + others])
        assert log.projection_errors() == {}
    rows = tables(path, "n")["n"]
    assert [row[1:3] for row in rows[: len(numbers)]] == [(x, x) for x in numbers]
    assert [repr(row[3]) for row in rows[len(numbers) :]] == [
        repr(row[4]) for row in rows[len(numbers) :]
    ]


def test_fields_are_read_by_the_names_and_types_of_columns(path: Path) -> None:
    sql = """
    CREATE TABLE said (stream TEXT, by TEXT, text_ref TEXT, score REAL, PRIMARY KEY (stream))
    ON said:
        INSERT INTO said BY NAME SELECT stream, FIELDS OF data (by, text_ref, score) FROM new_events
    """
    with EventLog.open(path, projections=[Projection("said", 1, sql)]) as log:
        log.append("s", [NewEvent("said", {"by": "me", "text": Text("Hi"), "score": 0.965784323})])
        log.append("t", [NewEvent("said", {"by": None})])
        first, second = tables(path, "said")["said"]
        assert (log.text(first[2]), *first[::3], first[1]) == ("Hi", "s", 0.965784323, "me")
    assert second == ("t", None, None, None)


def test_a_statement_without_the_types_of_its_events_is_an_error() -> None:
    with pytest.raises(ValueError, match="INSERT INTO entries"):
        replace(ACCOUNTS, sql="INSERT INTO entries SELECT seq, 1, 1 FROM new_events")


def test_a_table_cannot_be_folded_outside_the_log(path: Path) -> None:
    with (
        EventLog.open(path, projections=[ACCOUNTS]) as log,
        closing(log.reader()) as reader,
        pytest.raises(sqlite3.OperationalError),
    ):
        reader.execute("DELETE FROM accounts")
