"""Properties of what is stored: any payload comes back, and canonical JSON is canonical."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import Append, EventLog, NewEvent, Text
from kindlm_store.canonical import canonical_json, event_hash
from kindlm_store.reading import RecordedEvent
from kindlm_store.verification import verify_file

strings = st.text(st.characters(codec=None), max_size=20)
# Names that scrubbing would make equal have a test of their own.
names = st.text(st.characters(codec="utf-8"), max_size=20).filter(
    lambda name: name != "$ref" and "\0" not in name
) | st.sampled_from(["a\0", "b\ud800"])
numbers = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
huge = st.integers(min_value=-(10**300), max_value=10**300)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4)


values = st.recursive(numbers | huge | strings | strings.map(Text), containers, max_leaves=20)
payloads = st.dictionaries(names, values, max_size=4)
streams = st.sampled_from(["run/1", "run/2", "journal/ü", "'; DROP TABLE events --"])
events = st.builds(
    NewEvent,
    type=st.sampled_from(["a.b", "c.d", 'quoted "type"']),
    data=payloads,
    schema=st.integers(1, 2**31),
    subject=st.none() | st.sampled_from(["x", "y\n"]),
    at=st.just("2026-01-02T03:04:05.678901Z"),
)
histories = st.lists(
    st.tuples(streams, st.lists(events, min_size=1, max_size=3)), min_size=1, max_size=6
)


def scrubbed(text: str) -> str:
    """What is said of texts that UTF-8 or SQLite cannot hold, said another way."""
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return paired.replace("\0", "\ufffd")


def expected(value: Any) -> Any:
    """What is read back for a value that was appended."""
    match value:
        case str():
            return scrubbed(value)
        case Text(body):
            return scrubbed(body)
        case list():
            return [expected(item) for item in value]
        case dict():
            return {scrubbed(name): expected(member) for name, member in value.items()}
        case _:
            return value


def with_texts(value: Any, log: EventLog) -> Any:
    """The value with its references replaced by the texts themselves."""
    match value:
        case {"$ref": ref}:
            return log.text(ref)
        case list():
            return [with_texts(item, log) for item in value]
        case dict():
            return {name: with_texts(member, log) for name, member in value.items()}
        case _:
            return value


@examples(30)
@given(history=histories)
def test_any_sequence_of_events_survives_the_round_trip(
    history: list[tuple[str, list[NewEvent]]],
) -> None:
    appended = [(stream, event) for stream, some in history for event in some]
    with tempfile.TemporaryDirectory() as folder, EventLog.open(Path(folder) / "log.db") as log:
        for stream, some in history:
            log.submit(Append(stream, some))
        log.flush().result()
        read = list(log.read())
        assert len(read) == len(appended)
        for recorded, (stream, event) in zip(read, appended, strict=True):
            assert recorded.stream == stream
            assert (recorded.id, recorded.type) == (event.id, event.type)
            assert (recorded.schema, recorded.subject) == (event.schema, event.subject)
            back = with_texts(recorded.data, log)
            assert canonical_json(back) == canonical_json(expected(dict(event.data)))
        assert verify_file(log.path).ok


@given(
    event_id=st.uuids(),
    seal=st.booleans(),
    members=st.fixed_dictionaries(
        {
            "stream": st.text(),
            "version": st.integers(1),
            "type": st.text(),
            "schema": st.integers(1),
            "at": st.text(),
            "subject": st.none() | st.text(),
        }
    ),
)
def test_the_envelope_is_canonical_json(
    event_id: UUID, seal: bool, members: dict[str, Any]
) -> None:
    envelope = canonical_json(members | {"id": str(event_id)} | ({"seal": True} if seal else {}))
    expected = sha256(b"before" + envelope.encode() + b"\n" + b"{}").digest()
    event = RecordedEvent(position=1, raw_id=event_id.bytes, json="{}", raw_hash=b"", **members)
    assert event_hash(b"before", event, seal=seal) == b"\x01" + expected


@given(payloads.map(lambda data: json.loads(json.dumps(data, default=lambda text: text.body))))
def test_canonical_json_is_a_fixed_point(data: dict[str, Any]) -> None:
    text = canonical_json(data)
    assert canonical_json(json.loads(text)) == text
    assert canonical_json(dict(reversed(data.items()))) == text


def test_names_that_become_equal_are_kept_apart(log: EventLog) -> None:
    data = {f"a{last}": last for last in ("\0", chr(0xD800), chr(0xDFFF), "\ufffd")}
    log.append("s", [NewEvent("t", data)])
    assert len(next(log.read()).data) == 4


def test_the_readable_view_shows_what_is_read(log: EventLog) -> None:
    log.append("s/1", [NewEvent("a.b", {"x": "ü"}, subject="y"), NewEvent("c", {})], seal=True)
    with closing(log.reader()) as reader:
        rows = [dict(row) for row in reader.execute("SELECT * FROM event_log ORDER BY seq")]
    assert rows == [
        {
            "seq": event.position,
            "id": str(event.id),
            "stream": event.stream,
            "version": event.version,
            "type": event.type,
            "schema": event.schema,
            "at": event.at,
            "subject": event.subject,
            "data": canonical_json(event.data),
            "hash": event.hash,
        }
        for event in log.read()
    ]


def test_the_hash_can_be_computed_from_the_contract_alone(log: EventLog) -> None:
    """The recipe of store/README.md, by hand."""
    from hashlib import sha256

    log.append("s", [NewEvent("t", {"b": 1, "a": "é"}), NewEvent("t", {}, subject="x")], seal=True)
    previous = b"\x01" + bytes(32)
    for event in log.read():
        members = {
            "at": event.at,
            "id": str(event.id),
            "schema": event.schema,
            "stream": event.stream,
            "subject": event.subject,
            "type": event.type,
            "version": event.version,
        }
        if event.version == 2:
            members["seal"] = True

        def canonical(value: object) -> bytes:
            return json.dumps(
                value, sort_keys=True, separators=(",", ":"), ensure_ascii=False
            ).encode()

        digest = sha256(previous + canonical(members) + b"\n" + canonical(event.data))
        assert event.hash == f"sha256:{digest.hexdigest()}"
        previous = b"\x01" + digest.digest()


def test_the_reference_can_be_computed_from_the_contract_alone(
    log: EventLog, raw: sqlite3.Connection
) -> None:
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    log.append("s", [NewEvent("t", {"x": Text("héllo")})])
    ref, salt, digest, body = raw.execute("SELECT ref, salt, digest, body FROM contents").fetchone()
    full = sha256(b"kindlm_store:text:1\n" + salt + body.encode()).digest()
    assert ref == urlsafe_b64encode(full[:24]).decode()
    assert digest == sha256(body.encode()).digest()
