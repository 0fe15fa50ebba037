"""Making the suites of a run ready."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from kindlm.recording.serving import _original


def test_the_first_run_of_a_chain_of_replays_is_found_and_a_circle_ends() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE runs (id, mode, source_run)")
        runs = [("a", "replayed", "b"), ("b", "replayed", "a")]
        runs += [("e", "replayed", "d"), ("d", "replayed", "c"), ("c", "live", None)]
        db.executemany("INSERT INTO runs VALUES (?, ?, ?)", runs)
        assert _original(db, "e") == "c"
        assert _original(db, "a") in ("a", "b")
