"""`kindlm history verify` and `rebuild`, and what kindlm says of tables that are not its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

HASH = "sha256:" + "0" * 64

SCRIPTED = """
kindlm: 1
project: shop
suite: { name: orders }
providers: { fake: { type: scripted, replies: [{ text: "Delivered." }] } }
models: [{ id: m, provider: fake, model: x }]
prompts: { ask: { user: "Where?" } }
tests: [{ name: delivered, prompt: ask, expect: { output: { contains: [delivered] } } }]
"""


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    """A history with a finished run of one failing test."""
    writer = history.run("k3f9x2ab")
    writer.suite(tests=[make.planned()])
    writer.execution(assertions=(make.failed(),))
    writer.finish()
    return history


@contextmanager
def tampering(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a history as somebody who wants to change what was recorded."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table in ("events", "contents", "streams"):
            connection.execute(f"DROP TRIGGER {table}_update")
        yield connection


def head_of(history: Any, stream: str) -> str:
    with closing(history.log.reader()) as connection:
        row = connection.execute(
            "SELECT hash FROM event_log WHERE stream = ? ORDER BY version DESC", (stream,)
        ).fetchone()
    return str(row[0])


def test_an_untouched_history_is_as_recorded(kindlm: Any, recorded: Any) -> None:
    outcome = kindlm("verify", "--db", recorded.path)
    assert outcome.code == 0
    assert f"✓ run/k3f9x2ab  8 events  {head_of(recorded, 'run/k3f9x2ab')}" in outcome.out
    assert "all as recorded" in outcome.out


def test_where_the_file_is_at_fault_the_last_line_says_so(kindlm: Any, recorded: Any) -> None:
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER events_update")
    outcome = kindlm("verify", "--db", recorded.path)
    assert outcome.code == 1
    last = outcome.out.splitlines()[-1]
    assert "all as recorded" not in last
    assert "something is wrong with the file" in last


def test_a_changed_event_is_found_and_its_place_is_reported(kindlm: Any, recorded: Any) -> None:
    with tampering(recorded.path) as connection:
        connection.execute(
            "UPDATE events SET data = replace(data, 'failed', 'passed')"
            " WHERE data LIKE '%CONTAINS_FAILED%'"
        )
    outcome = kindlm("verify", "--db", recorded.path)
    assert outcome.code == 1
    assert "✗ run/k3f9x2ab" in outcome.out
    assert "does not match its hash" in outcome.out
    assert "problem" in outcome.out.splitlines()[-1]
    # From these, tables would be computed that say what was never recorded.
    of_run = kindlm("verify", "k3f", "--db", recorded.path)
    assert "do NOT match its events: restore the history from a backup\n" in of_run.out
    assert "history rebuild" not in outcome.out + of_run.out


def test_a_record_of_a_stream_that_is_no_number_is_a_problem(kindlm: Any, recorded: Any) -> None:
    with tampering(recorded.path) as connection:
        connection.execute("UPDATE streams SET version = 'x'")
    outcome = kindlm("verify", "--db", recorded.path)
    assert outcome.code == 1
    assert "the stream does not end where its record states" in outcome.out


def test_one_run_is_checked_against_a_head_that_was_printed(kindlm: Any, recorded: Any) -> None:
    head = head_of(recorded, "run/k3f9x2ab")
    verify = ("verify", "k3f", "--db", recorded.path, "--head")
    assert kindlm(*verify, head).code == 0
    assert kindlm(*verify, head.removeprefix("sha256:").upper()).code == 0
    wrong = kindlm(*verify, HASH)
    assert wrong.code == 1
    assert HASH in wrong.out


def test_a_run_whose_tables_were_changed_is_reported_from_its_events(
    kindlm: Any, recorded: Any
) -> None:
    verify = ("verify", "k3f", "--db", recorded.path)
    assert "✓ tables of run k3f9x2ab: match its events\n" in kindlm(*verify).out
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as connection:
        connection.execute("UPDATE executions SET status = 'passed'")

    outcome = kindlm(*verify)
    assert outcome.code == 1
    assert "1 stream, 8 events" in outcome.out
    assert "all as recorded\n" in outcome.out
    rebuild = f"kindlm history rebuild --db {recorded.path.name}"
    assert f"✗ tables of run k3f9x2ab: do NOT match its events: {rebuild}\n" in outcome.out
    assert "table executions is not what the events of run k3f9x2ab say" in outcome.out
    # The run is passed now, as its tables say, and the document no evidence of that.
    report = ("report", "--db", recorded.path, "--format")
    assert kindlm(*report, "json").code == 0
    document = kindlm(*report, "compliance")
    assert document.code == 1
    assert document.out.startswith("**NOT AS RECORDED.**")
    assert "is not evidence" in document.err
    assert kindlm("rebuild", "--db", recorded.path).code == 0
    assert kindlm(*verify).code == 0


def test_a_changed_review_of_a_run_is_named_also_if_its_table_agrees(
    kindlm: Any, recorded: Any
) -> None:
    recorded.review("k3f9x2ab", 1, passed=False, note="wrong", by="ada")
    with tampering(recorded.path) as connection:
        connection.execute(
            """UPDATE events SET data = replace(data, '"passed":false', '"passed":true')
                WHERE stream IN (SELECT id FROM streams WHERE name GLOB 'journal/*')"""
        )
        connection.execute("UPDATE reviews SET passed = 1")
    outcome = kindlm("verify", "k3f", "--db", recorded.path)
    assert outcome.code == 1
    assert "✗ journal/" in outcome.out
    assert ": the event does not match its hash\n" in outcome.out
    assert "✓ tables of run k3f9x2ab: match its events\n" in outcome.out


@pytest.mark.parametrize("arguments", [["--head", HASH], ["k3f", "--head", "nonsense"], ["zzz"]])
def test_a_question_that_makes_no_sense_is_an_error(
    kindlm: Any, recorded: Any, arguments: list[str]
) -> None:
    outcome = kindlm("verify", *arguments, "--db", recorded.path)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("✗ ")


def test_rebuild_brings_lost_rows_back(kindlm: Any, recorded: Any) -> None:
    before = kindlm("report", "--db", recorded.path, "--format", "json").out
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM assertions")
    assert kindlm("report", "--db", recorded.path, "--format", "json").out != before
    outcome = kindlm("rebuild", "--db", recorded.path)
    assert outcome.code == 0
    assert "9 events" in outcome.err
    assert kindlm("report", "--db", recorded.path, "--format", "json").out == before


@pytest.mark.parametrize("stored", ["[", "[1]"])
def test_rebuild_repairs_an_invalid_list_of_tables(kindlm: Any, recorded: Any, stored: str) -> None:
    before = kindlm("report", "--db", recorded.path, "--format", "json").out
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as connection:
        connection.execute("UPDATE projections SET tables = ?, views = ?", (stored, stored))
    outcome = kindlm("rebuild", "--db", recorded.path)
    assert (outcome.code, "9 events" in outcome.err) == (0, True), outcome.err
    assert kindlm("report", "--db", recorded.path, "--format", "json").out == before
    assert kindlm("verify", "--db", recorded.path).code == 0


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("version = 999", "Update kindlm"),
        ("error = 'a handler raised'", "kindlm history rebuild"),
    ],
)
def test_tables_that_do_not_fit_are_not_read(
    kindlm: Any, recorded: Any, change: str, hint: str
) -> None:
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE projections SET {change} WHERE name = 'executions'")
    for command in ("runs", "show", "report"):
        outcome = kindlm(command, "--db", recorded.path)
        assert (outcome.code, outcome.out) == (1, "")
        assert "'executions'" in outcome.err
        assert hint in outcome.err


def test_a_history_of_a_newer_version_is_refused(kindlm: Any, recorded: Any) -> None:
    recorded.close()
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 999")
    for command in ("runs", "verify", "rebuild"):
        outcome = kindlm(command, "--db", recorded.path)
        assert outcome.code == 1
        assert "Update kindlm" in outcome.err


def test_a_damaged_file_is_reported_as_such(kindlm: Any, recorded: Any) -> None:
    recorded.close()
    data = bytearray(recorded.path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    recorded.path.write_bytes(data)
    for command in ("runs", "verify"):
        outcome = kindlm(command, "--db", recorded.path)
        assert outcome.code == 1
        assert "itself failed" not in outcome.err
        assert outcome.err.startswith("✗ The history ")


def test_a_history_whose_creation_was_cut_off_holds_nothing_yet(kindlm: Any, here: Path) -> None:
    path = here / "new.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    empty = here / "empty.db"
    empty.touch()
    assert "No runs are recorded yet" in kindlm("verify", "--db", empty).err
    for command in ("runs", "show", "verify"):
        outcome = kindlm(command, "--db", path)
        assert outcome.code == 1
        assert "No runs are recorded yet" in outcome.err
        assert "kindlm test" in outcome.err


def test_a_table_that_is_gone_is_to_be_rebuilt(kindlm: Any, recorded: Any) -> None:
    with closing(sqlite3.connect(recorded.path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE provider_calls")
    outcome = kindlm("runs", "--db", recorded.path)
    assert outcome.code == 1
    assert "kindlm history rebuild" in outcome.err


def pages_of(path: Path, name: str) -> list[int]:
    """The pages of a table or index, the first one last."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY pageno"
        try:
            return [row[0] for row in connection.execute(query, (name,))]
        except sqlite3.OperationalError:
            pytest.skip("SQLite was built without dbstat")


@pytest.mark.parametrize(
    ("name", "filling"),
    [
        ("assertions", b"\0"),
        ("contents", b"\xa5"),
        ("sqlite_autoindex_contents_1", b"\0"),
        ("sqlite_autoindex_events_2", b"\xa5"),
    ],
)
def test_a_damaged_page_is_found_and_what_is_left_comes_into_a_new_history(
    kindlm: Any, history: Any, make: Any, here: Path, name: str, filling: bytes
) -> None:
    for run in range(3):
        writer = history.run(f"aaaa222{run + 2}")
        writer.suite(tests=[make.planned(repeat=5)])
        for number in range(5):
            writer.execution(user=f"{run} {number} " * 40, assertions=(make.failed(),))
        writer.finish()
    history.close()
    pages = pages_of(history.path, name)
    with history.path.open("r+b") as file:
        file.seek((pages[0] - 1) * 4096)
        file.write(filling * 4096)
    verified = kindlm("verify", "--db", history.path)
    assert verified.code == 1
    told = verified.out + verified.err
    assert "kindlm history merge kindlm.db --db NEW.db" in told, told
    for command in (("runs",), ("rebuild",), ("backup", here / "copy.db")):
        outcome = kindlm(*command, "--db", history.path)
        assert "itself failed" not in outcome.err
        assert outcome.code == 0 or "kindlm history merge" in outcome.err
    outcome = kindlm("merge", history.path, "--db", here / "new.db")
    assert outcome.code == 0, outcome.err
    verified = kindlm("verify", "--db", here / "new.db")
    assert (verified.code, "all as recorded" in verified.out) == (0, True)
    listed = kindlm("runs", "--db", here / "new.db").out
    assert [f"aaaa222{run + 2}" in listed for run in range(3)] == [True] * 3


@pytest.mark.parametrize("table", ["contents", "sqlite_autoindex_contents_1", "events"])
def test_what_was_merged_before_the_damaged_page_counts_as_merged(
    kindlm: Any, history: Any, make: Any, here: Path, table: str
) -> None:
    for run in range(3):
        writer = history.run(f"aaaa222{run + 2}")
        writer.suite(tests=[make.planned(repeat=5)])
        for number in range(5):
            writer.execution(user=f"{run} {number} " * 400, assertions=(make.failed(),))
        writer.finish()
    history.close()
    damage(history.path, pages_of(history.path, table)[-1])
    outcome = kindlm("merge", history.path, "--db", here / "new.db")
    with closing(sqlite3.connect(here / "new.db")) as db:
        (events,) = db.execute("SELECT count(*) FROM events").fetchone()
    assert f": {events} events merged" in outcome.err
    assert "were there already" not in outcome.err


def damage(path: Path, page: int) -> None:
    """Write other bytes over the beginning of a page."""
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xa5\x0b" * 32)


def test_a_history_whose_list_of_tables_is_damaged_is_to_be_restored(
    kindlm: Any, recorded: Any, here: Path
) -> None:
    kindlm("backup", here / "whole.db", "--db", recorded.path)
    whole = (here / "whole.db").read_bytes()
    for page in [1, *pages_of(here / "whole.db", "sqlite_schema")]:
        (here / "damaged.db").write_bytes(whole)
        damage(here / "damaged.db", page)
        verified = kindlm("verify", "--db", here / "damaged.db")
        assert (verified.code, "from a backup" in verified.err) == (1, True)
        outcome = kindlm("merge", here / "damaged.db", "--db", here / "new.db")
        assert (outcome.code, "from a backup" in outcome.err) == (1, True)
    # SQLite would write what a killed process left there into the backup.
    assert "from a backup: delete damaged.db-wal first." in verified.err
    assert not (here / "new.db").exists()


def test_where_nothing_can_be_read_a_merge_says_so(kindlm: Any, recorded: Any, here: Path) -> None:
    recorded.close()
    data = bytearray(recorded.path.read_bytes())
    data[100:] = b"\xa5" * (len(data) - 100)
    recorded.path.write_bytes(data)
    outcome = kindlm("merge", recorded.path, "--db", "new.db")
    assert outcome.code == 1
    assert "kindlm history merge" not in outcome.err
    assert "kindlm history backup" in outcome.err
    assert not (here / "new.db").exists()


@pytest.mark.parametrize(
    ("table", "said"),
    [("streams", "not which run they belong to"), ("events", "kindlm history merge BACKUP.db")],
)
def test_what_a_merge_cannot_read_of_a_damaged_history_is_said(
    kindlm: Any, recorded: Any, here: Path, table: str, said: str
) -> None:
    kindlm("backup", here / "damaged.db", "--db", recorded.path)
    for page in pages_of(here / "damaged.db", table):
        damage(here / "damaged.db", page)
    outcome = kindlm("merge", here / "damaged.db", "--db", here / "new.db")
    assert outcome.code == 1
    assert said in outcome.err
    assert "kindlm history verify" not in outcome.err


def test_an_invalid_write_ahead_log_is_reported(kindlm: Any, recorded: Any) -> None:
    recorded.close()
    wal = recorded.path.with_name(recorded.path.name + "-wal")
    wal.write_bytes(b"\0" * 64)
    assert kindlm("verify", "--db", recorded.path).code == 0
    wal.write_bytes(b"\x5a" * 4_152)
    verified = kindlm("verify", "--db", recorded.path)
    assert (verified.code, "kindlm.db-wal cannot be read" in verified.out) == (1, True)
    outcome = kindlm("test", "--resume", "--db", recorded.path)
    assert outcome.code == 1
    assert "kindlm.db-wal cannot be read" in " ".join(outcome.err.split())


def test_a_folder_that_is_made_for_a_history_is_not_committed(kindlm: Any, here: Path) -> None:
    (here / "kindlm.yaml").write_text(SCRIPTED, encoding="utf-8")
    assert kindlm("test", "--db", here / "elsewhere" / "a.db").code == 0
    assert not list((here / "elsewhere").glob(".git*"))
    assert kindlm("test").code == 0
    ignored = here / ".kindlm" / ".gitignore"
    assert ignored.read_text("utf-8").splitlines()[1:] == ["*", "!kindlm.schema.json"]
    # It is the user's from then on.
    ignored.unlink()
    assert kindlm("test").code == 0
    assert not ignored.exists()


@pytest.mark.parametrize("command", [("test",), ("merge", "other.db"), ("rebuild",), ("rescore",)])
def test_a_file_where_locks_belong_is_named(
    kindlm: Any, here: Path, command: tuple[str, ...]
) -> None:
    (here / "kindlm.yaml").write_text(SCRIPTED, encoding="utf-8")
    assert kindlm("test").code == 0
    assert kindlm("test", "--db", "other.db").code == 0
    locks = here / ".kindlm" / "kindlm.db.locks"
    locks.rmdir()
    locks.touch()
    outcome = kindlm(*command)
    said = "The history cannot be opened: it cannot be locked (kindlm.db.locks: File exists)."
    assert (outcome.code, said in " ".join(outcome.err.split())) == (1, True), outcome.err


@pytest.mark.parametrize("name", ["sqlite_autoindex_runs_1", "events"])
def test_whatever_command_meets_the_damage_it_is_no_fault_of_kindlm(
    kindlm: Any, recorded: Any, name: str
) -> None:
    recorded.close()
    (first, *_) = pages_of(recorded.path, name)
    data = bytearray(recorded.path.read_bytes())
    data[(first - 1) * 4096 : first * 4096] = b"\xa5" * 4096
    for command in (
        ("label", "latest", "x"),
        ("purge", "--matching", "Hi", "--yes"),
        ("baseline", "set", "latest"),
        ("review", "latest", "1", "pass"),
    ):
        recorded.path.write_bytes(data)
        outcome = kindlm(*command, "--db", recorded.path)
        assert "itself failed" not in outcome.err
        assert "Make room" not in outcome.err
        assert outcome.code == 0 or "kindlm history merge" in outcome.err, outcome.err
