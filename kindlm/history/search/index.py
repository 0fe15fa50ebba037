"""The file of the index: what is in it, how far it is, and how it catches up with the history.

Texts are numbered so that the newest has the least number: full-text search finds them in that
order without sorting. One that is said again is numbered anew. The file has the words of texts and
where they stand, never the texts themselves, which are read from the history.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kindlm.history.search.texts import (
    Finished,
    Kind,
    Said,
    newest_finished,
    read_finished,
    readable,
    texts_of,
)
from kindlm_store import LockHeldError, StreamLock

__all__ = [
    "CHUNK",
    "COLUMNS",
    "TOKENIZER",
    "Progress",
    "catch_up",
    "index_file",
    "is_damage",
    "open_index",
    "progress_of",
    "remove_index",
]

CHUNK = 5_000
"""Executions that are indexed at once: about a second."""

COLUMNS = tuple(kind.value for kind in Kind)
TOKENIZER = "unicode61 remove_diacritics 2"

_LOCK = "search index"
_VERSION = 1
"""To be raised when what is indexed, or how, changes."""

_PATIENCE_S = 60.0
_PAUSE_S = 0.02
_BUSY_S = 10.0

_TABLES = f"""
PRAGMA page_size = 4096;
PRAGMA journal_mode = DELETE;
BEGIN;
CREATE TABLE state (seq INTEGER, event TEXT, purges INTEGER);
CREATE TABLE texts (
  id INTEGER PRIMARY KEY, kind TEXT, ref TEXT, execution TEXT, executions INTEGER,
  UNIQUE (ref, kind)
);
CREATE VIRTUAL TABLE words USING fts5(
  {", ".join(COLUMNS)}, content='', columnsize=0, tokenize='{TOKENIZER}'
);
INSERT INTO words(words, rank) VALUES ('hashsize', 16777216);
PRAGMA user_version = {_VERSION};
COMMIT;
"""  # noqa: S608

_PURGES = "SELECT count(*) FROM event_log WHERE type = 'contents.purged'"
_EVENT = "SELECT id FROM event_log WHERE seq = ?"
_BODY = "SELECT body FROM contents WHERE ref = ?"
_KNOWN = "SELECT id, executions FROM texts WHERE ref = ? AND kind = ?"
_ADD_TEXT = "INSERT INTO texts (id, kind, ref, execution, executions) VALUES (?, ?, ?, ?, ?)"


class Progress(NamedTuple):
    """How far the index is, as positions in the log: up to which it goes, and is to go."""

    reached: int
    wanted: int

    @property
    def current(self) -> bool:
        """Whether everything that finished is in it."""
        return self.reached >= self.wanted

    @property
    def part(self) -> float:
        """How much of the log is in it, 0 to 1."""
        return 1.0 if self.current else self.reached / self.wanted


class _Mark(NamedTuple):
    """Up to which event a history is indexed, and how often texts had been erased from it."""

    seq: int
    event: str | None
    purges: int


def index_file(history: Path) -> Path:
    """Return where the index of a history is."""
    return history.with_name(history.name + "-search")


def progress_of(db: sqlite3.Connection, history: Path) -> Progress:
    """Return how far the index of a history is; one that does not fit is as good as none."""
    wanted = newest_finished(db)
    try:
        with open_index(history) as index:
            mark = _mark(index)
            reached = mark.seq if mark is not None and _fits(db, mark) else 0
    except (FileNotFoundError, sqlite3.DatabaseError):
        # What can not be read is made anew, or whoever tries says why it can not be.
        reached = 0
    return Progress(reached, wanted)


@contextmanager
def open_index(history: Path) -> Iterator[sqlite3.Connection]:
    """Open the index of a history for reading.

    Raises:
        FileNotFoundError: There is none.
    """
    file = index_file(history)
    if not file.exists():
        raise FileNotFoundError(file)
    # Not `mode=ro`: whoever comes after a writer that was killed has to undo what it left.
    with closing(_connected(file)) as index:
        index.execute("PRAGMA query_only = ON")
        yield index


def catch_up(db: sqlite3.Connection, history: Path, limit: int = CHUNK) -> Progress:
    """Index the next executions that finished, and return how far the index is then.

    Several processes may do so at once: each step is taken by one of them.

    Args:
        db: A connection that only reads, in no transaction.
        history: The file that it reads.
        limit: At most so many executions.

    Raises:
        OSError: The folder can not be written.
        sqlite3.Error: The index can not be.
    """
    with _locked(history):
        db.execute("BEGIN")
        try:
            return _next(db, history, limit)
        finally:
            db.execute("ROLLBACK")


def remove_index(history: Path) -> None:
    """Remove the index: to be done whenever texts were erased from the history.

    Raises:
        OSError: It can not be removed.
    """
    if not any(file.exists() for file in _files(history)):
        return
    # Whoever is indexing notices after each step that texts were erased, and gives way.
    with _locked(history):
        _remove(history)


def is_damage(error: sqlite3.Error) -> bool:
    """Tell whether the index is damaged: it is to be removed, and is made anew then."""
    # Errors of the module itself, such as of a closed connection, have no code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _next(db: sqlite3.Connection, history: Path, limit: int) -> Progress:
    index = _fitting(db, history)
    with closing(index):
        mark = _mark(index)
        after = mark.seq if mark is not None else 0
        executions = read_finished(db, after, limit)
        if executions:
            index.execute("BEGIN IMMEDIATE")
            _add(db, index, executions)
            last = executions[-1]
            index.execute("DELETE FROM state")
            state = (last.seq, last.event, _purges(db))
            index.execute("INSERT INTO state VALUES (?, ?, ?)", state)
            index.execute("COMMIT")
            after = last.seq
    return Progress(after, newest_finished(db))


def _add(db: sqlite3.Connection, index: sqlite3.Connection, executions: Iterable[Finished]) -> None:
    newest: dict[Said, tuple[str, int]] = {}
    for execution in reversed(list(executions)):
        for said in texts_of(db, execution):
            first, number = newest.get(said, (execution.id, 0))
            newest[said] = (first, number + 1)
    least = index.execute("SELECT min(id) FROM texts").fetchone()[0] or 0
    # In the order of their numbers: the full-text index writes its buffer whenever one is less.
    for number, (said, (execution_id, times)) in enumerate(newest.items(), least - len(newest)):
        body = db.execute(_BODY, (said.ref,)).fetchone()[0]
        if body is None:
            continue
        text = readable(said.kind, body)
        known = index.execute(_KNOWN, (said.ref, said.kind.value)).fetchone()
        if known is not None:
            _forget(index, said.kind, known[0], text)
        before = 0 if known is None else known[1]
        row = (number, said.kind.value, said.ref, execution_id, before + times)
        index.execute(_ADD_TEXT, row)
        index.execute(
            f"INSERT INTO words(rowid, {said.kind.value}) VALUES (?, ?)",  # noqa: S608
            (number, text),
        )


def _forget(index: sqlite3.Connection, kind: Kind, number: int, text: str) -> None:
    # An index without its texts takes a row out by being told again what was in it.
    index.execute(
        f"INSERT INTO words(words, rowid, {kind.value}) VALUES ('delete', ?, ?)",  # noqa: S608
        (number, text),
    )
    index.execute("DELETE FROM texts WHERE id = ?", (number,))


def _fitting(db: sqlite3.Connection, history: Path) -> sqlite3.Connection:
    """Return the index, made anew if it is none of this history as it is now."""
    file = index_file(history)
    try:
        with ExitStack() as opened:
            index = opened.enter_context(closing(_connected(file)))
            mark = _mark(index)
            if mark is not None and _fits(db, mark):
                opened.pop_all()
                return index
    except sqlite3.DatabaseError as error:
        if file.exists() and not is_damage(error):
            raise
    _remove(history)
    # Nobody else's business, like the history itself.
    os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    index = _connected(file)
    index.executescript(_TABLES)
    index.execute("INSERT INTO state VALUES (0, NULL, ?)", (_purges(db),))
    return index


def _connected(file: Path) -> sqlite3.Connection:
    index = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        index.execute("PRAGMA temp_store = MEMORY")
        index.execute("PRAGMA cache_size = -64000")
    except BaseException:
        index.close()
        raise
    return index


def _mark(index: sqlite3.Connection) -> _Mark | None:
    if index.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
        return None
    row = index.execute("SELECT seq, event, purges FROM state").fetchone()
    return None if row is None else _Mark(*row)


def _fits(db: sqlite3.Connection, mark: _Mark) -> bool:
    if mark.purges != _purges(db):
        return False
    if mark.event is None:
        return True
    found = db.execute(_EVENT, (mark.seq,)).fetchone()
    return found is not None and found[0] == mark.event


def _purges(db: sqlite3.Connection) -> int:
    return int(db.execute(_PURGES).fetchone()[0])


def _files(history: Path) -> tuple[Path, ...]:
    file = index_file(history)
    # The journal first: without it, the file is of no use to anybody who comes between.
    return (file.with_name(file.name + "-journal"), file)


def _remove(history: Path) -> None:
    for file in _files(history):
        with suppress(FileNotFoundError):
            file.unlink()


@contextmanager
def _locked(history: Path) -> Iterator[None]:
    """Wait for and hold the lock under which the index is changed."""
    lock = StreamLock(history, _LOCK)
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            lock.acquire()
            break
        except LockHeldError as error:
            if time.monotonic() > until:
                raise TimeoutError("another process is changing the search index") from error
            time.sleep(_PAUSE_S)
    try:
        yield
    finally:
        lock.release()
