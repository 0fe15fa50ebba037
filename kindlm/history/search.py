"""Full-text search over the conversations of executions.

The index is a file beside the history. The first search creates it, and each search updates it. It
is made again if it does not match the history, and removed when texts are erased. It contains words
and their positions; the texts are read from the history.

The newest text has the lowest number, since full-text search returns this order without sorting. A
text that occurs again keeps its number.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unicodedata import normalize

from kindlm.dataclass import dataclass
from kindlm.history.masking import mask_of
from kindlm.history.queries import body_of
from kindlm.history.rows import ExecutionView
from kindlm.history.run_view import RunView
from kindlm.strict_json import read_json
from kindlm_store import StoreError, stream_lock
from kindlm_store.database import code_of

# --- The file of the index


_VERSION = 4
"""Raise it with any change of the index."""

_TOKENIZED = "tokenize='unicode61 remove_diacritics 2'"

_TABLES = f"""
PRAGMA page_size = 4096;
PRAGMA journal_mode = DELETE;
BEGIN;
CREATE TABLE state (seq INTEGER, mark TEXT);
CREATE TABLE texts (
  id INTEGER PRIMARY KEY, kind TEXT, ref TEXT, execution TEXT, executions INTEGER,
  UNIQUE (ref, kind)
);
CREATE VIRTUAL TABLE words USING fts5(text, {_TOKENIZED}, content='', columnsize=0);
INSERT INTO words(words, rank) VALUES ('hashsize', 16777216);
PRAGMA user_version = {_VERSION};
COMMIT;
"""  # noqa: S608 (constants of this module)

_LOCK = "search index"
_PATIENCE_S = 60.0
_BUSY_S = 10.0


def index_file(history: Path) -> Path:
    """Return the path of the index of a history."""
    return history.with_name(history.name + "-search")


def remove_index(history: Path) -> None:
    """Remove the index, after texts were erased from the history; raise `OSError` if that fails."""
    if any(file.exists() for file in _files(history)):
        try:
            # A process that is indexing releases the lock after each step.
            with stream_lock(history, _LOCK, patience_s=_PATIENCE_S):
                _remove(history)
        except StoreError as error:
            raise OSError(str(error)) from error


def _files(history: Path) -> tuple[Path, ...]:
    file = index_file(history)
    # The journal first, since SQLite would apply it to a new file.
    return (file.with_name(file.name + "-journal"), file)


def _remove(history: Path) -> None:
    for file in _files(history):
        file.unlink(missing_ok=True)


@contextmanager
def _open_index(history: Path) -> Iterator[sqlite3.Connection]:
    """Open the index of a history; raise `FileNotFoundError` if there is none."""
    file = index_file(history)
    if not file.exists():
        raise FileNotFoundError(file)
    # Not `mode=ro`, since the journal of a killed writer has to be rolled back.
    uri = f"{file.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None)) as index:
        index.execute("PRAGMA temp_store = MEMORY")
        index.execute("PRAGMA cache_size = -64000")
        yield index


# --- Bringing the index up to date


_STEP = 1_000
"""How many executions are indexed at once, in about 0.2 s."""

_MOST = 100_000
"""Indexed characters of a text; longer texts are mostly data."""

# A position, the event there, and the number of erasures: they identify the state of a history.
_STATE = """
SELECT :seq, (SELECT coalesce(max(id), '') FROM event_log WHERE seq = :seq) || ' '
           || (SELECT count(*) FROM event_log WHERE type = 'contents.purged')
"""

_CHUNK = """
SELECT coalesce(max(seq), 0), count(*) FROM (
  SELECT seq FROM event_log WHERE type = 'execution.finished' AND seq > ? ORDER BY seq LIMIT ?)
"""

# Each text in the executions of a chunk, with the last of these and their number, the newest first.
# Only the last attempt at an execution counts. Judges and bodies as received are left out.
_TEXTS = """
WITH
  done AS MATERIALIZED (
    SELECT l.seq, x.id, x.source, x.source_attempt, x.messages, x.output_ref
      FROM event_log l
     CROSS JOIN executions x
        ON x.run = substr(l.stream, 5) AND x.number = CAST(l.subject AS INTEGER)
       AND x.attempt = CAST(substr(l.subject, instr(l.subject, '.') + 1) AS INTEGER)
       AND x.status IS NOT NULL
     WHERE l.type = 'execution.finished' AND l.seq > :after AND l.seq <= :until),
  calls AS MATERIALIZED (
    SELECT d.seq, d.id, c.messages, c.text_ref
      FROM done d
     CROSS JOIN provider_calls c
        ON c.execution = d.source AND c.attempt = d.source_attempt AND c.purpose = 'test'),
  tools AS MATERIALIZED (
    SELECT d.seq, d.id, t.arguments_ref, t.response_ref
      FROM done d
     CROSS JOIN tool_calls t ON t.execution = d.source AND t.attempt = d.source_attempt),
  sent AS (
    SELECT seq, id, messages FROM done UNION ALL SELECT seq, id, messages FROM calls),
  said AS (
    -- Answers and tool results are also sent to the target again; they count once.
    SELECT sent.seq, sent.id, 'prompt' AS kind, m.value ->> '$.text."$ref"' AS ref
      FROM sent, json_each(sent.messages) m
     WHERE m.value ->> '$.role' IN ('system', 'user')
    UNION ALL SELECT seq, id, 'output', output_ref FROM done
    UNION ALL SELECT seq, id, 'output', text_ref FROM calls
    UNION ALL SELECT seq, id, 'arguments', arguments_ref FROM tools
    UNION ALL SELECT seq, id, 'answer', response_ref FROM tools)
SELECT kind, ref, id, count(DISTINCT id), max(seq) AS last
  FROM said WHERE ref IS NOT NULL
 GROUP BY kind, ref ORDER BY last DESC, kind, ref
"""


# A text that is in the index already.
_AGAIN = """
UPDATE texts SET execution = ?, executions = executions + ? WHERE ref = ? AND kind = ?
"""


def catch_up(db: sqlite3.Connection, history: Path, limit: int = _STEP) -> bool:
    """Index the next executions that finished; return whether all are in the index.

    `db` is a read-only connection to the file `history`, in no transaction. Raise `LockHeldError`
    if another process is indexing, `OpenError`, `OSError` or `sqlite3.Error` if the folder or the
    index cannot be written.
    """
    with stream_lock(history, _LOCK):
        db.execute("BEGIN")
        try:
            known = _position_of_index(db, history)
            after = known or 0
            until, found = db.execute(_CHUNK, (after, limit)).fetchone()
            if known is None:
                _remove(history)
                # The index is as private as the history itself.
                mode = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
                os.close(os.open(index_file(history), mode, 0o600))
            elif not found:
                return True
            with _open_index(history) as index:
                if known is None:
                    index.executescript(_TABLES)
                index.execute("BEGIN IMMEDIATE")
                _index_texts(db, index, after, until)
                index.execute("DELETE FROM state")
                state = db.execute(_STATE, {"seq": until}).fetchone()
                index.execute("INSERT INTO state VALUES (?, ?)", tuple(state))
                index.execute("COMMIT")
            return bool(found < limit)
        finally:
            db.execute("ROLLBACK")


def _position_of_index(db: sqlite3.Connection, history: Path) -> int | None:
    """Return the position of the log that the index covers; None if it must be made again.

    That is the case if it is of another version or history, damaged, or texts were erased since.
    """
    try:
        with _open_index(history) as index:
            if index.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                return None
            state = index.execute("SELECT seq, mark FROM state").fetchone()
    except FileNotFoundError:
        return None
    except sqlite3.DatabaseError as error:
        if code_of(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        return None
    if state is None:
        return None
    now = tuple(db.execute(_STATE, {"seq": state[0]}).fetchone())
    return int(state[0]) if state == now else None


def _index_texts(db: sqlite3.Connection, index: sqlite3.Connection, after: int, until: int) -> None:
    """Index the content of the executions that finished between two positions of the log."""
    texts = db.execute(_TEXTS, {"after": after, "until": until}).fetchall()
    least = index.execute("SELECT min(id) FROM texts").fetchone()[0] or 0
    # In ascending order, since the full-text index writes its buffer at each lower number.
    for number, (kind, ref, execution, executions, _) in enumerate(texts, least - len(texts)):
        if index.execute(_AGAIN, (execution, executions, ref, kind)).rowcount:
            continue
        if (body := body_of(db, ref)) is not None:
            row = (number, kind, ref, execution, executions)
            index.execute("INSERT INTO texts VALUES (?, ?, ?, ?, ?)", row)
            words = (number, _readable(kind, body))
            index.execute("INSERT INTO words(rowid, text) VALUES (?, ?)", words)


def _readable(kind: str, body: str) -> str:
    """Return a text as it is indexed and shown: JSON without escapes inside words."""
    text = body[:_MOST]
    if kind in ("arguments", "answer") and "\\" in text:
        value = read_json(text)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text


# --- Searching


_LONGEST_S = 3.0
_STEPS = 100
_LONGEST_QUESTION = 500
_BEFORE, _SHOWN = 150, 350
"""Characters of an excerpt before the first word that was found, and in all."""
_ACCENT = "[\u0300-\u036f]"
_TERM = re.compile(r'"[^"]*"\*?|[^\s"()]+')
_OPERATORS = ("AND", "OR", "NOT", "NEAR")

_MATCHING = """
SELECT t.id, t.kind, t.ref, t.execution, t.executions
  FROM words w
  JOIN texts t ON t.id = w.rowid
 WHERE words MATCH :expression AND w.rowid > :after AND (:kind IS NULL OR t.kind = :kind)
 ORDER BY w.rowid
 LIMIT :limit
"""


class TooLongError(Exception):
    """A search that takes too long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A matching text, the latest execution that contains it, and the number of such executions.

    Its `kind` is its role in the conversation: prompt, output, arguments or answer (of a tool).
    `excerpt` is in pieces, each with whether it matches; masked personal data does not.
    """

    kind: str
    excerpt: tuple[tuple[str, bool], ...]
    execution: ExecutionView
    executions: int


@dataclass(frozen=True, slots=True)
class Findings:
    """A page of matching texts; `next` is the `after` of the next page, if there is one."""

    found: tuple[Finding, ...] = ()
    next: int | None = None


def find_texts(
    db: sqlite3.Connection,
    history: Path,
    written: str,
    *,
    kind: str | None = None,
    after: int | None = None,
    limit: int = 20,
) -> Findings:
    """Return a page of texts that match a search, of one kind if it is given.

    The search is an expression of https://www.sqlite.org/fts5.html#full_text_query_syntax if it is
    valid, else words that a text has to contain.

    `db` reads the file `history`; `after` is `Findings.next` of the page before. Raise
    `FileNotFoundError` without an index, `TooLongError` after 3 seconds.
    """
    text = written.replace("\0", " ")[:_LONGEST_QUESTION]
    words = dict.fromkeys(word.replace('"', " ").strip() for word in text.split())
    quoted = " ".join(f'"{word}"' for word in words if any(char.isalnum() for char in word))
    with _open_index(history) as index:
        until = time.monotonic() + _LONGEST_S
        index.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        for expression in (text, quoted) if quoted else ():
            asked: dict[str, Any] = {
                "expression": expression,
                "after": -(2**63) if after is None else after,
                "kind": kind,
                "limit": limit + 1,
            }
            try:
                matches = index.execute(_MATCHING, asked).fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise TooLongError from error
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                    raise
                continue  # no valid expression
            terms = _pattern_of(text)
            found = (_finding(db, terms, *match[1:]) for match in matches[:limit])
            following = matches[limit - 1][0] if len(matches) > limit else None
            return Findings(tuple(filter(None, found)), following)
    return Findings()


def _pattern_of(search: str) -> re.Pattern[str]:
    """Return a pattern for the words and quoted phrases of a search, to mark them in a text.

    It ignores case and accents; the text has to be in the form NFD.
    """
    terms = []
    for term in _TERM.findall(re.sub(_ACCENT, "", normalize("NFD", search))):
        words = [f"{_ACCENT}*".join(word) for word in re.findall(r"[^\W_]+", term)]
        if words and term not in _OPERATORS:
            end = rf"(?:[^\W_]|{_ACCENT})*" if term.endswith("*") else ""
            terms.append(r"[\W_]+".join(words) + end)
    any_term = "|".join(terms) or "(?!)"
    whole = rf"(?<![^\W_])(?<!{_ACCENT})((?:{any_term}){_ACCENT}*)(?![^\W_])"
    return re.compile(whole, re.IGNORECASE)


def _finding(
    db: sqlite3.Connection,
    terms: re.Pattern[str],
    kind: str,
    ref: str,
    identity: str,
    executions: int,
) -> Finding | None:
    """Return a text that matches, with an excerpt from shortly before the first of the terms.

    The result is None if the text was erased, or is not in this snapshot of the history.
    """
    view = RunView(db, identity.rpartition("-")[0])
    execution, body = view.execution(identity), body_of(db, ref)
    if execution is None or body is None:
        return None
    text = normalize("NFD", mask_of(view.attempts(execution)).text(_readable(kind, body)))
    first = terms.search(text)
    start = max(0, first.start() - _BEFORE) if first else 0
    end = start + _SHOWN
    shown = ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
    # Every second piece is a match.
    pieces = enumerate(terms.split(shown))
    excerpt = tuple((normalize("NFC", piece), bool(at % 2)) for at, piece in pieces if piece)
    return Finding(kind, excerpt, execution, executions)
