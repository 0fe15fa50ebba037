"""Retention of a history server: content of old runs is erased, at its start and once a day."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from kindlm.cli.commands.backup import remove_abandoned
from kindlm.cli.console import note, warn
from kindlm.cli.history import forget_erased
from kindlm.recording.purging import erase, runs_before, streams_to_purge, with_news
from kindlm.wording import count
from kindlm_store import EventLog, StoreError

_DAY_S = 24 * 3600
_BY = "retention"


@contextmanager
def retention(log: EventLog, before: Callable[[], str]) -> Iterator[None]:
    """Erase the content of older runs meanwhile; `before` says of which, UTC, ISO 8601."""
    ended = threading.Event()

    def work() -> None:
        while True:
            erase_older(log, before())
            if ended.wait(_DAY_S):
                return

    thread = threading.Thread(target=work, name="retention")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def erase_older(log: EventLog, before: str) -> None:
    """Erase the content of runs that began before a moment; say how much, or why that failed.

    What other runs refer to stays until they are as old.
    """
    try:
        with closing(log.reader()) as db:
            runs = with_news(db, runs_before(db, before).ended)
            if not runs:
                return
            streams = streams_to_purge(db, runs)
        found = log.erasable(streams.chosen, forgotten=streams.forgotten)
        erased = erase(log, found, runs, by=_BY)
        forget_erased(log.path)
        remove_abandoned(log.path.parent)
    except (StoreError, OSError, sqlite3.Error) as error:
        warn(f"Old content was not erased: {error}.", "kindlm tries again tomorrow.")
        return
    what = f"{count(erased.texts, 'text')} of {count(len(runs), 'run')}"
    note(f"Retention erased {what} from before {before[:10]}.")
