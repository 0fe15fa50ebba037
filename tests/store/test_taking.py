"""Taking what another log has: byte by byte, in any order, as often as one likes."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import (
    Append,
    EventLog,
    HeadOf,
    NewEvent,
    Projection,
    RecordedEvent,
    Text,
    open_reader,
    stream_lock,
)
from kindlm_store.erasing import erase, find_erasable
from kindlm_store.merging import Merge, RefusedError, Taken
from kindlm_store.salvage import salvage
from kindlm_store.verification import verify_file

SAID = Projection(
    "said",
    1,
    """
    CREATE TABLE said (stream TEXT, ref TEXT, at TEXT, event TEXT, PRIMARY KEY (stream))
    ON said:
        INSERT INTO said BY NAME
        SELECT stream, data ->> '$.text.$ref' AS ref, at, id AS event
          FROM new_events
         WHERE iif(data ->> 'poison', json('{'), true) ORDER BY seq
        ON CONFLICT (stream) DO UPDATE BY NAME
         WHERE (excluded.at, excluded.event) >= (said.at, said.event)
    """,
)


def said(text: str, **more: Any) -> NewEvent:
    return NewEvent("said", {"text": Text(text), **more})


def accept(event: RecordedEvent) -> None:
    if event.type == "nonsense":
        message = "that is nonsense"
        raise ValueError(message)


ERASURES = {"erased": lambda event: event.data["texts"]}
CLAIMS = {"noted": lambda event: {event.data["stream"]: event.data["head"]}}


TERMS = {"accept": accept, "claims": CLAIMS, "erasures": ERASURES}


def take(into: EventLog, path: Path, *, together: bool = False, **options: Any) -> Taken:
    with closing(open_reader(path)) as reader:
        return Merge(into, reader, path, **{**TERMS, **options}).take(together=together)


def take_stripped(into: EventLog, path: Path, *, together: bool = False) -> Taken:
    """Take a log whose texts are not sent."""
    with closing(open_reader(path)) as reader, closing(salvage(reader)) as stripped:
        stripped.execute("UPDATE contents SET salt = x'', digest = NULL, body = NULL")
        return Merge(into, stripped, path, **TERMS).take(together=together)


def facts(log: EventLog) -> Any:
    """All that a log says, whatever the order in which it arrived, and its tables."""
    assert verify_file(log.path, claims=CLAIMS, erasures=ERASURES).ok
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


@cache
def empty() -> bytes:
    """The file of a log without events: to make its tables takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        EventLog.open(path, projections=[SAID]).close()
        return path.read_bytes()


@contextmanager
def opened(path: Path) -> Iterator[EventLog]:
    if not path.exists():
        path.write_bytes(empty())
    with EventLog.open(path, projections=[SAID]) as log:
        yield log


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a sealed stream, a stream that is open, and a journal that notes a head."""
    path = tmp_path_factory.mktemp("recorded") / "recorded.db"
    with opened(path) as log:
        log.append("journal/a", [said("first of all")])
        log.append("run/sealed", [said("one"), said("two")], seal=True)
        log.append("run/open", [said("one"), said("three")])
        noted = NewEvent("noted", {"stream": "run/sealed", "head": HeadOf("run/sealed")})
        log.append("journal/a", [noted])
    return path


@pytest.fixture
def other(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return shutil.copy(recorded, tmp_path / "other.db")


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
        assert verify_file(log.path, claims=CLAIMS).ok
        with pytest.raises(RefusedError, match="run/open"):
            take(log, apart, together=True)


def test_what_a_process_is_writing_is_left_alone(other: Path, path: Path) -> None:
    with opened(path) as log:
        with stream_lock(other, "run/open"):
            taken = take(log, other)
        assert [(r.stream, r.kind) for r in taken.refused] == [("run/open", "going on")]
        assert set(taken.streams) == {"journal/a", "run/sealed"}
        with stream_lock(path, "run/open"):
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


def test_what_was_taken_together_is_noted_if_something_was(other: Path, path: Path) -> None:
    def note(streams: Mapping[str, int]) -> Append:
        return Append("journal/notes", (NewEvent("taken", dict(streams)),))

    def notes() -> list[Any]:
        return [event.data for event in log.read() if event.type == "taken"]

    with opened(path) as log:
        for _ in range(2):
            with closing(open_reader(other)) as reader:
                Merge(log, reader, other, **TERMS).take(together=True, note=note)
            assert notes() == [{"journal/a": 2, "run/open": 2, "run/sealed": 2}]
        with opened(other) as theirs:
            theirs.append("run/open", [said("more")])
        with closing(open_reader(other)) as reader:
            Merge(log, reader, other, **TERMS).take(together=True, note=note)
        assert notes()[1:] == [{"run/open": 3}]


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
        assert "malformed JSON" in refused[0].reason
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
    "UPDATE streams SET version = 0",
    "UPDATE streams SET version = -1",
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
        assert verify_file(log.path, claims=CLAIMS).ok


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE events SET data = '{\"text\":1}' WHERE version = 1", "event 1 does not match"),
        ("UPDATE events SET at = '2020-01-01T00:00:00.000000Z'", "event 1 does not match its"),
        ("UPDATE events SET hash = zeroblob(33) WHERE version = 1", "event 1 does not match its"),
        ("DELETE FROM event_types", "it does not end where its record states"),
        ("UPDATE streams SET sealed = NOT sealed", "does not match its hash"),
        ("UPDATE contents SET body = 'another'", "was changed"),
        ("UPDATE contents SET body = CAST(body AS BLOB)", "was changed"),
        ("DELETE FROM contents", "is missing"),
    ],
)
def test_what_is_here_already_is_compared_too(
    other: Path, path: Path, change: str, what: str, together: bool
) -> None:
    with opened(path) as log:
        take(log, other)
        before = facts(log)
        with closing(sqlite3.connect(other, isolation_level=None)) as raw:
            for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
                raw.execute(f"DROP TRIGGER {name}")
            raw.execute(change)
        if together:
            with pytest.raises(RefusedError, match=what):
                take(log, other, together=True)
        else:
            refused = {r.stream: r for r in take(log, other).refused}
            assert what in refused["run/open"].reason
            assert refused["run/open"].kind == "unsound"
        assert facts(log) == before


def test_an_event_is_never_in_two_streams(other: Path, path: Path) -> None:
    with opened(other) as theirs:
        event = next(theirs.read(stream="run/open"))
    with opened(path) as log:
        same = NewEvent("said", {"text": Text("x")})
        same.raw_id = event.raw_id
        log.append("run/elsewhere", [same])
        refused = take(log, other).refused
        assert [r.stream for r in refused] == ["run/open"]
        assert "once" in refused[0].reason


def test_what_was_erased_stays_so_in_whatever_order(
    other: Path, path: Path, tmp_path: Path
) -> None:
    erased = tmp_path / "erased.db"
    shutil.copy(other, erased)
    with opened(erased) as theirs:
        found = find_erasable(theirs, matches=lambda text: text == "three")
        erase(theirs, found, _record)
    results = []
    for number, order in enumerate([(erased, other), (other, erased), (erased, other, erased)]):
        with opened(tmp_path / f"{number}.db") as log:
            for file in order:
                take(log, file)
            results.append(facts(log))
            assert None in [log.text(e.data["text"]["$ref"]) for e in log.read(stream="run/open")]
    assert results[0] == results[1] == results[2]
    with opened(path) as log:
        take(log, other, together=True)
        assert take(log, erased, together=True).erased == 1
        assert said_in(log, "run/open") == ["one", None]
        assert take(log, other, together=True).filled == 0
        assert said_in(log, "run/open") == ["one", None]


@pytest.mark.parametrize("together", [False, True])
def test_an_erasure_that_does_not_name_its_texts_is_taken_too(
    other: Path, path: Path, together: bool
) -> None:
    erasures = {"erased": lambda _: None}
    with opened(path) as log:
        take(log, other)
        with opened(other) as theirs:
            erase(theirs, find_erasable(theirs, matches=lambda text: text == "three"), _record)
        assert take(log, other, together=together, erasures=erasures).erased == 1
        assert said_in(log, "run/open") == ["one", None]


@pytest.mark.parametrize("together", [False, True])
def test_an_erasure_elsewhere_that_names_no_texts_leaves_those_that_were_not_sent(
    other: Path, path: Path, tmp_path: Path, together: bool
) -> None:
    without = tmp_path / "without.db"
    with opened(without) as log:
        take_stripped(log, other)
        log.append("journal/b", [said("five"), NewEvent("erased", {})])
        with closing(sqlite3.connect(without)) as raw, raw:
            emptied = "UPDATE contents SET salt = NULL, digest = NULL, body = NULL"
            raw.execute(f"{emptied} WHERE body = 'five'")
    with opened(path) as log:
        take(log, other)
        taken = take(log, without, together=together, erasures={"erased": lambda _: None})
        assert (taken.added, taken.erased) == (2, 1)
        assert said_in(log, "run/open") == ["one", "three"]


def test_what_was_not_sent_matches_nothing(other: Path, path: Path) -> None:
    with opened(path) as log:
        take_stripped(log, other)
        log.append("run/open", [said("five")])
        assert len(find_erasable(log, matches=lambda text: "e" in text).refs) == 1


def test_a_claim_that_is_no_hash_is_not_believed(other: Path, path: Path) -> None:
    with opened(other) as theirs:
        theirs.append("journal/a", [NewEvent("noted", {"stream": "run/sealed", "head": "none"})])
    with opened(path) as log:
        assert [r.stream for r in take(log, other).refused] == ["journal/a"]


def said_in(log: EventLog, stream: str) -> list[str | None]:
    return [log.text(event.data["text"]["$ref"]) for event in log.read(stream=stream)]


@pytest.mark.parametrize("together", [False, True])
def test_what_was_not_sent_takes_nothing_away_and_may_come_later(
    other: Path, path: Path, tmp_path: Path, together: bool
) -> None:
    without = tmp_path / "without.db"
    with opened(without) as log:
        taken = take_stripped(log, other, together=together)
        assert (taken.added, taken.withheld, taken.erased) == (6, 4, 0)
        assert said_in(log, "run/open") == [None, None]
        assert (verify_file(log.path, erasures=ERASURES).ok, verify_file(log.path).withheld) == (
            True,
            4,
        )
    with opened(path) as log:
        take(log, other)
        before = facts(log)
        for taken in (take(log, without, together=together), take_stripped(log, other)):
            assert (taken.erased, taken.withheld, taken.filled) == (0, 0, 0)
        assert facts(log) == before
    with opened(without) as log:
        assert take(log, other, together=together).filled == 4
        assert facts(log) == before
        assert take(log, other, together=together).filled == 0


def test_only_a_text_that_fits_its_reference_fills_a_gap(
    other: Path, path: Path, tmp_path: Path
) -> None:
    forged = tmp_path / "forged.db"
    shutil.copy(other, forged)
    with closing(sqlite3.connect(forged)) as raw, raw:
        raw.execute("DROP TRIGGER contents_update")
        raw.execute("UPDATE contents SET body = 'forged' WHERE body = 'three'")
    with opened(path) as log:
        take_stripped(log, other)
        refused = take(log, forged).refused
        assert [r.stream for r in refused] == ["run/open"]
        assert "was changed" in refused[0].reason
        # Another stream brought what both refer to.
        assert said_in(log, "run/open") == ["one", None]
    with closing(sqlite3.connect(path)) as raw, pytest.raises(sqlite3.IntegrityError, match="kept"):
        raw.execute("UPDATE contents SET body = 'forged'")


def test_what_was_withheld_and_is_erased_never_comes(other: Path, path: Path) -> None:
    with opened(path) as log:
        take_stripped(log, other)
        assert erase(log, find_erasable(log, ["run/open"]), _record).texts == 1
        assert take(log, other).filled == 3
        assert said_in(log, "run/open") == ["one", None]


def test_a_row_that_was_emptied_by_something_else_erases_nothing(other: Path, path: Path) -> None:
    with opened(path) as log:
        take(log, other)
        erase(log, find_erasable(log, matches=lambda text: text == "one"), _record)
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("UPDATE contents SET salt = NULL, digest = NULL, body = NULL")
        with opened(other) as theirs:
            assert take(theirs, path).erased == 1
            assert said_in(theirs, "run/open") == [None, "three"]


WHOLE = ("one", "two", "three", "four")


@examples(20)
@given(
    copies=st.lists(
        st.tuples(st.booleans(), st.frozensets(st.sampled_from(WHOLE), max_size=2)),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 1_000),
)
def test_erased_wins_over_present_and_present_over_withheld(
    copies: list[tuple[bool, frozenset[str]]], seed: int
) -> None:
    """Whatever copies are taken, with texts or without, purged or not, in whatever order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with opened(folder / "origin.db") as log:
            log.append("run/1", [said(text) for text in WHOLE[:2]], seal=True)
            log.append("run/2", [said(text) for text in WHOLE[1:]])
        files = []
        for number, (has_texts, purged) in enumerate(copies):
            files.append((folder / f"{number}.db", has_texts))
            shutil.copy(folder / "origin.db", files[-1][0])
            with opened(files[-1][0]) as log:
                for text in purged:
                    found = find_erasable(log, matches=lambda body, gone=text: body == gone)
                    erase(log, found, lambda refs: Append(f"journal/{uuid4()}", [erased(refs)]))
        gone = frozenset[str]().union(*(purged for _, purged in copies))
        here = frozenset(WHOLE) - gone if any(has_texts for has_texts, _ in copies) else frozenset()
        results = []
        for order in range(2):
            shuffled = [*files, *files]
            random.Random(seed + order).shuffle(shuffled)
            with opened(folder / f"merged-{order}.db") as log:
                for file, has_texts in shuffled:
                    taken = take(log, file) if has_texts else take_stripped(log, file)
                    assert taken.refused == []
                checked = verify_file(log.path, erasures=ERASURES)
                assert checked.ok
                assert (checked.erased, checked.texts) == (len(gone), len(here))
                assert checked.withheld == 4 - len(gone | here)
                assert {*said_in(log, "run/1"), *said_in(log, "run/2")} - {None} == here
                results.append(facts(log))
        assert results[0] == results[1]


def _record(texts: list[str]) -> Append:
    return Append("journal/erased", [erased(texts)])


def erased(texts: list[str]) -> NewEvent:
    return NewEvent("erased", {"texts": texts})


steps = st.lists(
    st.tuples(
        st.sampled_from(["run/1", "run/2", "journal/1", "journal/2"]),
        st.sampled_from(["a", "ours", "ä" * 2_000]),
        st.sampled_from(["append", "append", "seal", "copy", "erase", "erase all"]),
    ),
    min_size=6,
    max_size=25,
)


@examples(20)
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
                    log.flush().result()
                    pieces.append(Path(folder) / f"{len(pieces)}.db")
                    with (
                        closing(log.reader()) as reader,
                        closing(sqlite3.connect(pieces[-1])) as copy,
                    ):
                        reader.backup(copy)
                elif what.startswith("erase"):
                    found = find_erasable(log, [stream] if what == "erase" else None)
                    erase(log, found, _record)
                elif stream not in sealed:
                    own = text if text == "ours" else f"{text} of {stream}"
                    log.append(stream, [said(own)], seal=what == "seal")
                    sealed.update({stream} if what == "seal" else ())
        pieces = [*pieces, *pieces, whole]
        random.Random(seed).shuffle(pieces)
        with opened(Path(folder) / "merged.db") as merged, opened(whole) as log:
            for piece in pieces:
                assert take(merged, piece).refused == []
            expected = facts(log)
            assert facts(merged) == expected
            merged.rebuild()
            assert facts(merged) == expected
