"""Which streams go with a run that is purged, and which keep no text any more."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

from kindlm.events.codec import new_event
from kindlm.events.run import ContentsPurged, ReviewRecorded
from kindlm.recording.purging import streams_to_purge, with_news


def record(history: Any, make: Any, *runs: str) -> None:
    for run in runs:
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        writer.execution()
        writer.finish()


def review(history: Any, journal: str, *runs: str) -> None:
    payloads = [ReviewRecorded(run=run, execution=1, passed=True, by="me") for run in runs]
    history.log.append(f"journal/{journal}", [new_event(payload) for payload in payloads])


def purge(history: Any, *runs: str, matching: bool = False) -> None:
    payload = ContentsPurged(texts=1, runs=list(runs), matching=matching, by="me")
    history.log.append(f"journal/purge of {runs}", [new_event(payload)])


def test_news_is_a_run_that_was_not_purged(history: Any, make: Any) -> None:
    record(history, make, "a", "b")
    purge(history, "a")
    db = history.reader()
    assert (with_news(db, ["a"]), with_news(db, ["a", "b"])) == ([], ["b"])
    review(history, "later", "a")
    assert streams_to_purge(db, ["b"]) == ["run/b"]


def test_news_is_what_came_after_the_last_purge(history: Any, make: Any) -> None:
    stopped = history.run("a")
    stopped.suite(tests=[make.planned(repeat=2)])
    stopped.execution()
    review(history, "notes", "a")
    db = history.reader()
    for is_news in (partial(review, history, "notes", "a"), stopped.interrupt):
        purge(history, "a")
        assert with_news(db, ["a"]) == []
        is_news()
        assert with_news(db, ["a"]) == ["a"]


def test_many_runs_are_asked_about_as_one_is(history: Any, make: Any) -> None:
    for number in range(5):
        record(history, make, f"r{number}")
        review(history, f"j{number}", f"r{number}")
    db = history.reader()
    one = _queries(db, ["r0"])
    assert one == _queries(db, [f"r{number}" for number in range(5)]) > 0


def _queries(db: sqlite3.Connection, runs: list[str]) -> int:
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    streams_to_purge(db, runs)
    db.set_trace_callback(None)
    return len(asked)
