"""Opening: what is ours, what is not, what is newer; and nothing is touched that should not be."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

import kindlm_migrations as schema
from kindlm_store import (
    Append,
    CorruptDatabaseError,
    EmptyFileError,
    EventLog,
    NewerDatabaseError,
    NewEvent,
    NotAnEventLogError,
    OpenError,
    Projection,
    WriteFailedError,
    open_reader,
)
from kindlm_store.append import Appender
from kindlm_store.verification import verify_file


def content(path: Path) -> dict[str, bytes]:
    """Every file beside the database, as bytes, but for what SQLite shares between readers."""
    return {
        file.name: file.read_bytes()
        for file in path.parent.iterdir()
        if file.is_file() and not file.name.endswith(("-shm", "-wal"))
    }


def test_a_new_file_is_set_up_for_good(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "log.db"
    with EventLog.open(path), closing(open_reader(path)) as reader:

        def pragma(name: str) -> object:
            return reader.execute(f"PRAGMA {name}").fetchone()[0]

        assert pragma("journal_mode") == "wal"
        assert pragma("auto_vacuum") == 2
        assert pragma("user_version") == 1
        assert pragma("application_id") == 0x4B4E444C
        assert pragma("encoding") == "UTF-8"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_waits_for_the_disk(tmp_path: Path) -> None:
    program = (
        "from kindlm_store import EventLog\n"
        "with EventLog.open('log.db') as log:\n"
        "    print(*log._writer._connection.execute('PRAGMA synchronous').fetchone())\n"
    )
    # In a process of its own: in this one, tests have chosen not to wait.
    shown = subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path, text=True)
    assert shown.split() == ["2"]


def test_opening_again_changes_nothing(path: Path) -> None:
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {})])
    before = content(path)
    with EventLog.open(path):
        pass
    assert content(path) == before


def test_the_migrations_library_is_not_loaded_for_a_file_that_needs_none(path: Path) -> None:
    EventLog.open(path).close()
    code = (
        "import sys, kindlm_store\n"
        f"kindlm_store.EventLog.open({str(path)!r}).close()\n"
        "print('sqlite_utils' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def foreign_text(path: Path) -> None:
    path.write_text("not a database " * 100)


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE music (title)")


def foreign_application(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 42")
        connection.execute("CREATE TABLE streams (id, name, version, head, sealed)")


@pytest.mark.parametrize("make", [foreign_text, foreign_database, foreign_application])
def test_a_foreign_file_is_refused_and_not_touched(
    path: Path, make: Callable[[Path], None]
) -> None:
    make(path)
    before = content(path)
    for open_it in (EventLog.open, open_reader):
        with pytest.raises(NotAnEventLogError):
            open_it(path)
    assert content(path) == before


def test_a_newer_file_is_refused_and_not_touched(path: Path) -> None:
    EventLog.open(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = content(path)
    for open_it in (EventLog.open, open_reader):
        with pytest.raises(NewerDatabaseError, match="update the program"):
            open_it(path)
    assert content(path) == before


def test_a_newer_file_with_a_left_over_wal_is_not_touched(path: Path) -> None:
    EventLog.open(path).close()
    code = (
        "import os, sqlite3\n"
        f"c = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
        "c.execute('PRAGMA user_version = 99')\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    wal = path.with_name("log.db-wal")
    before = (path.read_bytes(), wal.read_bytes())
    with pytest.raises(NewerDatabaseError):
        EventLog.open(path)
    assert (path.read_bytes(), wal.read_bytes()) == before


def test_a_copy_without_write_ahead_logging_is_written_beside_a_reader(
    path: Path, tmp_path: Path
) -> None:
    with EventLog.open(path) as log:
        log.append("a", [NewEvent("x", {})])
        with closing(log.reader()) as reader:
            reader.execute("PRAGMA query_only = OFF")
            reader.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    with EventLog.open(tmp_path / "copy.db") as log, closing(log.reader()) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM events").fetchone()[0] == 1
        log.append("a", [NewEvent("x", {})])
        assert len(list(log.read())) == 2


def test_an_empty_file_becomes_an_event_log(path: Path) -> None:
    path.touch()
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {})])
        assert [event.version for event in log.read()] == [1]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    for open_it in (EventLog.open, open_reader):
        with pytest.raises(OpenError, match="is not a file"):
            open_it(tmp_path)


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OpenError, match="cannot be used"):
        EventLog.open(tmp_path / "file" / "log.db")


def test_a_reader_does_not_create_a_file(path: Path) -> None:
    with pytest.raises(OpenError, match="does not exist"):
        open_reader(path)
    path.touch()
    with pytest.raises(NotAnEventLogError, match="is empty"):
        open_reader(path)


def test_a_damaged_file_is_reported(path: Path) -> None:
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {"x": "y" * 100}) for _ in range(500)])
    damaged = bytearray(path.read_bytes())
    damaged[100:200] = b"\xff" * 100
    path.write_bytes(damaged)
    with pytest.raises(CorruptDatabaseError):
        EventLog.open(path)


def test_a_damage_that_sqlite_quotes_is_reported(path: Path) -> None:
    """Its message holds what it found, which Python then cannot decode."""
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {})])
    damaged = path.read_bytes()
    for sound, broken in (
        (b"indexevents_subjectevents", b"index" + b"\xd3(" * 7 + b"events"),
        (b"INDEX events_subject ON", b"INDEX events_subject XX"),
    ):
        assert sound in damaged
        damaged = damaged.replace(sound, broken)
    path.write_bytes(damaged)
    with pytest.raises(CorruptDatabaseError):
        EventLog.open(path)


def test_damage_that_is_met_while_reading_is_reported(path: Path) -> None:
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {"x": f"{n} " * 100}) for n in range(500)])
    damaged = bytearray(path.read_bytes())
    middle = len(damaged) // 2 // 4096 * 4096
    damaged[middle : middle + 40_960] = b"\xff" * 40_960
    path.write_bytes(damaged)
    with EventLog.open(path) as log:
        with pytest.raises(CorruptDatabaseError):
            list(log.read())
        with pytest.raises(CorruptDatabaseError):
            verify_file(log.path)


def test_a_read_only_folder_is_read_but_not_written() -> None:
    code = """
import os, sys
from kindlm_store import EventLog, OpenError, open_reader
if not os.getuid():
    os.setuid(65534)
print(open_reader(sys.argv[1]).execute("SELECT count(*) FROM event_log").fetchone()[0])
try:
    EventLog.open(sys.argv[1])
except OpenError as error:
    print(error.reason)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        with EventLog.open(path) as log:
            log.append("s", [NewEvent("t", {})])
        path.chmod(0o444)
        path.parent.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        path.parent.chmod(0o700)
    assert not done.stderr
    assert done.stdout == "1\ncannot be written: the file or its folder is read-only\n"


def test_a_reader_sees_what_a_live_writer_commits(path: Path) -> None:
    with EventLog.open(path) as log, closing(open_reader(path)) as reader:
        for number in range(1, 4):
            log.append("s", [NewEvent("t", {})])
            assert reader.execute("SELECT count(*) FROM event_log").fetchone()[0] == number


def test_the_schema_is_what_it_was(path: Path) -> None:
    """A migration adds to this list; it never changes what an older file has."""
    projection = Projection("p", 1, "CREATE TABLE mine (id TEXT)")
    with EventLog.open(path, projections=[projection]), closing(open_reader(path)) as reader:
        names = reader.execute(
            "SELECT type || ' ' || name FROM sqlite_master"
            " WHERE name NOT LIKE 'sqlite_%' AND name NOT LIKE '%_sqlite_migrations%' ORDER BY 1"
        )
        assert [row[0] for row in names] == [
            "index contents_digest",
            "index events_subject",
            "index events_type",
            "table contents",
            "table event_types",
            "table events",
            "table mine",
            "table projections",
            "table streams",
            "trigger contents_delete",
            "trigger contents_insert",
            "trigger contents_update",
            "trigger event_types_delete",
            "trigger event_types_insert",
            "trigger event_types_update",
            "trigger events_delete",
            "trigger events_insert",
            "trigger events_update",
            "trigger streams_delete",
            "trigger streams_insert",
            "trigger streams_update",
            "view content_texts",
            "view event_log",
        ]


def test_a_file_that_was_never_set_up_is_empty_and_can_still_be_set_up(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = 2")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    assert path.stat().st_size
    with pytest.raises(EmptyFileError):
        open_reader(path)
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {})])
        assert [event.version for event in log.read()] == [1]


def test_a_file_that_another_thread_sets_up_is_never_taken_for_something_else(
    tmp_path: Path,
) -> None:
    for number in range(30):
        path = tmp_path / f"{number}.db"
        creator = Thread(target=lambda path=path: EventLog.open(path).close())
        creator.start()
        while not path.exists():
            pass
        while True:
            try:
                open_reader(path).close()
            except EmptyFileError:
                continue
            break
        creator.join()


def test_nothing_is_lost_if_the_last_position_of_a_file_is_taken(path: Path) -> None:
    with EventLog.open(path) as log:
        log.append("s", [NewEvent("t", {})])
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("INSERT INTO streams VALUES (9, 'x', 1, zeroblob(33), 0)")
        other.execute(
            "INSERT INTO events (seq, id, stream, version, type, schema, at, data, hash)"
            " SELECT 9223372036854775807, zeroblob(16), 9, 1, type, 1, at, '{}', hash FROM events"
        )
    with EventLog.open(path) as log:
        with pytest.raises(CorruptDatabaseError, match="no position is left"):
            log.run(lambda db, _: Appender(db).write([[Append("s", [NewEvent("t", {})])]]))
        with pytest.raises(WriteFailedError):
            log.append("s", [NewEvent("t", {})])
        assert len(log.unwritten()) == 1
    with closing(open_reader(path)) as reader:
        assert reader.execute("SELECT count(*) FROM event_log").fetchone()[0] == 2
