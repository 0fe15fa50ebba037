"""`kindlm history export`, `import` and `merge`: runs move whole or not at all."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from recorded_history import History, Make

from examples import examples
from kindlm.events.codec import new_event
from kindlm.events.run import (
    ContentsPurged,
    RunInterrupted,
    RunLabelled,
    RunResumed,
    RunSealed,
    RunStarted,
)
from kindlm.projections import PROJECTIONS
from kindlm.recording.export_file import LineError, read_export
from kindlm_store import EventLog, HeadOf, stream_lock

TABLES = [table for projection in PROJECTIONS for table in projection.tables]


def record_two(history: History) -> None:
    """Record a finished run, and one that was interrupted."""
    finished = history.run("aaaa2222")
    finished.suite(tests=[Make.planned()])
    finished.execution(
        user="naïve 🦜 \x1b[31m", assertions=(Make.failed(),), tools=(("look", {"n": 1.5}, None),)
    )
    finished.paced()
    finished.finish()
    stopped = history.run("bbbb3333", source_run="aaaa2222", mode="rescored")
    stopped.suite(tests=[Make.planned(repeat=2)])
    stopped.execution()
    stopped.interrupt()
    labelled = RunLabelled(run="aaaa2222", label="old", by="me")
    history.log.append("journal/l", [new_event(labelled)])


@pytest.fixture
def other(tmp_path: Path) -> Iterator[History]:
    """The history of another machine: a finished run, and one that was interrupted."""
    opened = History(tmp_path / "other.db", write=record_two)
    yield opened
    opened.close()


def facts(path: Path) -> Any:
    """All that a history says, but for the order in which it arrived, and all its tables."""
    with closing(sqlite3.connect(path)) as db:
        queries = [
            "SELECT id, stream, version, type, schema, at, subject, data, hash FROM event_log",
            "SELECT ref, salt, digest, body FROM contents",
            "SELECT name, version, head, sealed FROM streams",
            *(f"SELECT * FROM {table}" for table in TABLES),
        ]
        return [sorted(db.execute(query).fetchall(), key=repr) for query in queries]


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def write_lines(file: Path, lines: list[Any]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def exported(kindlm: Any, other: Any, here: Path) -> Path:
    file = here / "run.jsonl"
    outcome = kindlm("export", "bbbb", "-o", file, "--db", other.path)
    assert outcome.code == 0, outcome.err
    return file


def test_a_run_comes_with_its_source_and_what_is_noted_of_them(
    kindlm: Any, other: Any, exported: Path, here: Path
) -> None:
    assert exported.stat().st_mode & 0o777 == 0o600
    header = lines_of(exported)[0]
    assert header["run"] == "bbbb3333"
    assert list(header["streams"]) == [
        "run/aaaa2222", "run/bbbb3333", "journal/j", "journal/l",
    ]  # fmt: skip
    outcome = kindlm("import", exported, "--db", here / "new.db")
    assert outcome.code == 0, outcome.err
    assert facts(here / "new.db") == facts(other.path)
    before = facts(here / "new.db")
    again = kindlm("import", exported, "--db", here / "new.db")
    assert "0 events imported" in again.err
    assert facts(here / "new.db") == before
    assert kindlm("rebuild", "--db", here / "new.db").code == 0
    assert facts(here / "new.db") == before
    assert kindlm("verify", "--db", here / "new.db").code == 0


def test_the_same_run_is_the_same_bytes(kindlm: Any, other: Any, exported: Path) -> None:
    outcome = kindlm("export", "bbbb", "--db", other.path)
    assert outcome.out.encode() == exported.read_bytes()


def test_an_import_goes_on_where_an_older_one_ended(
    kindlm: Any, other: Any, exported: Path, here: Path
) -> None:
    kindlm("import", exported, "--db", here / "new.db")
    more = [RunResumed(by="x:1", planned=2), RunInterrupted(reason="again")]
    other.log.append("run/bbbb3333", [new_event(event) for event in more])
    newer = here / "newer.jsonl"
    kindlm("export", "bbbb", "-o", newer, "--db", other.path)
    assert "2 events imported" in kindlm("import", newer, "--db", here / "new.db").err
    assert "0 events imported" in kindlm("import", exported, "--db", here / "new.db").err
    assert facts(here / "new.db") == facts(other.path)


def event(lines: list[Any], number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = [line["event"] for line in lines[1:] if "event" in line][number]
    return found


def text(lines: list[Any]) -> dict[str, Any]:
    return next(line["text"] for line in lines[1:] if "text" in line and "body" in line["text"])


CHANGES: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "data": (lambda lines: event(lines)["data"].update(planned=9), "does not match its hash"),
    "time": (lambda lines: event(lines).update(at="2020-01-01T00:00:00.000000Z"), "its hash"),
    "no time": (lambda lines: event(lines).update(at="now"), "stored form"),
    "no day": (lambda lines: event(lines).update(at="2026-99-01T00:00:00.000000Z"), "stored form"),
    "the last time": (
        lambda lines: event(lines).update(at="9999-12-31T23:59:59.999999Z"),
        "stored form",
    ),
    "the first time": (
        lambda lines: event(lines).update(at="0001-01-01T00:00:00.000000Z"),
        "stored form",
    ),
    "hash": (lambda lines: event(lines).update(hash="sha256:" + "0" * 64), "its hash"),
    "type": (lambda lines: event(lines).update(type="run.resumed"), "its hash"),
    "id": (lambda lines: event(lines, 1).update(id=event(lines)["id"]), "id of another event"),
    "body": (lambda lines: text(lines).update(body="another"), "was changed"),
    "salt": (lambda lines: text(lines).update(salt="0" * 32), "was changed"),
    "no salt": (lambda lines: text(lines).pop("salt"), "as kindlm writes it"),
    "no texts": (
        lambda lines: lines.__setitem__(slice(None), [ln for ln in lines if "text" not in ln]),
        "is missing",
    ),
    "head": (
        lambda lines: lines[0]["streams"]["run/aaaa2222"].update(head="sha256:" + "1" * 64),
        "does not end where",
    ),
    "seal": (lambda lines: lines[0]["streams"]["run/aaaa2222"].update(sealed=False), "its hash"),
    "fewer": (
        lambda lines: lines[0]["streams"]["run/aaaa2222"].update(events=2), "not the next event",
    ),
    "cut off": (lambda lines: lines.pop(), "is the last one"),
    "an event gone": (lambda lines: lines.remove({"event": event(lines, 2)}), "next event"),
    "another stream": (lambda lines: event(lines).update(stream="run/x"), "next event"),
    "no stream": (lambda lines: event(lines).update(stream="x/../y"), "next event of x/../y"),
    "neither": (lambda lines: lines.insert(1, {}), "neither"),
    "both": (lambda lines: lines[-1].update(text=text(lines)), "neither"),
    "more": (lambda lines: lines[-1]["event"].update(more=1), "as kindlm writes it"),
    "version": (lambda lines: lines[0].update(version=2), "version 2"),
}  # fmt: skip


def test_what_was_changed_is_refused_as_a_whole_whether_the_run_is_known_or_not(
    kindlm: Any, history: Any, exported: Path, here: Path
) -> None:
    assert kindlm("import", exported, "--db", here / "known.db").code == 0
    before = facts(here / "known.db")
    for name, (change, told) in CHANGES.items():
        lines = lines_of(exported)
        change(lines)
        write_lines(here / "changed.jsonl", lines)
        outcome = kindlm("import", here / "changed.jsonl", "--db", history.path)
        assert (outcome.code, told in outcome.err) == (1, True), (name, outcome.err)
        known = kindlm("import", here / "changed.jsonl", "--db", here / "known.db")
        assert known.code == 1, name
        assert "imported: " in known.err or "Line " in known.err, name
        if name == "data":
            assert "run aaaa2222: event 1 does not match its hash" in known.err
        assert "itself failed" not in outcome.err + known.err
    assert list(history.log.read()) == []
    assert facts(here / "known.db") == before


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.integers(0, 40), byte=st.integers(0, 400), value=st.integers(0, 255))
def test_whatever_byte_is_changed_nothing_breaks(
    exported: Path, line: int, byte: int, value: int
) -> None:
    lines = exported.read_bytes().splitlines(keepends=True)
    chosen = bytearray(lines[line % len(lines)])
    chosen[byte % len(chosen)] = value
    lines[line % len(lines)] = bytes(chosen)
    with suppress(LineError), read_export(BytesIO(b"".join(lines))):
        pass


def test_a_forged_run_that_no_table_can_be_computed_from_is_refused(
    kindlm: Any, history: Any, here: Path
) -> None:
    forged = here / "forged.db"
    with EventLog.open(forged) as log, EventLog.open(forged) as again:
        started = new_event(_started())
        log.append("run/x", [started])
        again.append("run/x", [new_event(_started())])
    file = here / "forged.jsonl"
    with EventLog.open(forged, projections=PROJECTIONS):
        pass
    with closing(sqlite3.connect(forged)) as db:
        db.execute("UPDATE projections SET error = NULL")
        db.execute("INSERT OR IGNORE INTO runs (id, started_at) VALUES ('x', '2026')")
        db.commit()
    assert kindlm("export", "x", "-o", file, "--db", forged).code == 0
    for command in (("import", file), ("merge", forged)):
        outcome = kindlm(*command, "--db", history.path)
        assert outcome.code == 1
        assert "cannot be computed" in outcome.err
    assert kindlm("runs", "--db", history.path).code == 0
    assert history.log.projection_errors() == {}


def _started() -> RunStarted:
    return RunStarted(project="shop", planned=1, versions={"kindlm": "1"})


def test_an_import_erases_nothing(kindlm: Any, other: Any, exported: Path, here: Path) -> None:
    kindlm("import", exported, "--db", here / "new.db")
    before = facts(here / "new.db")
    kindlm("purge", "--run", "bbbb", "--yes", "--db", other.path)
    kindlm("purge", "--matching", "naïve", "--yes", "--db", other.path)
    kindlm("export", "bbbb", "-o", exported, "--db", other.path)
    outcome = kindlm("import", exported, "--db", here / "new.db")
    assert outcome.code == 0
    assert facts(here / "new.db")[1] == before[1]


def test_a_copy_without_texts_takes_none_away_and_is_filled_by_one_that_has_them(
    kindlm: Any, other: Any, exported: Path, here: Path
) -> None:
    lines = lines_of(exported)
    for line in lines:
        if "text" in line:
            line["text"] = {"ref": line["text"]["ref"]}
    write_lines(here / "bare.jsonl", lines)
    bare = ("--db", here / "bare.db")
    outcome = kindlm("import", here / "bare.jsonl", *bare)
    assert (outcome.code, "are not in it" in outcome.err) == (0, True)
    verified = kindlm("verify", *bare)
    assert (verified.code, " withheld" in verified.out) == (0, True)
    shown = kindlm("show", "aaaa", "1", *bare).out
    assert ("[withheld]" in shown, "[erased]" in shown) == (True, False)
    assert kindlm("report", "aaaa", "--format", "html", *bare).code == 0
    before = facts(other.path)
    for merged in (here / "bare.jsonl", here / "bare.db"):
        command = "import" if merged.suffix == ".jsonl" else "merge"
        outcome = kindlm(command, merged, "--db", other.path)
        assert (outcome.code, "erased" in outcome.err) == (0, False)
        assert facts(other.path) == before
    # What is exported from there says no more than it knows.
    kindlm("export", "bbbb", "-o", here / "again.jsonl", *bare)
    assert lines_of(here / "again.jsonl") == lines
    outcome = kindlm("import", exported, *bare)
    assert (outcome.code, "withheld texts filled in" in outcome.err) == (0, True)
    assert facts(here / "bare.db") == before
    assert "[withheld]" not in kindlm("show", "aaaa", "1", *bare).out


def test_what_was_purged_does_not_come_back(
    kindlm: Any, other: Any, exported: Path, here: Path
) -> None:
    kindlm("backup", here / "whole.db", "--db", other.path)
    kindlm("purge", "--run", "bbbb", "--run", "aaaa", "--yes", "--db", other.path)
    for command in (("import", exported), ("merge", here / "whole.db")):
        outcome = kindlm(*command, "--db", other.path)
        assert (outcome.code, "filled in" in outcome.err) == (0, False)
        verified = kindlm("verify", "--db", other.path)
        assert (verified.code, "0 texts" in verified.out) == (0, True)


def test_a_purge_of_a_kindlm_that_named_no_texts_covers_all_that_are_empty(
    kindlm: Any, other: Any, here: Path
) -> None:
    kindlm("backup", here / "whole.db", "--db", other.path)
    kindlm("backup", here / "lost.db", "--db", other.path)
    purged = ContentsPurged(texts=9, runs=["aaaa2222"], by="me")
    with closing(sqlite3.connect(other.path)) as db, db:
        db.execute("UPDATE contents SET salt = NULL, digest = NULL, body = NULL")
    other.log.append("journal/p", [new_event(purged)])
    with closing(sqlite3.connect(here / "lost.db")) as db, db:
        db.execute("UPDATE contents SET salt = NULL, digest = NULL, body = NULL")
    assert kindlm("verify", "--db", here / "lost.db").code == 1
    # What no purge covers is lost, not erased: it takes nothing away, and comes into a new history.
    outcome = kindlm("merge", here / "lost.db", "--db", here / "whole.db")
    assert (outcome.code, "erased" in outcome.err) == (0, False)
    outcome = kindlm("merge", here / "lost.db", here / "whole.db", "--db", here / "new.db")
    assert (outcome.code, "filled in" in outcome.err) == (0, True)
    assert facts(here / "new.db") == facts(here / "whole.db")
    outcome = kindlm("merge", other.path, "--db", here / "whole.db")
    assert (outcome.code, "erased, as there" in outcome.err) == (0, True)


def test_a_merge_erases_what_was_erased_there(kindlm: Any, other: Any, here: Path) -> None:
    kindlm("merge", other.path, "--db", here / "new.db")
    kindlm("purge", "--matching", "naïve", "--yes", "--db", other.path)
    outcome = kindlm("merge", other.path, "--db", here / "new.db")
    assert outcome.code == 0
    assert "erased, as there" in outcome.err
    assert facts(here / "new.db") == facts(other.path)
    assert "naïve".encode() not in (here / "new.db").read_bytes()


def _purge_event(path: Path, key: str, value: Any) -> None:
    """Change a member of the purges of a history as somebody else might, without their hashes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DROP TRIGGER events_update")
        changed = db.execute(
            "UPDATE events SET data = json_set(data, '$.' || ?, json(?)) WHERE type ="
            " (SELECT id FROM event_types WHERE name = 'contents.purged')",
            (key, json.dumps(value)),
        )
        assert changed.rowcount == 1


@pytest.mark.parametrize(("key", "value"), [("by", "x"), ("runs", 5), ("refs", 5)])
def test_a_purge_that_is_refused_erases_nothing(
    kindlm: Any, other: Any, here: Path, key: str, value: Any
) -> None:
    kindlm("merge", other.path, "--db", here / "new.db")
    before = facts(here / "new.db")
    kindlm("purge", "--matching", "naïve", "--yes", "--db", other.path)
    other.close()
    _purge_event(other.path, key, value)
    outcome = kindlm("merge", other.path, "--db", here / "new.db")
    assert outcome.code == 1
    assert "itself failed" not in outcome.err
    assert "Nothing of journal" in outcome.err
    assert facts(here / "new.db") == before
    assert kindlm("verify", "--db", here / "new.db").code == 0
    assert "itself failed" not in kindlm("verify", "--db", other.path).err


def test_histories_of_several_machines_become_one(
    kindlm: Any, history: Any, other: Any, make: Any
) -> None:
    mine = history.run("cccc4444")
    mine.suite(tests=[make.planned()])
    mine.execution()
    mine.finish()
    # Both have a journal of this name, and so a stream that is not the same: only in tests.
    with closing(sqlite3.connect(other.path, isolation_level=None)) as db:
        assert db.execute("SELECT 1 FROM streams WHERE name = 'journal/j'").fetchone()
    outcome = kindlm("merge", other.path, "--db", history.path)
    assert outcome.code == 1
    assert "Nothing of journal j was merged" in outcome.err
    assert "diverged" in outcome.err
    listed = json.loads(kindlm("runs", "--format", "json", "--db", history.path).out)
    assert {run["id"] for run in listed.get("runs", listed)} == {
        "aaaa2222", "bbbb3333", "cccc4444",
    }  # fmt: skip
    assert kindlm("verify", "--db", history.path).code == 0


def test_a_run_that_was_resumed_in_two_copies_is_reported(
    kindlm: Any, other: Any, here: Path
) -> None:
    copy = here / "copy.db"
    kindlm("backup", copy, "--db", other.path)
    for path, reason in ((other.path, "here"), (copy, "there")):
        with EventLog.open(path, projections=PROJECTIONS) as log:
            log.append("run/bbbb3333", [new_event(RunInterrupted(reason=reason))], seal=True)
            sealed = RunSealed(run="bbbb3333", head=HeadOf("run/bbbb3333"))
            log.append(f"journal/{reason}", [new_event(sealed)])
    before = facts(other.path)
    outcome = kindlm("merge", copy, "--db", other.path)
    assert outcome.code == 1
    assert "run bbbb3333" in outcome.err
    assert "kindlm show bbbb3333 --db" in outcome.err
    assert "journal" not in outcome.err
    assert facts(other.path) == before


def test_a_run_that_is_going_on_there_is_left_out(kindlm: Any, other: Any, here: Path) -> None:
    with stream_lock(other.path, "run/bbbb3333"):
        outcome = kindlm("merge", other.path, "--db", here / "new.db")
        assert outcome.code == 0
        assert "run bbbb3333" in outcome.err
        assert "Merge it again" in outcome.err
    assert kindlm("merge", other.path, "--db", here / "new.db").code == 0
    assert facts(here / "new.db") == facts(other.path)


def test_what_cannot_be_merged_stops_all_of_it(kindlm: Any, other: Any, here: Path) -> None:
    newer = here / "newer.db"
    kindlm("backup", newer, "--db", other.path)
    with closing(sqlite3.connect(newer, isolation_level=None)) as db:
        db.execute("PRAGMA user_version = 999")
    bytes_before = newer.read_bytes()
    (here / "text.db").write_text("hello " * 1000)
    for file, told in ((newer, "Update kindlm"), (here / "text.db", "cannot be opened"),
                       (here / "none.db", "no file"), (here, "cannot be opened")):  # fmt: skip
        outcome = kindlm("merge", other.path, file, "--db", here / "new.db")
        assert outcome.code == 1
        assert told in outcome.err
        assert "itself failed" not in outcome.err
    assert newer.read_bytes() == bytes_before
    assert not (here / "new.db").exists()
    itself = kindlm("merge", other.path, "--db", other.path)
    assert itself.code == 0
    assert "0 events merged" in itself.err
    (here / "empty.db").touch()
    assert kindlm("merge", here / "empty.db", "--db", here / "new.db").code == 0


def test_shards_merged_in_any_order_are_the_one_history(kindlm: Any, make: Any, here: Path) -> None:
    pieces = []
    for number in range(1, 4):
        shard = History(here / f"{number}.db")
        writer = shard.run(f"run{number}", group="g", shard=f"{number}/3")
        writer.suite(tests=[make.planned(f"t{number}")])
        writer.execution(f"t{number}", output="the same for all", assertions=(make.failed(),))
        writer._record()
        copy = here / f"{number}-early.db"
        kindlm("backup", copy, "--db", shard.path)
        shard.log.append(
            f"journal/{number}",
            [new_event(RunLabelled(run="run1", label=f"by {number}", by="me"))],
        )
        shard.close()
        pieces += [copy, here / f"{number}.db"]
    merged = []
    for attempt in range(2):
        order = [*pieces, *pieces[:2]]
        random.Random(attempt).shuffle(order)
        target = here / f"merged-{attempt}.db"
        for file in order:
            assert kindlm("merge", file, "--db", target).code == 0
        merged.append(facts(target))
        assert kindlm("rebuild", "--db", target).code == 0
        merged.append(facts(target))
        assert kindlm("verify", "--db", target).code == 0
    assert all(each == merged[0] for each in merged)
    assert "by 3" in kindlm("runs", "--db", target).out


def test_an_export_never_takes_the_place_of_the_history(
    kindlm: Any, other: Any, here: Path
) -> None:
    before = facts(other.path)
    assert kindlm("export", "-o", other.path, "--db", other.path).code == 1
    assert facts(other.path) == before
    (here / "folder").mkdir()
    for output, why in (("folder", "Is a directory"), ("x" * 300, "File name too long")):
        outcome = kindlm("export", "-o", here / output, "--db", other.path)
        assert outcome.code == 1
        assert outcome.err.startswith(f"✗ {why}: '{here}")
    assert not list(here.glob(".*.part"))


def test_an_export_leaves_links_pipes_and_devices_what_they_are(
    kindlm: Any, other: Any, exported: Path, here: Path
) -> None:
    written = exported.read_bytes()
    target, link, pipe = here / "deep" / "target.jsonl", here / "link", here / "pipe"
    link.symlink_to(target)
    os.mkfifo(pipe)
    assert kindlm("export", "bbbb", "-o", link, "--db", other.path).code == 0
    assert link.is_symlink()
    assert target.read_bytes() == written
    with ThreadPoolExecutor(1) as reader:
        received = reader.submit(pipe.read_bytes)
        assert kindlm("export", "bbbb", "-o", pipe, "--db", other.path).code == 0
        assert received.result() == written
    assert pipe.is_fifo()
    full = here / "full"
    full.symlink_to("/dev/full")
    outcome = kindlm("export", "bbbb", "-o", full, "--db", other.path)
    assert outcome.code == 1
    assert "No space left on device" in outcome.err
    assert full.is_char_device()
    assert kindlm("export", "bbbb", "-o", "-", "--db", other.path).out.encode() == written
    assert kindlm("export", "bbbb", "-o", target, "--db", other.path).code == 0
    assert not list(here.rglob(".*.part"))


def test_an_export_comes_in_from_a_pipe(
    kindlm: Any, exported: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with exported.open("rb") as piped:
        monkeypatch.setattr("sys.stdin", TextIOWrapper(piped))
        outcome = kindlm("import", "-", "--db", here / "in.db")
    assert outcome.code == 0, outcome.err
    pipe = here / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(pipe.write_bytes, exported.read_bytes())
        again = kindlm("import", pipe, "--db", here / "pipe.db")
        written.result()
    assert again.code == 0, again.err
    assert facts(here / "pipe.db") == facts(here / "in.db")


def test_a_refused_import_leaves_no_run_behind(kindlm: Any, exported: Path, here: Path) -> None:
    lines = lines_of(exported)
    event = next(line["event"] for line in lines if "event" in line)
    event["hash"] = "sha256:" + "0" * 64
    write_lines(exported, lines)
    outcome = kindlm("import", exported, "--db", here / "new" / "new.db")
    assert outcome.code == 1
    assert "Nothing of" in outcome.err
    assert kindlm("runs", "--db", here / "new" / "new.db").out == ""


def test_an_export_holds_the_repeats_that_were_added_to_the_run(
    kindlm: Any, other: Any, make: Any, here: Path
) -> None:
    added = other.run("cccc4444", source_run="aaaa2222", mode="settled")
    added.suite(tests=[make.planned()])
    added.execution(repeat=2)
    added.finish()
    told = kindlm("export", "aaaa", "-o", here / "a.jsonl", "--db", other.path).err
    assert told.startswith("cccc4444, aaaa2222: ")
    assert kindlm("import", here / "a.jsonl", "--db", here / "new.db").code == 0
    assert "cccc4444" in kindlm("runs", "--db", here / "new.db").out


def test_later_events_alone_go_into_a_history_that_has_the_others(
    kindlm: Any, other: Any, exported: Path, here: Path
) -> None:
    more = [RunResumed(by="x:1", planned=2), RunInterrupted(reason="again")]
    other.log.append("run/bbbb3333", [new_event(event) for event in more])
    versions = [each.version for each in other.log.read(stream="run/bbbb3333")]
    last = versions[-1]
    later = here / "later.jsonl"
    outcome = kindlm("export", "bbbb", "--after", last - 2, "-o", later, "--db", other.path)
    assert outcome.code == 0, outcome.err
    assert outcome.err.endswith(f"use kindlm history import {later}\n")
    stream = lines_of(later)[0]["streams"]["run/bbbb3333"]
    assert (stream["events"], stream["after"]) == (last, last - 2)

    refused = kindlm("import", later, "--db", here / "new.db")
    assert refused.code == 1
    assert f"run bbbb3333: its events up to number {last - 2} are not in this history" in " ".join(
        refused.err.split()
    )
    kindlm("import", exported, "--db", here / "new.db")
    assert "2 events imported" in kindlm("import", later, "--db", here / "new.db").err
    assert facts(here / "new.db") == facts(other.path)
    assert "0 events imported" in kindlm("import", later, "--db", here / "new.db").err

    whole = kindlm("export", "bbbb", "--after", 0, "--db", other.path).out
    assert "after" not in json.loads(whole.splitlines()[0])["streams"]["run/bbbb3333"]
    too_far = kindlm("export", "bbbb", "--after", last + 1, "--db", other.path)
    assert (too_far.code, f"has {last} events" in " ".join(too_far.err.split())) == (1, True)
    both = kindlm("export", "bbbb", "--after", 1, "--format", "otlp", "--db", other.path)
    assert (both.code, "--after" in both.err) == (1, True)


def test_later_events_of_a_run_that_went_on_apart_are_refused(
    kindlm: Any, other: Any, exported: Path, here: Path
) -> None:
    kindlm("import", exported, "--db", here / "new.db")
    with EventLog.open(here / "new.db", projections=PROJECTIONS) as log:
        log.append("run/bbbb3333", [new_event(RunResumed(by="here", planned=2))])
    more = [RunResumed(by="there", planned=2), RunInterrupted(reason="again")]
    other.log.append("run/bbbb3333", [new_event(event) for event in more])
    last = [each.version for each in other.log.read(stream="run/bbbb3333")][-1]
    later = here / "later.jsonl"
    for after in (last - 1, last - 2):
        kindlm("export", "bbbb", "--after", after, "-o", later, "--db", other.path)
        outcome = kindlm("import", later, "--db", here / "new.db")
        assert outcome.code == 1
        assert "run bbbb3333: it diverged" in " ".join(outcome.err.split())
        assert f"event {last - 1}" in " ".join(outcome.err.split())
