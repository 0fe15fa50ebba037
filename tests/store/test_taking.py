"""Taking what another log has: byte by byte, in any order, as often as one likes."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindlm_store import (
    Append,
    EventLog,
    HeadOf,
    LogSource,
    NewEvent,
    Operation,
    Projection,
    RecordedEvent,
    RefusedError,
    StreamLock,
    Table,
    Taken,
    Text,
    Upsert,
    open_reader,
)


def on_said(event: RecordedEvent) -> Iterator[Operation]:
    row = {"ref": event.data["text"]["$ref"], "at": event.at, "event": str(event.id)}
    yield Upsert("said", {"stream": event.stream}, row, newest=("at", "event"))
    if event.data.get("poison"):
        raise ZeroDivisionError("planted")


SAID = Projection(
    "said",
    1,
    (Table("said", {"stream": "TEXT", "ref": "TEXT", "at": "TEXT", "event": "TEXT"}, ("stream",)),),
    {"said": on_said},
)


def said(text: str, **more: Any) -> NewEvent:
    return NewEvent("said", {"text": Text(text), **more})


def accept(event: RecordedEvent) -> None:
    if event.type == "nonsense":
        message = "that is nonsense"
        raise ValueError(message)


CLAIMS = {"noted": lambda event: {event.data["stream"]: event.data["head"]}}


def take(into: EventLog, path: Path, **options: Any) -> Taken:
    with closing(open_reader(path)) as reader, LogSource(reader, path) as source:
        return into.take(source, **({"accept": accept, "claims": CLAIMS} | options))


def facts(log: EventLog) -> Any:
    """All that a log says, whatever the order in which it arrived, and its tables."""
    assert log.verify(claims=CLAIMS).ok
    assert log.projection_errors() == {}
    with closing(log.reader()) as reader:
        events = reader.execute(
            "SELECT id, stream, version, type, schema, at, subject, data, hash FROM event_log"
        )
        streams = reader.execute("SELECT name, version, head, sealed FROM streams")
        texts = reader.execute("SELECT ref, salt, digest, body FROM contents")
        tables = reader.execute("SELECT * FROM said")
        return [
            sorted((tuple(row) for row in rows), key=repr)
            for rows in (events, streams, texts, tables)
        ]


@contextmanager
def opened(path: Path) -> Iterator[EventLog]:
    with EventLog.open(path, projections=[SAID], synchronous="OFF") as log:
        yield log


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A log with a sealed stream, a stream that is open, and a journal that notes a head."""
    path = tmp_path / "other.db"
    with opened(path) as log:
        log.append("journal/a", [said("first of all")])
        log.append("run/sealed", [said("one"), said("two")], seal=True)
        log.append("run/open", [said("one"), said("three")])
        noted = NewEvent("noted", {"stream": "run/sealed", "head": HeadOf("run/sealed")})
        log.append("journal/a", [noted])
    return path


def test_everything_is_there_as_it_was(other: Path, path: Path) -> None:
    with opened(other) as theirs, opened(path) as log:
        taken = take(log, other)
        assert taken.streams == {"journal/a": 2, "run/sealed": 2, "run/open": 2}
        assert (taken.added, taken.known, taken.refused) == (6, 0, [])
        assert facts(log) == facts(theirs)
        head = log.head("run/sealed")
        assert head is not None
        assert head.sealed


def test_a_second_time_changes_nothing(other: Path, path: Path) -> None:
    with opened(path) as log:
        take(log, other)
        before = facts(log)
        again = take(log, other)
        assert (again.added, again.known, again.refused) == (0, 6, [])
        assert facts(log) == before


def test_a_stream_that_went_on_there_goes_on_here(other: Path, path: Path) -> None:
    with opened(path) as log:
        take(log, other)
        with opened(other) as theirs:
            theirs.append("run/open", [said("four")], seal=True)
        assert take(log, other).streams == {"run/open": 1}
        with opened(other) as theirs:
            assert facts(log) == facts(theirs)
        log.append("run/mine", [said("five")])
    with opened(other) as theirs:
        assert take(theirs, path).streams == {"run/mine": 1}


def test_an_older_copy_takes_nothing_away(other: Path, path: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.db"
    shutil.copy(other, older)
    with opened(other) as theirs:
        theirs.append("run/open", [said("four")])
    with opened(path) as log:
        take(log, other)
        before = facts(log)
        assert take(log, older).added == 0
        assert facts(log) == before


def test_two_copies_that_went_on_apart_are_never_mixed(
    other: Path, path: Path, tmp_path: Path
) -> None:
    apart = tmp_path / "apart.db"
    shutil.copy(other, apart)
    with opened(other) as theirs:
        theirs.append("run/open", [said("here"), said("longer")], seal=True)
    with opened(apart) as theirs:
        theirs.append("run/open", [said("there")], seal=True)
        head = NewEvent("noted", {"stream": "run/open", "head": HeadOf("run/open")})
        theirs.append("journal/b", [head])
        theirs.append("run/new", [said("new")])
    with opened(path) as log:
        take(log, other)
        taken = take(log, apart)
        assert taken.streams == {"run/new": 1}
        refused = {refusal.stream: refusal for refusal in taken.refused}
        assert (refused["run/open"].kind, refused["journal/b"].kind) == ("apart", "unsound")
        assert "from event 3 on" in refused["run/open"].reason
        assert log.verify(claims=CLAIMS).ok
        with pytest.raises(RefusedError, match="run/open"):
            take(log, apart, together=True)


def test_what_a_process_is_writing_is_left_alone(other: Path, path: Path) -> None:
    with opened(path) as log:
        with StreamLock(other, "run/open"):
            taken = take(log, other)
        assert [(r.stream, r.kind) for r in taken.refused] == [("run/open", "going on")]
        assert set(taken.streams) == {"journal/a", "run/sealed"}
        with StreamLock(path, "run/open"):
            assert [r.kind for r in take(log, other).refused] == ["going on"]
        assert take(log, other).streams == {"run/open": 2}


def test_all_or_nothing(other: Path, path: Path) -> None:
    with opened(other) as theirs:
        theirs.append("run/z", [NewEvent("nonsense", {})])
    with opened(path) as log:
        with pytest.raises(RefusedError, match="that is nonsense"):
            take(log, other, together=True)
        assert list(log.read()) == []
        assert [r.stream for r in take(log, other).refused] == ["run/z"]
        assert len(list(log.read())) == 6


def test_one_that_is_refused_halfway_takes_no_other_with_it(other: Path, path: Path) -> None:
    with opened(other) as theirs:
        theirs.append("run/mine", [said("mine")])
        # It notes what is not there, too, before what makes it refused.
        noted = NewEvent("noted", {"stream": "run/elsewhere", "head": "sha256:" + "0" * 64})
        theirs.append("journal/bad", [noted, NewEvent("nonsense", {})])
        theirs.append("run/sound", [said("sound")])
    with opened(path) as log:
        taken = take(log, other)
        assert [refusal.stream for refusal in taken.refused] == ["journal/bad"]
        assert "that is nonsense" in taken.refused[0].reason
        assert set(taken.streams) == {
            "journal/a", "run/sealed", "run/open", "run/mine", "run/sound",
        }  # fmt: skip


def test_what_the_tables_cannot_be_computed_from_is_refused(other: Path, path: Path) -> None:
    with opened(path) as log:
        take(log, other)
    with EventLog.open(other) as theirs:
        theirs.append("run/bad", [said("x", poison=True)])
    with opened(path) as log:
        before = facts(log)
        refused = take(log, other).refused
        assert [(r.stream, r.kind) for r in refused] == [("run/bad", "unsound")]
        assert "planted" in refused[0].reason
        assert facts(log) == before


TAMPERING = [
    "UPDATE events SET data = replace(data, '$ref', '$REF') WHERE version = 1",
    "UPDATE events SET at = '2020-01-01T00:00:00.000000Z'",
    "UPDATE events SET at = 'yesterday'",
    "UPDATE events SET id = randomblob(15)",
    "UPDATE events SET data = CAST(data AS BLOB)",
    "UPDATE events SET data = '{\"a\": 1}'",
    "UPDATE events SET data = '[1]'",
    "UPDATE events SET subject = ''",
    "UPDATE events SET schema = 0",
    "UPDATE events SET hash = zeroblob(33)",
    "UPDATE streams SET version = version + 1",
    "UPDATE streams SET head = 'text'",
    "UPDATE streams SET sealed = NOT sealed",
    "UPDATE contents SET body = 'another'",
    "UPDATE contents SET salt = NULL",
    "DELETE FROM contents",
    "DELETE FROM events WHERE version = 1",
]


@pytest.mark.parametrize("change", TAMPERING)
def test_what_was_changed_is_refused(other: Path, path: Path, change: str) -> None:
    with closing(sqlite3.connect(other, isolation_level=None)) as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute(change)
    with opened(path) as log:
        taken = take(log, other)
        assert {r.stream for r in taken.refused} >= {"run/open"}
        assert log.verify(claims=CLAIMS).ok


def test_an_event_is_never_in_two_streams(other: Path, path: Path) -> None:
    with opened(other) as theirs:
        event = next(theirs.read(stream="run/open"))
    with opened(path) as log:
        log.append("run/elsewhere", [NewEvent("said", {"text": Text("x")}, id=event.id)])
        refused = take(log, other).refused
        assert [r.stream for r in refused] == ["run/open"]
        assert "once" in refused[0].reason


def test_what_was_erased_stays_so_in_whatever_order(
    other: Path, path: Path, tmp_path: Path
) -> None:
    erased = tmp_path / "erased.db"
    shutil.copy(other, erased)
    with opened(erased) as theirs:
        found = theirs.erasable(matches=lambda text: text == "three")
        theirs.erase(found, _record)
    results = []
    for number, order in enumerate([(erased, other), (other, erased), (erased, other, erased)]):
        with opened(tmp_path / f"{number}.db") as log:
            for file in order:
                take(log, file, erase=True)
            results.append(facts(log))
            assert None in [log.text(e.data["text"]["$ref"]) for e in log.read(stream="run/open")]
    assert results[0] == results[1] == results[2]
    with opened(path) as log:
        take(log, other)
        assert take(log, erased).erased == 0
        assert [log.text(e.data["text"]["$ref"]) for e in log.read(stream="run/open")] == [
            "one",
            "three",
        ]


def _record(texts: int) -> Append:
    return Append("journal/erased", [NewEvent("erased", {"texts": texts})])


steps = st.lists(
    st.tuples(
        st.sampled_from(["run/1", "run/2", "journal/1", "journal/2"]),
        st.sampled_from(["a", "ours", "ä" * 2_000]),
        st.sampled_from(["append", "append", "seal", "copy", "erase", "erase all"]),
    ),
    min_size=6,
    max_size=25,
)


@settings(max_examples=40)
@given(steps=steps, seed=st.integers(0, 1_000))
def test_shuffled_overlapping_pieces_make_the_one_history(
    steps: list[tuple[str, str, str]], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pieces = []
        whole = Path(folder) / "whole.db"
        sealed = set()
        with opened(whole) as log:
            for stream, text, what in steps:
                if what == "copy":
                    log.flush()
                    pieces.append(Path(folder) / f"{len(pieces)}.db")
                    with (
                        closing(log.reader()) as reader,
                        closing(sqlite3.connect(pieces[-1])) as copy,
                    ):
                        reader.backup(copy)
                elif what.startswith("erase"):
                    found = log.erasable([stream] if what == "erase" else None)
                    log.erase(found, _record)
                elif stream not in sealed:
                    own = text if text == "ours" else f"{text} of {stream}"
                    log.append(stream, [said(own)], seal=what == "seal")
                    sealed.update({stream} if what == "seal" else ())
        pieces = [*pieces, *pieces, whole]
        random.Random(seed).shuffle(pieces)
        with opened(Path(folder) / "merged.db") as merged, opened(whole) as log:
            for piece in pieces:
                assert take(merged, piece, erase=True).refused == []
            expected = facts(log)
            assert facts(merged) == expected
            merged.rebuild()
            assert facts(merged) == expected
