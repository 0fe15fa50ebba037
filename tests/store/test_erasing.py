"""Erasing texts: they are gone from the file for good, and every chain still holds."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from kindlm_store import Append, ConflictError, EventLog, NewEvent, Text, open_reader
from kindlm_store.erasing import erase, find_erasable
from kindlm_store.merging import Merge
from kindlm_store.verification import verify_file


def said(text: str) -> NewEvent:
    return NewEvent("said", {"text": Text(text)})


def record(texts: list[str]) -> Append:
    return Append("journal/e", [NewEvent("erased", {"texts": texts})])


def texts_of(log: EventLog, stream: str) -> list[str | None]:
    return [log.text(event.data["text"]["$ref"]) for event in log.read(stream=stream)]


def on_disk(path: Path) -> bytes:
    files = [path, path.with_name(path.name + "-wal")]
    return b"".join(file.read_bytes() for file in files if file.exists())


def test_only_what_nothing_else_refers_to(log: EventLog) -> None:
    log.append("run/a", [said("mine"), said("ours")], seal=True)
    log.append("run/b", [said("ours"), said("theirs")])
    found = find_erasable(log, ["run/a"])
    assert (len(found.refs), found.shared) == (1, 1)
    assert erase(log, found, record).texts == 1
    assert texts_of(log, "run/a") == [None, "ours"]
    assert texts_of(log, "run/b") == ["ours", "theirs"]
    checked = verify_file(log.path)
    assert (checked.ok, checked.erased) == (True, 1)
    assert next(log.read(types=["erased"])).data == {"texts": sorted(found.refs)}


def test_what_an_event_refers_to_counts_even_if_its_data_was_made_a_blob(log: EventLog) -> None:
    log.append("run/a", [said("ours")])
    log.append("run/b", [said("ours")])
    with closing(sqlite3.connect(log.path)) as raw, raw:
        raw.execute("DROP TRIGGER events_update")
        raw.execute("UPDATE events SET data = CAST(data AS BLOB) WHERE seq = 2")
    found = find_erasable(log, ["run/a"])
    assert (len(found.refs), found.shared) == (0, 1)


def test_of_two_streams_together_also_what_they_share(log: EventLog) -> None:
    log.append("run/a", [said("ours")])
    log.append("run/b", [said("ours")])
    assert erase(log, find_erasable(log, ["run/a", "run/b"]), record).texts == 1
    assert texts_of(log, "run/b") == [None]


def test_by_what_they_say(log: EventLog) -> None:
    log.append("run/a", [said("call 555"), said("call me")])
    log.append("run/b", [said("555 calls")])
    assert erase(log, find_erasable(log, matches=lambda text: "555" in text), record).texts == 2
    assert texts_of(log, "run/a") == [None, "call me"]
    assert texts_of(log, "run/b") == [None]
    found = find_erasable(log, ["run/a"], matches=lambda text: "555" in text)
    assert found.refs == frozenset()


def test_what_repeats_a_text_in_its_own_form_goes_with_it(log: EventLog) -> None:
    def answered(text: str, body: str) -> NewEvent:
        return NewEvent("answered", {"text": Text(text), "raw": Text(body)})

    log.append(
        "run/a", [answered("call 555", r"call \u0035\u0035\u0035"), answered("me", r"m\u0065")]
    )
    found = find_erasable(log, matches=lambda text: "555" in text, evidence="raw")
    assert erase(log, found, record).texts == 2
    first, second = [event.data for event in log.read(stream="run/a")]
    assert [log.text(each["$ref"]) for each in first.values()] == [None, None]
    assert None not in [log.text(each["$ref"]) for each in second.values()]


def test_what_is_referred_to_meanwhile_is_kept(log: EventLog) -> None:
    log.append("run/a", [said("ours"), said("mine")])
    found = find_erasable(log, ["run/a"])
    with EventLog.open(log.path) as other:
        other.append("run/b", [said("ours")])
    assert erase(log, found, record).texts == 1
    assert texts_of(log, "run/a") == ["ours", None]


def test_a_text_that_is_said_again_is_a_text_of_its_own(log: EventLog) -> None:
    log.append("run/a", [said("hello")])
    with EventLog.open(log.path) as other:
        other.append("run/b", [said("hello")])
        erase(log, find_erasable(log, ["run/a", "run/b"]), record)
        other.append("run/b", [said("hello")])
        assert texts_of(other, "run/b") == [None, "hello"]
    assert texts_of(log, "run/a") == [None]


def test_a_text_that_is_gone_without_an_event_that_says_so_is_found(log: EventLog) -> None:
    log.append("run/a", [said("erased"), said("emptied")])
    erase(log, find_erasable(log, matches=lambda text: text == "erased"), record)
    says = {"erased": lambda event: event.data["texts"]}
    assert verify_file(log.path, erasures=says).ok
    with closing(sqlite3.connect(log.path)) as raw, raw:
        raw.execute("UPDATE contents SET salt = NULL, digest = NULL, body = NULL")
    checked = verify_file(log.path, erasures=says)
    assert (checked.erased, len(checked.problems)) == (2, 1)
    assert "no event records that it was erased" in checked.problems[0].what
    # An event of a time when none named texts may have erased any.
    assert verify_file(log.path, erasures={"erased": lambda _: None}).ok


def test_what_cannot_be_recorded_is_not_erased(log: EventLog) -> None:
    log.append("run/a", [said("hello")], seal=True)
    found = find_erasable(log, ["run/a"])
    with pytest.raises(ConflictError):
        erase(log, found, lambda texts: Append("run/a", [said("x")]))
    assert texts_of(log, "run/a") == ["hello"]
    log.append("run/b", [said("still writing")])


@pytest.mark.parametrize("copies", [1, 40, 2_000])
def test_nothing_of_it_stays_on_the_disk(path: Path, copies: int) -> None:
    marks = [secrets.token_hex(12) for _ in range(300)]
    with EventLog.open(path) as log:
        for number, mark in enumerate(marks):
            log.append(f"run/{number % 3}", [said(mark * (1 + number * copies // 300))])
        with closing(log.reader()) as reader:
            salts = [row[0] for row in reader.execute("SELECT salt FROM contents")]
            size = path.stat().st_size
        gone = [mark for number, mark in enumerate(marks) if number % 3]
        erased = erase(log, find_erasable(log, ["run/1", "run/2"]), record)
        assert (erased.texts, erased.emptied) == (200, True)
        with closing(log.reader()) as reader:
            kept = {row[0] for row in reader.execute("SELECT salt FROM contents")}
        left = on_disk(path)
        assert not any(mark.encode() in left for mark in gone)
        assert not any(sha256(mark.encode()).digest() in left for mark in gone)
        assert not any(salt in left for salt in set(salts) - kept)
        assert all(mark.encode() in left for mark in marks[::3])
        assert copies < 100 or path.stat().st_size < size
        assert verify_file(log.path).ok


def test_no_digest_stays_where_an_index_page_was_divided(path: Path) -> None:
    # The index of 1 in 100 histories kept such a copy; with these texts, it always does.
    texts = [f"694 {number}" for number in range(300)]
    gone = [text for number, text in enumerate(texts) if number % 3]
    copy = path.with_name("copy.db")
    erasures = {"erased": lambda event: event.data["texts"]}
    with EventLog.open(path) as log, EventLog.open(copy) as other:
        log.append("run/a", [said(text) for text in texts])
        with closing(open_reader(path)) as source:
            Merge(other, source, path, accept=lambda _: None).take()
        erase(log, find_erasable(log, matches=gone.__contains__), record)
        with closing(open_reader(path)) as source:
            merge = Merge(other, source, path, accept=lambda _: None, erasures=erasures)
            assert merge.take().erased == 200
        for file in (path, copy):
            left = on_disk(file)
            assert not any(sha256(text.encode()).digest() in left for text in gone)
            assert all(sha256(text.encode()).digest() in left for text in texts[::3])


def test_a_reader_that_stays_keeps_the_wal_and_that_is_said(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm_store.erasing._WAIT_MS", 10)
    log.append("run/a", [said("hello")])
    with closing(sqlite3.connect(log.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM contents").fetchall()
        erased = erase(log, find_erasable(log, ["run/a"]), record)
    assert (erased.texts, erased.emptied) == (1, False)
    assert texts_of(log, "run/a") == [None]
