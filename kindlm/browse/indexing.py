"""Bringing the search index up to date, in a thread, when somebody searches."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kindlm.history.search import Progress, catch_up, is_damage, progress_of, remove_index
from kindlm_store import OpenError, open_reader

__all__ = ["Indexing", "brought_up_to_date"]

_WAIT_S = 0.3
"""So long a page waits for the index: what a run added meanwhile takes less."""

_PAUSE_S = 0.05
"""Between two steps, for others that wait for their turn, such as whoever erases texts."""


@dataclass(frozen=True, slots=True)
class Indexing:
    """How far the index is; `problem` says why it can not be brought up to date."""

    progress: Progress
    problem: str | None


class _Worker:
    """Indexes one history until it is up to date."""

    def __init__(self, history: Path) -> None:
        self.problem: str | None = None
        self._history = history
        # A daemon: who ends the server does not wait, and a step that is cut off is undone.
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def at_work(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join(_WAIT_S)

    def _work(self) -> None:
        try:
            with closing(open_reader(self._history)) as db:
                while not catch_up(db, self._history).current:
                    time.sleep(_PAUSE_S)
        except TimeoutError:
            # Another process is at it: how far that is, is seen by whoever asks next.
            return
        except (OSError, OpenError, sqlite3.Error) as error:
            self.problem = _words(error)
            if isinstance(error, sqlite3.Error) and is_damage(error):
                # Whoever asks next finds none, and makes it anew.
                remove_index(self._history)


_workers: dict[Path, _Worker] = {}
_lock = threading.Lock()


def brought_up_to_date(db: sqlite3.Connection, history: Path) -> Indexing:
    """Return how far the index is, after a moment of bringing it up to date if it is behind."""
    progress = progress_of(db, history)
    if progress.current:
        return Indexing(progress, None)
    with _lock:
        worker = _workers.get(history)
        if worker is None or not worker.at_work:
            worker = _workers[history] = _Worker(history)
    worker.wait()
    return Indexing(progress_of(db, history), None if worker.at_work else worker.problem)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
