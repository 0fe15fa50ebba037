"""`kindlm history purge`: what was said is gone for good, what happened stays."""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from kindlm.cli.commands import purge
from kindlm.events.codec import new_event
from kindlm.events.execution_events import ExecutionStarted
from kindlm.events.run import ReviewRecorded
from kindlm.history.search import index_file
from kindlm.recording.purging import erase
from kindlm.reports.pages.execution_page import execution_page
from kindlm.reports.pages.html_document import Links, PageRequest, render
from kindlm.transcript import Message, Role
from kindlm_store import OpenError, stream_lock

SECRET = "jane.roe@example.com"


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    """Two finished runs of the same test; only the first was told an address."""
    for run, user in (("aaaa2222", f"I am {SECRET}."), ("bbbb3333", "Hello!")):
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        writer.execution(user=user, output=f"You said: {user}", assertions=(make.failed(),))
        writer.finish()
    return history


def on_disk(path: Path) -> bytes:
    files = [path, path.with_name(path.name + "-wal")]
    return b"".join(file.read_bytes() for file in files if file.exists())


def texts_of(recorded: Any) -> list[str | None]:
    with closing(recorded.log.reader()) as reader:
        return [row[0] for row in reader.execute("SELECT body FROM contents")]


def purges(recorded: Any) -> list[dict[str, Any]]:
    return [event.data for event in recorded.log.read(types=["contents.purged"])]


def test_a_run_loses_what_it_alone_said(kindlm: Any, recorded: Any) -> None:
    assert SECRET.encode() in on_disk(recorded.path)
    outcome = kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
    assert outcome.code == 0, outcome.err
    assert "used by other runs, and left until these are purged: " in outcome.err
    assert SECRET.encode() not in on_disk(recorded.path)
    assert kindlm("verify", "--db", recorded.path).code == 0
    (purge,) = purges(recorded)
    assert purge["runs"] == ["aaaa2222"]
    assert "matching" not in purge
    assert purge["texts"] == len(purge["refs"]) == texts_of(recorded).count(None) > 0
    shown = kindlm("show", "aaaa", "1", "--db", recorded.path).out
    assert "[erased]" in shown
    assert "You are kind." in shown
    report = json.loads(kindlm("report", "aaaa", "--format", "json", "--db", recorded.path).out)
    assert report["tests"][0]["executions"][0]["output"] == "[erased]"
    other = kindlm("show", "bbbb", "1", "--db", recorded.path).out
    assert "[erased]" not in other


def test_what_is_beside_a_history_goes_though_the_disk_fails_behind_a_purge(
    kindlm: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_file(recorded.path)

    def fails(*given: Any, **options: Any) -> None:
        erase(*given, **options)
        raise OpenError(recorded.path, "cannot be used (disk I/O error)")

    monkeypatch.setattr(purge, "erase", fails)
    index.write_text(SECRET)
    failed = kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
    assert failed.code == 1
    assert "cannot be used (disk I/O error)" in failed.err
    assert not index.exists()
    # Of a purge that was killed before it came to that.
    index.write_text(SECRET)
    again = kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
    assert "nothing to erase" in again.err
    assert not index.exists()


def test_what_a_check_found_stays_unreadable_when_only_its_text_is_erased(
    kindlm: Any, history: Any, make: Any
) -> None:
    output = f"Mail {SECRET} today"
    found = {"source": "output", "start": 5, "end": 5 + len(SECRET), "excerpt": "ja***om"}
    leak = make.failed("pii", "pii", "PII_DETECTED", "1 email.", evidence=[found])
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(user=f"I am {SECRET}", output=output, assertions=(leak,))
    writer.finish()
    history.review("aaaa2222", 1, passed=True, note=f"{SECRET.upper()} is a customer")
    database = ("--db", history.path)

    def told() -> list[str]:
        page = execution_page(history.reader(), PageRequest("aaaa2222-1"))
        assert page is not None
        return [
            kindlm("show", "aaaa", "1", *database).out,
            kindlm("report", "aaaa", "--format", "json", *database).out,
            kindlm("report", "aaaa", "--format", "junit", *database).out,
            kindlm("review", "--agreement", "--format", "json", *database).out,
            kindlm("review", "--agreement", *database).out,
            "".join(render(page, Links())),
        ]

    for text in told():
        assert SECRET not in text.lower()
        assert "is a customer" in text
    assert kindlm("purge", "--matching", "Mail jane", "--yes", *database).code == 0
    for text in told():
        assert SECRET not in text.lower()
        assert "not shown: it may repeat personal data" in " ".join(text.split())
    assert "I am ja" in told()[0]


def test_a_rebuild_gives_the_same_afterwards(kindlm: Any, recorded: Any) -> None:
    kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
    before = kindlm("report", "aaaa", "--format", "json", "--db", recorded.path).out
    assert kindlm("rebuild", "--db", recorded.path).code == 0
    assert kindlm("report", "aaaa", "--format", "json", "--db", recorded.path).out == before


@pytest.mark.parametrize("pattern", [r"(?i)JANE\.ROE@"])
def test_by_pattern_whatever_its_author(kindlm: Any, recorded: Any, pattern: str) -> None:
    outcome = kindlm("purge", "--matching", pattern, "--yes", "--db", recorded.path)
    assert outcome.code == 0
    assert SECRET.encode() not in on_disk(recorded.path)
    (purge,) = purges(recorded)
    assert purge == {"texts": 3, "refs": purge["refs"], "matching": True, "by": purge["by"]}
    assert len(purge["refs"]) == 3
    assert "Hello!" in texts_of(recorded)


@pytest.mark.parametrize("hidden", ['"J\\\\u00fcrgen"', "J\\u00FCrgen"])
def test_a_pattern_finds_what_json_escapes(
    kindlm: Any, history: Any, make: Any, hidden: str
) -> None:
    writer = history.run()
    writer.suite(tests=[make.planned()])
    writer.execution(output=hidden)
    writer.finish()
    kindlm("purge", "--matching", "Jürgen", "--yes", "--db", history.path)
    assert purges(history)[0]["texts"] == 2
    assert hidden not in texts_of(history)


@pytest.mark.parametrize("pattern", ["", "a|"])
def test_a_pattern_of_every_text_erases_nothing(kindlm: Any, recorded: Any, pattern: str) -> None:
    """A variable that is not set in a script must not cost the history."""
    before = texts_of(recorded)
    outcome = kindlm("purge", "--matching", pattern, "-y", "--db", recorded.path)
    assert outcome.code == 1
    assert "would erase every text" in outcome.err
    aged = kindlm("purge", "--older-than", "0d", "--matching", pattern, "-y", "--db", recorded.path)
    assert aged.code == 1
    assert texts_of(recorded) == before


def test_a_purge_by_age_erases_only_older_runs(kindlm: Any, recorded: Any) -> None:
    nothing = kindlm("purge", "--older-than", "90d", "--yes", "--db", recorded.path)
    assert (nothing.code, purges(recorded)) == (0, [])
    assert "nothing to erase" in nothing.err
    assert kindlm("purge", "--older-than", "0d", "--yes", "--db", recorded.path).code == 0
    assert set(texts_of(recorded)) == {None}
    assert purges(recorded)[0]["runs"] == ["aaaa2222", "bbbb3333"]
    assert kindlm("verify", "--db", recorded.path).code == 0


def test_without_anybody_to_ask_nothing_is_erased(kindlm: Any, recorded: Any) -> None:
    outcome = kindlm("purge", "--run", "aaaa", "--db", recorded.path)
    assert outcome.code == 1
    assert "--yes" in outcome.err
    assert (None in texts_of(recorded), purges(recorded)) == (False, [])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "does not say what to erase"),
        (["--run", "aaaa", "--older-than", "1d"], "cannot be combined"),
        (["--older-than", "soon"], "not an age or a date"),
        (["--older-than", "2999-01-01"], "'2999-01-01' is in the future"),
        (["--older-than", "3m"], "--older-than 90d for 3 months"),
        (["--matching", "("], "does not compile"),
        (["--matching", "(x+x+)+y"], "took too long"),
        (["--run", "zzzz"], "no run"),
    ],
)
def test_what_makes_no_sense_erases_nothing(
    kindlm: Any,
    recorded: Any,
    make: Any,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.setattr("kindlm.patterns._PATTERN_S", 0.2)
    writer = recorded.run("cccc4444")
    writer.suite(tests=[make.planned()])
    writer.execution(output="x" * 5_000)
    writer.finish()
    outcome = kindlm("purge", *arguments, "--yes", "--db", recorded.path)
    assert outcome.code == 1
    assert told in outcome.err
    assert None not in texts_of(recorded)


def test_a_run_that_is_going_on_is_left_alone(kindlm: Any, recorded: Any) -> None:
    with stream_lock(recorded.path, "run/aaaa2222"):
        outcome = kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
        assert (outcome.code, None in texts_of(recorded)) == (1, False)
        old = kindlm("purge", "--older-than", "0d", "--yes", "--db", recorded.path)
        assert "being recorded" in old.err
    assert purges(recorded)[0]["runs"] == ["bbbb3333"]


def test_a_run_that_is_resumed_before_the_answer_is_left_alone(
    kindlm: Any, recorded: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = recorded.run("cccc4444")
    stopped.suite(tests=[make.planned()])
    stopped.execution(user=f"I am {SECRET}!")
    stopped.interrupt()
    with ExitStack() as resumed:

        def confirm(_question: str) -> bool:
            resumed.enter_context(stream_lock(recorded.path, "run/cccc4444"))
            return True

        monkeypatch.setattr(purge, "_ask", confirm)
        outcome = kindlm("purge", "--run", "cccc", "--db", recorded.path)
    assert outcome.code == 1
    assert "Nothing was erased" in outcome.err
    assert f"I am {SECRET}!" in texts_of(recorded)


def test_a_purge_of_many_texts_names_each_once(
    kindlm: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm.recording.purging._PART", 2)
    assert kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path).code == 0
    named = [purge["refs"] for purge in purges(recorded)]
    assert {len(refs) for refs in named[:-1]} == {2}
    assert len({*chain(*named)}) == len([*chain(*named)]) == texts_of(recorded).count(None)


def test_that_names_stay_is_said(kindlm: Any, history: Any, make: Any) -> None:
    writer = history.run(label=f"for {SECRET}")
    writer.suite(tests=[make.planned()])
    writer.execution(user=SECRET)
    writer.finish()
    erase = ("purge", "--matching", "jane", "--yes", "--db", history.path)
    first, second = kindlm(*erase), kindlm(*erase)
    assert "1 text erased" in first.err
    assert "There is nothing to erase" in second.err
    for outcome in (first, second):
        assert "Names and labels in events stay: https://" in outcome.err


def test_what_two_runs_share_goes_with_the_second(kindlm: Any, recorded: Any) -> None:
    first = kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
    assert "left until these are purged" in first.err
    assert "You are kind." in texts_of(recorded)
    second = kindlm("purge", "--run", "bbbb", "--yes", "--db", recorded.path)
    assert "left until these are purged" not in second.err
    assert set(texts_of(recorded)) == {None}
    assert b"You are kind." not in on_disk(recorded.path)
    assert kindlm("verify", "--db", recorded.path).code == 0


def test_a_run_that_says_nothing_of_its_own_goes_with_the_others(
    kindlm: Any, history: Any, make: Any
) -> None:
    for run in ("aaaa2222", "bbbb3333"):
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        writer.execution()
        writer.finish()
    first = kindlm("purge", "--run", "aaaa", "--yes", "--db", history.path)
    assert "0 texts erased" in first.err
    again = kindlm("purge", "--run", "aaaa", "--yes", "--db", history.path)
    assert "There is nothing to erase" in again.err
    assert [purge["runs"] for purge in purges(history)] == [["aaaa2222"]]
    kindlm("purge", "--run", "bbbb", "--yes", "--db", history.path)
    assert set(texts_of(history)) == {None}


def test_one_that_lost_only_what_matched_keeps_the_rest(kindlm: Any, recorded: Any) -> None:
    matching = ("--matching", "jane", "--yes")
    kindlm("purge", "--run", "aaaa", *matching, "--db", recorded.path)
    kindlm("purge", "--run", "bbbb", "--yes", "--db", recorded.path)
    assert "You are kind." in texts_of(recorded)


def test_what_a_run_said_since_it_was_purged_stays(kindlm: Any, history: Any, make: Any) -> None:
    stopped = history.run("aaaa2222")
    stopped.suite(tests=[make.planned(repeat=2)])
    stopped.execution()
    stopped.interrupt()
    other = history.run("bbbb3333")
    other.suite(tests=[make.planned()])
    other.execution(output="Bye.")
    other.finish()
    kindlm("purge", "--run", "aaaa", "--yes", "--db", history.path)
    said = Message(Role.SYSTEM, "You are kind.")
    begun = ExecutionStarted(
        suite=0, test="greets", target="gpt", repeat=2, attempt=1, messages=[said]
    )
    history.log.append("run/aaaa2222", [new_event(begun, subject="2.1")])
    kindlm("purge", "--run", "bbbb", "--yes", "--db", history.path)
    assert {None, "You are kind."} < {*texts_of(history)}
    kindlm("purge", "--run", "aaaa", "--yes", "--db", history.path)
    assert set(texts_of(history)) == {None}


@pytest.mark.parametrize("order", [("aaaa", "bbbb"), ("bbbb", "aaaa")])
def test_notes_on_several_runs_go_with_the_last_of_them(
    kindlm: Any, recorded: Any, order: tuple[str, str]
) -> None:
    notes = [
        new_event(ReviewRecorded(run=run, execution=1, passed=True, note="Why?", by="me"))
        for run in ("aaaa2222", "bbbb3333")
    ]
    recorded.log.append("journal/r", notes)
    kindlm("purge", "--run", order[0], "--yes", "--db", recorded.path)
    assert "Why?" in texts_of(recorded)
    kindlm("purge", "--run", order[1], "--yes", "--db", recorded.path)
    assert set(texts_of(recorded)) == {None}


def test_notes_on_purged_runs_keep_no_text(kindlm: Any, recorded: Any, make: Any) -> None:
    """A journal that went with its last run does not keep what another one says, too."""
    other = recorded.run("cccc4444")
    other.suite(tests=[make.planned()])
    other.execution()
    other.finish()
    for journal, runs in (("both", ("aaaa2222", "bbbb3333")), ("other", ("cccc4444",))):
        for run in runs:
            note = ReviewRecorded(run=run, execution=1, passed=True, note=SECRET, by="me")
            recorded.log.append(f"journal/{journal}", [new_event(note)])
    for run in ("aaaa", "bbbb"):
        kindlm("purge", "--run", run, "--yes", "--db", recorded.path)
    assert SECRET in texts_of(recorded)
    kindlm("purge", "--run", "cccc", "--yes", "--db", recorded.path)
    assert set(texts_of(recorded)) == {None}


@pytest.mark.parametrize("command", ["merge", "import"])
def test_an_older_copy_brings_nothing_back(
    kindlm: Any, recorded: Any, here: Path, command: str
) -> None:
    if command == "merge":
        older = [here / "older.db"]
        kindlm("backup", older[0], "--db", recorded.path)
    else:
        older = [here / f"{run}.jsonl" for run in ("aaaa", "bbbb")]
        for file in older:
            kindlm("export", file.stem, "-o", file, "--db", recorded.path)
    kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
    kindlm("purge", "--run", "bbbb", "--yes", "--db", recorded.path)
    for file in older:
        assert kindlm(command, file, "--db", recorded.path).code == 0
    assert set(texts_of(recorded)) == {None}
    assert SECRET.encode() not in on_disk(recorded.path)
    assert kindlm("verify", "--db", recorded.path).code == 0


def test_a_baseline_among_them_is_reported(kindlm: Any, recorded: Any) -> None:
    kindlm("baseline", "set", "aaaa", "--db", recorded.path)
    outcome = kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
    assert "Some of these runs are baselines: aaaa2222 of support" in outcome.err
    compared = kindlm("baseline", "compare", "bbbb", "--db", recorded.path)
    assert compared.code == 1
    assert "purged" in compared.err


def test_no_history_and_an_empty_one(kindlm: Any, recorded: Any, here: Path) -> None:
    missing = kindlm("purge", "--run", "latest", "--yes", "--db", here / "none.db")
    assert (missing.code, (here / "none.db").exists()) == (1, False)
    assert "No runs are recorded yet" in missing.err
    empty = here / "empty.db"
    sqlite3.connect(empty).close()
    assert kindlm("purge", "--run", "latest", "--yes", "--db", empty).code == 1
