"""verify finds whatever was changed, wherever and however; and nothing where nothing was."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import Append, EventLog, HeadOf, NewEvent, RecordedEvent, Text
from kindlm_store.verification import Problem, Verification, verify_file


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with three interleaved streams, one of them sealed, and its triggers removed."""
    path = tmp_path_factory.mktemp("verify") / "log.db"
    with EventLog.open(path) as log:
        for number in range(4):
            for stream in ("run/1", "run/2"):
                data = {"n": number, "text": Text(f"{stream} {number}"), "word": "hello"}
                log.append(stream, [NewEvent("step.done", data, subject=f"x{number}")])
        log.submit(
            Append("run/1", [NewEvent("run.finished", {})], seal=True),
            Append(
                "journal/a", [NewEvent("run.sealed", {"run": "run/1", "head": HeadOf("run/1")})]
            ),
        ).result()
    assert verify_file(path).ok
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
    return path


def tampered(original: Path, folder: Path, *statements: str) -> Path:
    path = folder / "tampered.db"
    shutil.copy(original, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount
    return path


def sealed_heads(event: RecordedEvent) -> Mapping[str, str]:
    return {event.data["run"]: event.data["head"]}


CLAIMS = {"run.sealed": sealed_heads}


def test_an_untouched_file_is_verified_whole(original: Path) -> None:
    result = verify_file(original, claims=CLAIMS)
    assert result == Verification(streams=3, events=10, texts=8, erased=0, heads=1, problems=[])


def test_one_stream_is_verified_with_its_texts(original: Path) -> None:
    result = verify_file(original, "run/1", claims=CLAIMS)
    assert result == Verification(streams=1, events=5, texts=4, erased=0, heads=1, problems=[])
    assert verify_file(original, "run/9").problems == [
        Problem("run/9", None, "there is no such stream")
    ]


TAMPERINGS = {
    "data": "UPDATE events SET data = replace(data, 'hello', 'hellO') WHERE seq = 1",
    "data, as blob": "UPDATE events SET data = CAST(data AS BLOB) WHERE seq = 1",
    "data, a space": "UPDATE events SET data = data || ' ' WHERE seq = 1",
    "data, a NUL": "UPDATE events SET data = data || char(0) WHERE seq = 1",
    "data, not UTF-8": "UPDATE events SET data = CAST(x'ff' AS TEXT) WHERE seq = 1",
    "data, a number": "UPDATE events SET data = 5 WHERE seq = 1",
    "id": "UPDATE events SET id = randomblob(16) WHERE seq = 1",
    "id, longer": "UPDATE events SET id = id || x'00' WHERE seq = 1",
    "id, as text": "UPDATE events SET id = hex(id) WHERE seq = 1",
    "stream": "UPDATE events SET stream = 3 WHERE seq = 8",
    "stream, unknown": "UPDATE events SET stream = 99 WHERE seq = 1",
    "stream, as text": "UPDATE events SET stream = 'one' WHERE seq = 1",
    "version": "UPDATE events SET version = 77 WHERE seq = 1",
    "version, as text": "UPDATE events SET version = 'one' WHERE seq = 1",
    "type": "UPDATE events SET type = 2 WHERE seq = 1",
    "type, unknown": "UPDATE events SET type = 99 WHERE seq = 1",
    "type, as blob": "UPDATE events SET type = x'31' WHERE seq = 1",
    "schema": "UPDATE events SET schema = 2 WHERE seq = 1",
    "schema, a fraction": "UPDATE events SET schema = 1.5 WHERE seq = 1",
    "at": "UPDATE events SET at = replace(at, 'Z', '+00:00') WHERE seq = 1",
    "at, as blob": "UPDATE events SET at = CAST(at AS BLOB) WHERE seq = 1",
    "subject": "UPDATE events SET subject = 'y' WHERE seq = 1",
    "subject, none": "UPDATE events SET subject = NULL WHERE seq = 1",
    "subject, some": "UPDATE events SET subject = 'null' WHERE subject IS NULL",
    "subject, as blob": "UPDATE events SET subject = CAST(subject AS BLOB) WHERE seq = 1",
    "hash": "UPDATE events SET hash = randomblob(33) WHERE seq = 1",
    "hash, its tag": "UPDATE events SET hash = x'02' || substr(hash, 2) WHERE seq = 1",
    "hash, as text": "UPDATE events SET hash = CAST(hash AS TEXT) WHERE seq = 1",
    "an event gone": "DELETE FROM events WHERE seq = 3",
    "the first event gone": "DELETE FROM events WHERE seq = 1",
    "the last event gone": "DELETE FROM events WHERE seq = 9",
    "stream name": "UPDATE streams SET name = 'run/3' WHERE id = 1",
    "stream name, as blob": "UPDATE streams SET name = CAST(name AS BLOB) WHERE id = 1",
    "stream version": "UPDATE streams SET version = version + 1 WHERE id = 1",
    "stream head": "UPDATE streams SET head = randomblob(33) WHERE id = 1",
    "stream unsealed": "UPDATE streams SET sealed = 0 WHERE name = 'run/1'",
    "stream sealed": "UPDATE streams SET sealed = 1 WHERE name = 'run/2'",
    "stream, a strange seal": "UPDATE streams SET sealed = 2 WHERE name = 'run/1'",
    "stream, a strange no": "UPDATE streams SET sealed = 'no' WHERE name = 'run/2'",
    "stream gone": "DELETE FROM streams WHERE id = 1",
    "stream without events": "INSERT INTO streams VALUES (9, 'run/9', 0, x'00', 0)",
    "type name": "UPDATE event_types SET name = 'step.failed' WHERE name = 'step.done'",
    "type name, as blob": "UPDATE event_types SET name = CAST(name AS BLOB) WHERE id = 1",
    "type gone": "DELETE FROM event_types WHERE id = 1",
    "text": "UPDATE contents SET body = body || '!' WHERE rowid = 1",
    "text, as blob": "UPDATE contents SET body = CAST(body AS BLOB) WHERE rowid = 1",
    "text, half erased": "UPDATE contents SET body = NULL WHERE rowid = 1",
    "text, salt": "UPDATE contents SET salt = randomblob(16) WHERE rowid = 1",
    "text, digest": "UPDATE contents SET digest = randomblob(32) WHERE rowid = 1",
    "text, ref": "UPDATE contents SET ref = 'x' WHERE rowid = 1",
    "text, ref as blob": "UPDATE contents SET ref = CAST(ref AS BLOB) WHERE rowid = 1",
    "text gone": "DELETE FROM contents WHERE rowid = 1",
}


@pytest.mark.parametrize("statement", TAMPERINGS.values(), ids=TAMPERINGS)
def test_tampering_is_found(original: Path, tmp_path: Path, statement: str) -> None:
    assert not verify_file(tampered(original, tmp_path, statement), claims=CLAIMS).ok


def test_a_problem_says_where_it_is(original: Path, tmp_path: Path) -> None:
    path = tampered(original, tmp_path, "UPDATE events SET schema = 7 WHERE seq = 3")
    assert verify_file(path).problems == [Problem("run/1", 2, "the event does not match its hash")]
    assert verify_file(path, "run/2").ok


def test_a_history_that_was_cut_off_consistently_is_found_by_a_noted_head(
    original: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(original)) as connection:
        reported = (
            "sha256:"
            + connection.execute(
                "SELECT lower(substr(hex(head), 3)) FROM streams WHERE name = 'run/2'"
            ).fetchone()[0]
        )
    cut = tampered(
        original,
        tmp_path,
        "DELETE FROM events WHERE seq = 8",
        "UPDATE streams SET version = 3, head = (SELECT hash FROM events WHERE seq = 6)"
        " WHERE name = 'run/2'",
        "DELETE FROM contents WHERE body = 'run/2 3'",
    )
    assert verify_file(cut).ok
    assert verify_file(original, heads={"run/2": reported}).ok
    assert not verify_file(cut, heads={"run/2": reported}).ok
    assert not verify_file(cut, "run/2", heads={"run/2": reported}).ok


def test_a_head_noted_early_still_holds_when_the_stream_went_on(log: EventLog) -> None:
    log.append("s", [NewEvent("t", {})])
    (early,) = log.read()
    log.append("s", [NewEvent("t", {})])
    result = verify_file(log.path, heads={"s": early.hash, "gone": early.hash})
    assert result.problems == [Problem("gone", None, "there is no such stream")]


COLUMNS = ["id", "stream", "version", "type", "schema", "at", "subject", "data", "hash"]
stored = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.binary()
)


@examples(
    150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seq=st.integers(1, 10),
    column=st.sampled_from(COLUMNS),
    value=stored,
    byte=st.none() | st.tuples(st.integers(0, 500), st.integers(1, 255)),
)
def test_any_changed_byte_of_a_stored_event_is_found(
    original: Path,
    tmp_path: Path,
    seq: int,
    column: str,
    value: Any,
    byte: tuple[int, int] | None,
) -> None:
    """The value of a column is replaced, or one of its bytes is changed where it lies."""
    path = tmp_path / "tampered.db"
    shutil.copy(original, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.text_factory = bytes
        read = f"SELECT {column}, typeof({column}) FROM events WHERE seq = {seq}"
        before = connection.execute(read).fetchone()
        if byte is not None and isinstance(before[0], bytes):
            place, change = byte[0] % len(before[0]), byte[1]
            value = bytearray(before[0])
            value[place] ^= change
            kind = "TEXT" if before[1] == b"text" else "BLOB"
            update = f"UPDATE events SET {column} = CAST(? AS {kind}) WHERE seq = {seq}"
        else:
            update = f"UPDATE events SET {column} = ? WHERE seq = {seq}"
        try:
            connection.execute(update, (value,))
        except sqlite3.IntegrityError:
            return
        if connection.execute(read).fetchone() == before:
            return
    assert not verify_file(path).ok


@examples(30)
@given(place=st.integers(0), change=st.integers(1, 255))
def test_a_byte_changed_behind_the_back_of_sqlite_is_found(
    original: Path, tmp_path_factory: pytest.TempPathFactory, place: int, change: int
) -> None:
    content = bytearray(original.read_bytes())
    word = b'"word":"hello"'
    places = [
        start + offset
        for start in range(len(content))
        if content.startswith(word, start)
        for offset in range(len(word))
    ]
    content[places[place % len(places)]] ^= change
    path = tmp_path_factory.mktemp("bytes") / "tampered.db"
    path.write_bytes(content)
    assert not verify_file(path).ok
