"""`kindlm history import`: what could not be written comes in later, and nothing else does."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindlm.errors import KindlmError
from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import ProviderResponded
from kindlm.events.run import RunInterrupted, RunSealed, RunStarted
from kindlm.projections import PROJECTIONS
from kindlm.recording.export_file import LineError, read_export, write_export
from kindlm.recording.unwritten import keep_unwritten
from kindlm_store import (
    Append,
    EventLog,
    HeadOf,
    NewEvent,
    OpenError,
    Text,
    WriteFailedError,
    stream_lock,
)
from kindlm_store.verification import verify_file

RUN = "run/k3f9x2ab"
JOURNAL = "journal/0123456789abcdef0123"

ANSWER = ProviderResponded(call=1, text="Your order:\nthree 🌂", raw='{"a": 1}', latency_ms=12.5)


@pytest.fixture
def database(here: Path) -> Path:
    """A history in which a run began."""
    path = here / "history.db"
    append(path, RunStarted(project="shop", planned=2, versions={"kindlm": "1"}))
    return path


def append(database: Path, *payloads: Payload, seal: bool = False) -> None:
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append(RUN, list(map(new_event, payloads)), seal=seal)


def unwritten(database: Path, *appends: Append) -> Path:
    """The file in which is kept what a history does not take."""
    told: list[KindlmError] = []
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log._writer.put(run=lambda db: db.execute("PRAGMA query_only = ON")).result()
        with pytest.raises(WriteFailedError):
            log.submit(*appends).result()
        told.append(keep_unwritten(log, "k3f9x2ab", str(database)))
    (error,) = told
    command = (error.hint or "").partition("kindlm history import")[2]
    return Path(shlex.split(command)[0])


def events_in(database: Path) -> list[tuple[Any, ...]]:
    with EventLog.open(database, projections=PROJECTIONS) as log:
        assert verify_file(log.path).ok
        assert log.projection_errors() == {}
        return [(e.stream, e.version, e.type, e.id, e.at, e.subject) for e in log.read()]


def the_rest(database: Path) -> tuple[list[NewEvent], Path]:
    """Two events that the history has not, and a file with them."""
    events = [
        new_event(ANSWER, subject="1.1"),
        new_event(RunInterrupted(reason="the disk was full")),
    ]
    sealing = Append(RUN, events, seal=True)
    return events, unwritten(database, sealing)


def test_events_come_in_with_all_that_they_are(kindlm: Any, database: Path, here: Path) -> None:
    events, file = the_rest(database)
    assert (file.parent, file.stat().st_mode & 0o777) == (here, 0o600)
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 0, outcome.err
    assert "2 events imported." in outcome.err
    named = database.relative_to(here)
    assert f"kindlm show k3f9x2ab --db {named}" in " ".join(outcome.err.split())
    assert events_in(database)[1:] == [
        (RUN, version, e.type, e.id, e.at, e.subject) for version, e in enumerate(events, 2)
    ]
    with EventLog.open(database) as log:
        answer = next(log.read(types=["provider.responded"]))
        assert log.text(answer.data["text"]["$ref"]) == "Your order:\nthree 🌂"


def test_a_history_that_was_moved_is_moved_back_and_takes_the_rest(
    kindlm: Any, database: Path, here: Path
) -> None:
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append(RUN, [new_event(ANSWER, subject="1.1")])
        moved = database.rename(here / "moved.db")
        with pytest.raises(WriteFailedError):
            log.submit(Append(RUN, [new_event(ANSWER, subject="1.1")])).result()
        told = keep_unwritten(log, "k3f9x2ab", str(database))
    assert "move the file back" in (told.hint or "")
    moved.rename(database)
    command = (told.hint or "").partition("kindlm history import")[2]
    assert "2 events imported" in kindlm("import", *shlex.split(command)).err
    kinds = [event[2] for event in events_in(database)]
    assert kinds[-2:] == ["provider.responded", "run.interrupted"]


def test_a_run_that_could_record_nothing_is_kept_as_a_whole(kindlm: Any, here: Path) -> None:
    database = here / "history.db"
    started = new_event(RunStarted(project="shop", planned=2, versions={"kindlm": "1"}))
    file = unwritten(database, Append(RUN, [started]))
    assert "2 events imported" in kindlm("import", file, "--db", here / "new.db").err
    kinds = [event[2] for event in events_in(here / "new.db")]
    assert kinds == ["run.started", "run.interrupted"]


def test_twice_is_harmless_also_after_the_run_went_on(kindlm: Any, database: Path) -> None:
    file = unwritten(database, Append(RUN, [new_event(ANSWER, subject="1.1")]))
    kindlm("import", file, "--db", database)
    before = events_in(database)
    again = kindlm("import", file, "--db", database)
    assert (again.code, events_in(database)) == (0, before)
    assert "0 events imported; 2 were there already" in again.err
    append(database, RunInterrupted(reason="once more"))
    assert kindlm("import", file, "--db", database).code == 0
    assert len(events_in(database)) == len(before) + 1


def test_a_run_is_sealed_and_its_head_noted(kindlm: Any, database: Path) -> None:
    sealing = Append(RUN, [new_event(RunInterrupted(reason="the last event"))], seal=True)
    noted = new_event(RunSealed(run="k3f9x2ab", head=HeadOf(RUN)))
    file = unwritten(database, sealing, Append(JOURNAL, [noted]))
    assert kindlm("import", file, "--db", database).code == 0
    assert kindlm("import", file, "--db", database).code == 0
    with EventLog.open(database) as log:
        head = log.head(RUN)
        assert head is not None
        assert head.sealed
        assert next(log.read(types=["run.sealed"])).data["head"] == head.hash


def test_an_end_is_noted_that_the_history_has(kindlm: Any, database: Path) -> None:
    append(database, RunInterrupted(reason="the end"), seal=True)
    noted = new_event(RunSealed(run="k3f9x2ab", head=HeadOf(RUN)))
    with EventLog.open(database, projections=PROJECTIONS) as log:
        head = log.head(RUN)
        log._writer.put(run=lambda db: db.execute("PRAGMA query_only = ON")).result()
        with pytest.raises(WriteFailedError):
            log.append(JOURNAL, [noted])
        keep_unwritten(log, "another", "history.db")
    (file,) = database.parent.glob("unwritten-another-*.jsonl")
    assert kindlm("import", file, "--db", database).code == 0
    with EventLog.open(database) as log:
        assert head is not None
        assert next(log.read(types=["run.sealed"])).data["head"] == head.hash


def _no_reader(database: Path) -> NoReturn:
    raise OpenError(database, "cannot be used")


def test_of_a_history_that_cannot_be_read_any_more_the_ends_are_known(
    kindlm: Any, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [new_event(ANSWER, subject=f"{number}.1") for number in (1, 2)]
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append(RUN, answers[:1])
        log._writer.put(run=lambda db: db.execute("PRAGMA query_only = ON")).result()
        with pytest.raises(WriteFailedError):
            log.append(RUN, answers[1:])
        monkeypatch.setattr(log, "reader", partial(_no_reader, database))
        keep_unwritten(log, "k3f9x2ab", "history.db")
    (file,) = database.parent.glob("unwritten-*")
    assert kindlm("import", file, "--db", database).code == 0
    kinds = [event[2] for event in events_in(database)]
    assert kinds == ["run.started", "provider.responded", "provider.responded", "run.interrupted"]


def test_what_follows_an_end_that_cannot_be_read_is_said_to_be_lost(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[KindlmError] = []
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log._writer.put(run=lambda db: db.execute("PRAGMA query_only = ON")).result()
        with pytest.raises(WriteFailedError):
            log.append(RUN, [new_event(ANSWER, subject="1.1")])
        monkeypatch.setattr(log, "reader", partial(_no_reader, database))
        told.append(keep_unwritten(log, "k3f9x2ab", "history.db"))
    (error,) = told
    assert "are lost: no file could be written, since the history cannot be read" in error.message
    assert not list(database.parent.glob("unwritten-*"))


def test_events_of_an_unknown_type_are_kept_as_they_are(kindlm: Any, database: Path) -> None:
    event = NewEvent("run.dreamt", {"of": ["sheep", {"electric": True}], "n": 1.5}, schema=7)
    file = unwritten(database, Append(RUN, [event], seal=True))
    assert kindlm("import", file, "--db", database).code == 0
    with EventLog.open(database) as log:
        kept = list(log.read())[-1]
    assert (kept.type, kept.schema, kept.data) == (event.type, event.schema, event.data)


@pytest.mark.parametrize("seal", [True, False])
def test_a_run_that_went_on_refuses_the_file(kindlm: Any, database: Path, seal: bool) -> None:
    _, file = the_rest(database)
    append(database, RunInterrupted(reason="other"), seal=seal)
    before = events_in(database)
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert "it diverged: from event 2 on, the events differ" in outcome.err
    assert "Delete it if it holds what could not be written here" in outcome.err
    assert events_in(database) == before


def test_another_history_is_refused(kindlm: Any, database: Path, here: Path) -> None:
    _, file = the_rest(database)
    other = here / "other.db"
    EventLog.open(other, projections=PROJECTIONS).close()
    outcome = kindlm("import", file, "--db", other)
    assert outcome.code == 1
    assert "run k3f9x2ab: its events up to number 1 are not in this history" in outcome.err
    assert "--db" in outcome.err
    assert events_in(other) == []


def test_a_run_that_is_going_on_is_left_alone(kindlm: Any, database: Path) -> None:
    _, file = the_rest(database)
    with stream_lock(database, RUN):
        outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert "is locked by process" in outcome.err
    assert len(events_in(database)) == 1


def test_a_lock_that_cannot_be_made_is_no_matter_of_the_file(
    kindlm: Any, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = the_rest(database)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kindlm_store.merging.stream_lock", full)
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert outcome.err.startswith("✗ No space left on device.\n")


def test_an_event_that_is_recorded_elsewhere_is_refused(kindlm: Any, database: Path) -> None:
    events, file = the_rest(database)
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append("journal/another", events[1:])
    before = events_in(database)
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert "imported: run k3f9x2ab: " in outcome.err
    assert events_in(database) == before


FORMS: list[tuple[NewEvent, str]] = [
    (NewEvent("run.interrupted", {"reason": "x"}, schema=3), "newer form"),
    (
        NewEvent("provider.responded", {"call": 1}, subject="the weather"),
        "has an impossible subject",
    ),
    (NewEvent("provider.responded", {"call": "one"}, subject="1.1"), "call"),
    (NewEvent("run.finished", {"duration_ms": 1e300}), "too large"),
    (
        NewEvent("suite.started", {"tests": [{"repeat": 10**12}]}),
        "tests[].repeat: the number is too",
    ),
]


@pytest.mark.parametrize(("event", "told"), FORMS)
def test_what_the_tables_could_not_be_folded_from_is_refused(
    kindlm: Any, database: Path, event: NewEvent, told: str
) -> None:
    file = unwritten(database, Append(RUN, [event], seal=True))
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert told in outcome.err
    assert "itself failed" not in outcome.err
    assert len(events_in(database)) == 1


def test_a_file_that_was_cut_off_is_refused(kindlm: Any, database: Path) -> None:
    _, file = the_rest(database)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert "is the last one, and run/" in outcome.err
    file.write_bytes(b"".join(lines)[:-20])
    assert (
        f"Line {len(lines)} of {file} is not valid" in kindlm("import", file, "--db", database).err
    )
    assert len(events_in(database)) == 1


def test_a_line_that_is_cut_off_is_named(kindlm: Any, database: Path) -> None:
    _, file = the_rest(database)
    first, second, *rest = file.read_text("utf-8").splitlines(keepends=True)
    for line in (second[: second.index("ref") + 8].encode(), b"\xff"):
        file.write_bytes(b"".join([first.encode(), line, b"\n", *map(str.encode, rest)]))
        outcome = kindlm("import", file, "--db", database)
        assert f"Line 2 of {file} is not valid JSON." in outcome.err


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b'{"format": "kindlm-events", "version": 2}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"SQLite format 3\0" + bytes(100),
    ],
)
def test_another_file_is_refused(kindlm: Any, database: Path, here: Path, content: bytes) -> None:
    file = here / "other.jsonl"
    file.write_bytes(content)
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert f"Line 1 of {file}" in outcome.err
    assert "itself failed" not in outcome.err


@pytest.mark.parametrize("key", ["after", "base"])
def test_a_header_that_says_half_of_where_the_events_begin_is_refused(
    kindlm: Any, database: Path, key: str
) -> None:
    _, file = the_rest(database)
    header, *rest = file.read_text("utf-8").splitlines(keepends=True)
    changed = json.loads(header)
    del changed["streams"][RUN][key]
    file.write_text("".join([json.dumps(changed), "\n", *rest]), encoding="utf-8")
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert f"Line 1 of {file} is not as kindlm writes it" in outcome.err
    assert len(events_in(database)) == 1


def test_a_newer_form_of_the_file_asks_for_an_update(kindlm: Any, database: Path) -> None:
    _, file = the_rest(database)
    header, *rest = map(json.loads, file.read_text("utf-8").splitlines())
    lines = [{**header, "version": 2, "more": True}, *rest]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert "version 2" in outcome.err


def test_a_file_that_is_not_there(kindlm: Any, database: Path, here: Path) -> None:
    outcome = kindlm("import", here / "nothing.jsonl", "--db", database)
    assert outcome.code == 1
    assert "No such file" in outcome.err


def payloads(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts.filter(lambda name: name != "$ref"), values, max_size=3)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | texts
    | st.floats(allow_nan=False, allow_infinity=False) | st.builds(Text, texts),
    lambda inner: st.lists(inner, max_size=3) | payloads(inner),
    max_leaves=5,
)  # fmt: skip


# The first text takes a second, on a busy machine: hypothesis reads its table of characters.
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=20,
)
@given(st.lists(payloads(json_values), min_size=1, max_size=20))
def test_what_is_written_is_read_back(tmp_path: Path, data: Sequence[dict[str, Any]]) -> None:
    path = tmp_path / "any.db"
    path.unlink(missing_ok=True)
    file = BytesIO()
    with EventLog.open(path) as log, closing(log.reader()) as db:
        log.append(RUN, [NewEvent("t", each) for each in data])
        write_export(file, "k3f9x2ab", [RUN], db)
        file.seek(0)
        stored = "SELECT version, id, at, data, hash FROM events ORDER BY version"
        bodies = "SELECT ref, salt, body FROM contents ORDER BY ref"
        with read_export(file) as export:
            for query in (stored, bodies):
                there = [tuple(row) for row in db.execute(query)]
                assert export.log.execute(query).fetchall() == there


@given(st.binary())
def test_no_bytes_at_all_are_anything_but_an_export_or_refused(content: bytes) -> None:
    with pytest.raises(LineError), read_export(BytesIO(content)):
        pass


def test_a_text_is_not_withheld_by_another_line_without_its_body(tmp_path: Path) -> None:
    file = BytesIO()
    with EventLog.open(tmp_path / "any.db") as log, closing(log.reader()) as db:
        log.append(RUN, [NewEvent("t", {"a": Text("said")})])
        write_export(file, "k3f9x2ab", [RUN], db)
    header, text, event = file.getvalue().splitlines(keepends=True)
    bare = json.dumps({"text": {"ref": json.loads(text)["text"]["ref"]}}).encode() + b"\n"
    for lines in ((text, bare), (bare, text)):
        with read_export(BytesIO(b"".join((header, *lines, event)))) as export:
            assert export.log.execute("SELECT body FROM contents").fetchall() == [("said",)]
