"""Whatever another program does with the file, recorded facts stay: the triggers see to it."""

from __future__ import annotations

import sqlite3

import pytest

from kindlm_store import EventLog, NewEvent, Text
from kindlm_store.verification import verify_file

COLUMNS = "seq, id, stream, version, type, schema, at, subject, data, hash"

FORBIDDEN = {
    "change data": "UPDATE events SET data = '{}'",
    "change nothing": "UPDATE events SET data = data",
    "change a position": "UPDATE events SET seq = seq + 100",
    "delete": "DELETE FROM events",
    "replace by position": f"INSERT OR REPLACE INTO events ({COLUMNS})"
    " SELECT seq, randomblob(16), 77, 1, 1, 1, at, NULL, '{}', hash FROM events WHERE seq = 1",
    "replace by id": f"INSERT OR REPLACE INTO events ({COLUMNS})"
    " SELECT 1000, id, 77, 1, 1, 1, at, NULL, '{}', hash FROM events WHERE seq = 1",
    "replace by version": f"INSERT OR REPLACE INTO events ({COLUMNS})"
    " SELECT 1000, randomblob(16), stream, version, 1, 1, at, NULL, '{}', hash"
    " FROM events WHERE seq = 1",
    "REPLACE INTO": f"REPLACE INTO events ({COLUMNS}) SELECT {COLUMNS} FROM events",
    "upsert": f"INSERT INTO events ({COLUMNS}) SELECT {COLUMNS} FROM events WHERE true"
    " ON CONFLICT DO UPDATE SET data = '{}'",
    "insert into the past": f"INSERT INTO events ({COLUMNS})"
    " SELECT 0, randomblob(16), 77, 1, 1, 1, at, NULL, '{}', hash FROM events WHERE seq = 1",
    "append to a sealed stream": f"INSERT INTO events ({COLUMNS})"
    " SELECT 1000, randomblob(16), stream, 99, 1, 1, at, NULL, '{}', hash FROM events"
    " WHERE stream = (SELECT id FROM streams WHERE sealed) LIMIT 1",
    "delete a stream": "DELETE FROM streams",
    "unseal": "UPDATE streams SET sealed = 0, version = version + 1 WHERE sealed",
    "shorten a stream": "UPDATE streams SET version = version - 1 WHERE NOT sealed",
    "exchange a head": "UPDATE streams SET head = zeroblob(33) WHERE NOT sealed",
    "rename a stream": "UPDATE streams SET name = 'x', version = version + 1 WHERE NOT sealed",
    "renumber a stream": "UPDATE streams SET id = 99, version = version + 1 WHERE NOT sealed",
    "replace a stream": "INSERT OR REPLACE INTO streams SELECT id, name, 0, head, 0 FROM streams",
    "replace a stream by name": "INSERT OR REPLACE INTO streams"
    " SELECT id + 100, name, 0, head, 0 FROM streams",
    "rename a type": "UPDATE event_types SET name = 'x'",
    "delete a type": "DELETE FROM event_types",
    "replace a type": "INSERT OR REPLACE INTO event_types SELECT id, 'x' FROM event_types",
    "replace a type by name": "REPLACE INTO event_types SELECT id + 100, name FROM event_types",
    "change a text": "UPDATE contents SET body = 'x'",
    "empty a text but its digest": "UPDATE contents SET body = NULL, salt = NULL",
    "delete a text": "DELETE FROM contents",
    "replace a text": "REPLACE INTO contents SELECT ref, salt, digest, 'x' FROM contents",
    "replace an erased text": "REPLACE INTO contents SELECT ref, NULL, NULL, NULL FROM contents",
}


@pytest.fixture
def filled(log: EventLog) -> EventLog:
    log.append("open", [NewEvent("t", {"n": n, "text": Text(f"text {n}")}) for n in range(3)])
    log.append("sealed", [NewEvent("t", {})], seal=True)
    return log


@pytest.mark.parametrize("statement", FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_file_refuses(filled: EventLog, raw: sqlite3.Connection, statement: str) -> None:
    before = list(filled.read())
    # What replaces a row fires the triggers of its deletion only with recursive triggers.
    for recursive in (False, True):
        raw.execute(f"PRAGMA recursive_triggers = {recursive}")
        with pytest.raises(sqlite3.IntegrityError):
            raw.execute(statement)
        assert list(filled.read()) == before
        assert verify_file(filled.path).ok


def test_a_text_can_be_erased_whole_and_for_good(filled: EventLog, raw: sqlite3.Connection) -> None:
    ref = next(filled.read()).data["text"]["$ref"]
    raw.execute("UPDATE contents SET body = NULL, salt = NULL, digest = NULL WHERE ref = ?", (ref,))
    assert filled.text(ref) is None
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute("UPDATE contents SET body = 'back' WHERE ref = ?", (ref,))
    result = verify_file(filled.path)
    assert result.ok
    assert (result.texts, result.erased) == (2, 1)


def test_an_erased_text_is_stored_anew_under_another_reference(
    filled: EventLog, raw: sqlite3.Connection
) -> None:
    old = next(filled.read()).data["text"]["$ref"]
    raw.execute("UPDATE contents SET body = NULL, salt = NULL, digest = NULL WHERE ref = ?", (old,))
    filled.append("open", [NewEvent("t", {"text": Text("text 0")})])
    *_, last = filled.read(stream="open")
    assert last.data["text"]["$ref"] != old
    assert filled.text(last.data["text"]["$ref"]) == "text 0"
    assert verify_file(filled.path).ok


def test_readers_of_the_log_cannot_write(filled: EventLog) -> None:
    reader = filled.reader()
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("UPDATE projections SET error = 'x'")
    with pytest.raises(sqlite3.OperationalError):
        reader.execute("CREATE TABLE x (y)")
    reader.close()
