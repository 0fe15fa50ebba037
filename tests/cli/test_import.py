"""`kindlm history import`: what it takes, and what it refuses without changing anything."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindlm.events.codec import new_event
from kindlm.events.execution_events import ProviderResponded
from kindlm.events.run import RunInterrupted, RunSealed, RunStarted
from kindlm.projections import PROJECTIONS
from kindlm.recording.event_files import LineError, StreamEnd, read_unwritten, write_unwritten
from kindlm_store import Append, EventLog, HeadOf, NewEvent, StreamLock, Text, uuid7

RUN = "run/k3f9x2ab"

ANSWER = ProviderResponded(call=1, text="Your order:\nthree 🌂", raw='{"a": 1}', latency_ms=12.5)


@pytest.fixture
def database(here: Path) -> Path:
    """A history in which a run began."""
    path = here / "history.db"
    with EventLog.open(path, projections=PROJECTIONS) as log:
        started = RunStarted(project="shop", planned=2, versions={"kindlm": "1"})
        log.append(RUN, [new_event(started)])
    return path


def end_of(database: Path, stream: str = RUN) -> StreamEnd:
    with EventLog.open(database, projections=PROJECTIONS) as log:
        head = log.head(stream)
    return StreamEnd(version=head.version, hash=head.hash) if head else StreamEnd()


def written(folder: Path, *appends: Append, **ends: StreamEnd | None) -> Path:
    """A file as `kindlm test` writes it; `ends` for all streams is `end` if there is one."""
    file = folder / "unwritten.jsonl"
    with file.open("wb") as out:
        write_unwritten(out, appends, {append.stream: ends["end"] for append in appends})
    return file


def events_in(database: Path) -> list[tuple[Any, ...]]:
    with EventLog.open(database, projections=PROJECTIONS) as log:
        assert log.verify().ok
        assert log.projection_errors() == {}
        return [(e.stream, e.version, e.type, e.id, e.at, e.subject) for e in log.read()]


def the_rest(database: Path, folder: Path) -> tuple[list[NewEvent], Path]:
    """Two events that the history has not, and a file with them."""
    events = [
        new_event(ANSWER, subject="1.1"),
        new_event(RunInterrupted(reason="the disk was full")),
    ]
    return events, written(folder, Append(RUN, events), end=end_of(database))


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def write_lines(file: Path, lines: list[Any]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file.write_text(text, encoding="utf-8")


def test_events_come_in_with_all_that_they_are(kindlm: Any, database: Path, here: Path) -> None:
    events, file = the_rest(database, here)
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


def test_twice_is_harmless_also_after_the_run_went_on(
    kindlm: Any, database: Path, here: Path
) -> None:
    _, file = the_rest(database, here)
    kindlm("import", file, "--db", database)
    before = events_in(database)
    again = kindlm("import", file, "--db", database)
    assert (again.code, events_in(database)) == (0, before)
    assert "0 events imported; 2 were there already" in again.err
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append(RUN, [new_event(RunInterrupted(reason="once more"))])
    assert kindlm("import", file, "--db", database).code == 0
    assert len(events_in(database)) == len(before) + 1


def test_what_had_reached_the_disk_after_all_is_left_out(
    kindlm: Any, database: Path, here: Path
) -> None:
    events, file = the_rest(database, here)
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append(RUN, events[:1])
    outcome = kindlm("import", file, "--db", database)
    assert "1 event imported; 1 were there already" in outcome.err
    assert [event[3] for event in events_in(database)[1:]] == [event.id for event in events]


def test_a_run_is_sealed_and_its_head_noted(kindlm: Any, database: Path, here: Path) -> None:
    sealing = Append(RUN, [new_event(RunInterrupted(reason="the last event"))], seal=True)
    noted = RunSealed(run="k3f9x2ab", head=HeadOf(RUN))
    file = here / "unwritten.jsonl"
    with file.open("wb") as out:
        journal = Append("journal/0123456789abcdef0123", [new_event(noted)])
        ends = {RUN: end_of(database), journal.stream: StreamEnd()}
        write_unwritten(out, [sealing, journal], ends)
    assert kindlm("import", file, "--db", database).code == 0
    assert kindlm("import", file, "--db", database).code == 0
    with EventLog.open(database) as log:
        head = log.head(RUN)
        assert head is not None
        assert head.sealed
        assert next(log.read(types=["run.sealed"])).data["head"] == head.hash


def test_events_of_an_unknown_type_are_kept_as_they_are(
    kindlm: Any, database: Path, here: Path
) -> None:
    event = NewEvent("run.dreamt", {"of": ["sheep", {"electric": True}], "n": 1.5}, schema=7)
    file = written(here, Append(RUN, [event]), end=end_of(database))
    assert kindlm("import", file, "--db", database).code == 0
    with EventLog.open(database) as log:
        kept = list(log.read())[-1]
    assert (kept.type, kept.schema, kept.data) == (event.type, event.schema, event.data)


@pytest.mark.parametrize("known", [True, False])
def test_a_run_that_went_on_refuses_the_file(
    kindlm: Any, database: Path, here: Path, known: bool
) -> None:
    events, _ = the_rest(database, here)
    end = end_of(database) if known else None
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append(RUN, [*(() if known else events[:1]), new_event(RunInterrupted(reason="other"))])
    before = events_in(database)
    outcome = kindlm("import", written(here, Append(RUN, events), end=end), "--db", database)
    assert outcome.code == 1
    assert "went on since then" in outcome.err
    assert events_in(database) == before


def test_a_sealed_run_takes_nothing_more(kindlm: Any, database: Path, here: Path) -> None:
    _, file = the_rest(database, here)
    write_lines(file, [dict(lines_of(file)[0], streams={RUN: None}), *lines_of(file)[1:]])
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append(RUN, [new_event(RunInterrupted(reason="the end"))], seal=True)
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert "is sealed" in outcome.err


def test_another_history_is_refused(kindlm: Any, database: Path, here: Path) -> None:
    _, file = the_rest(database, here)
    other = here / "other.db"
    EventLog.open(other, projections=PROJECTIONS).close()
    outcome = kindlm("import", file, "--db", other)
    assert outcome.code == 1
    assert "does not have the first 1 events of run/k3f9x2ab" in outcome.err
    assert "--db" in outcome.err
    assert events_in(other) == []


def test_a_run_that_is_going_on_is_left_alone(kindlm: Any, database: Path, here: Path) -> None:
    _, file = the_rest(database, here)
    with StreamLock(database, RUN):
        outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert "is locked by process" in outcome.err
    assert len(events_in(database)) == 1


def test_an_event_that_is_recorded_elsewhere_is_refused(
    kindlm: Any, database: Path, here: Path
) -> None:
    events, file = the_rest(database, here)
    with EventLog.open(database, projections=PROJECTIONS) as log:
        log.append("journal/another", events[1:])
    before = events_in(database)
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert f"imported: {RUN}: an event with this id is recorded already." in outcome.err
    assert events_in(database) == before


@pytest.mark.parametrize("kept", [2, 30])
def test_a_file_that_was_cut_off_brings_in_what_it_has(
    kindlm: Any, database: Path, here: Path, kept: int
) -> None:
    events, file = the_rest(database, here)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) + lines[2][: kept - 2])
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 0
    assert "ends early: 1 event of it" in outcome.err
    assert "1 event imported" in outcome.err
    assert [event[3] for event in events_in(database)[1:]] == [events[0].id]


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"id": "1"}, "id"),
    ({"schema": 0}, "schema"),
    ({"schema": 3}, "newer form"),
    ({"stream": "run/../../x"}, "stream"),
    ({"stream": "run/another"}, "header"),
    ({"at": "yesterday"}, "time"),
    ({"subject": "the weather"}, "1.1|about"),
    ({"data": {"call": "one"}}, "call"),
    ({"data": {"text": {"$ref": {"text": "a", "more": 1}}}}, "ref"),
    ({"data": json.loads('{"a":' * 200 + "1" + "}" * 200)}, "nested"),
    ({"surprise": 1}, "surprise"),
]


@pytest.mark.parametrize(("change", "told"), CHANGES)
def test_a_line_that_is_not_what_it_must_be_is_named(
    kindlm: Any, database: Path, here: Path, change: dict[str, Any], told: str
) -> None:
    _, file = the_rest(database, here)
    header, first, last = lines_of(file)
    write_lines(file, [header, {**first, **change}, last])
    outcome = kindlm("import", file, "--db", database)
    assert outcome.code == 1
    assert f"Line 2 of {file}" in outcome.err
    assert any(part in outcome.err for part in told.split("|"))
    assert "itself failed" not in outcome.err
    assert len(events_in(database)) == 1


def test_a_line_that_is_cut_off_is_said_to_be_in_plain_words(
    kindlm: Any, database: Path, here: Path
) -> None:
    _, file = the_rest(database, here)
    first, second, *rest = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join([first, second[: second.index("run/") + 6], "\n", *rest]))
    outcome = kindlm("import", file, "--db", database)
    assert f"Line 2 of {file} is not valid JSON: a string has a line end" in outcome.err
    file.write_bytes(first.encode() + b"\xff\n")
    assert "is not valid JSON: it is not UTF-8." in kindlm("import", file, "--db", database).err


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b'{"format": "kindlm-unwritten-events", "version": 2}\n',
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


def test_a_newer_form_of_the_file_asks_for_an_update(
    kindlm: Any, database: Path, here: Path
) -> None:
    _, file = the_rest(database, here)
    header, *rest = lines_of(file)
    write_lines(file, [{**header, "version": 2, "more": True}, *rest])
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
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(payloads(json_values))
def test_what_is_written_is_read_back(data: dict[str, Any]) -> None:
    event = NewEvent("t", data, subject=None, id=uuid7())
    file = BytesIO()
    write_unwritten(file, [Append(RUN, [event])], {RUN: StreamEnd()})
    file.seek(0)
    unwritten = read_unwritten(file)
    ((read,),) = (append.events for append in unwritten.appends)
    assert (read.id, read.at, read.type, read.data) == (event.id, event.at, "t", event.data)
    assert unwritten.missing == 0


@given(st.binary())
def test_no_bytes_at_all_are_anything_but_a_recovery_file_or_refused(content: bytes) -> None:
    with pytest.raises(LineError):
        read_unwritten(BytesIO(content))
