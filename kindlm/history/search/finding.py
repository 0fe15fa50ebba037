"""Finding texts: which match, where each was said last, and an excerpt with what matches marked."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kindlm.history.masking import Mask, mask_of
from kindlm.history.run_view import RunView
from kindlm.history.search.asking import expressions
from kindlm.history.search.index import COLUMNS, TOKENIZER, open_index
from kindlm.history.search.texts import Kind, readable

__all__ = ["Finding", "Findings", "TooLongError", "find_texts"]

_LONGEST_S = 3.0
_STEPS = 10_000
_WORDS = 48
_OPEN, _CLOSE = "\x02", "\x03"
_MARKS = re.compile(f"[{_OPEN}{_CLOSE}]")

_MATCHING = """
SELECT t.id, t.kind, t.ref, t.execution, t.executions
  FROM words w
  JOIN texts t ON t.id = w.rowid
 WHERE words MATCH :expression AND w.rowid > :after
 ORDER BY w.rowid
 LIMIT :limit
"""

_EXECUTIONS = """
SELECT e.id, e.run, s.name AS suite, e.test, e.target, e.repeat, e.status, e.started_at
  FROM json_each(?) wanted
  JOIN executions e ON e.id = wanted.value
  JOIN suites s ON s.id = e.suite
"""

_BODIES = "SELECT c.ref, c.body FROM json_each(?) wanted JOIN contents c ON c.ref = wanted.value"


class TooLongError(Exception):
    """A question that takes too long to answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A text that matches, and the execution that it was said in last, of how many.

    `excerpt` is in pieces, each with whether it matches; no piece does where all that matches is
    personal data, which is shown redacted.
    """

    kind: Kind
    excerpt: tuple[tuple[str, bool], ...]
    execution: str
    executions: int
    run: str
    suite: str
    test: str
    target: str
    repeat: int
    status: str | None
    started_at: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Some of the texts that match, the newest first; `next` is where older ones begin, if any.

    `as_words` tells that the question was no expression, and its words were looked for.
    """

    found: tuple[Finding, ...]
    next: int | None
    as_words: bool


class _Match(NamedTuple):
    number: int
    kind: Kind
    ref: str
    execution: str
    executions: int


def find_texts(
    db: sqlite3.Connection,
    history: Path,
    written: str,
    *,
    kind: Kind | None = None,
    after: int | None = None,
    limit: int = 20,
) -> Findings:
    """Return texts that match what was asked, whatever was asked.

    Args:
        db: A read-only connection to the history.
        history: Its file, beside which the index is.
        written: What somebody wrote into the search box.
        kind: Only texts of this kind.
        after: Only texts behind this one, as `Findings.next` says.
        limit: At most so many.

    Raises:
        FileNotFoundError: There is no index.
        TooLongError: It takes too long.
    """
    with open_index(history) as index:
        for number, expression in enumerate(expressions(written)):
            # By itself, before anything is put around it: "a) OR (b" is none, "(a) OR (b)" is one.
            if not _is_expression(expression):
                continue
            asked = expression if kind is None else f"{{{kind.value}}} : ({expression})"
            try:
                matches = _matches(index, asked, after, limit + 1)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise TooLongError from error
                raise
            shown = matches[:limit]
            found = tuple(_findings(db, shown, expression))
            following = shown[-1].number if len(matches) > limit else None
            return Findings(found, following, as_words=number > 0)
    return Findings((), None, as_words=False)


def _is_expression(written: str) -> bool:
    with closing(_empty_index()) as memory:
        try:
            memory.execute("SELECT 1 FROM words WHERE words MATCH ?", (written,)).fetchone()
        except sqlite3.OperationalError:
            return False
    return True


def _empty_index() -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:")
    memory.execute(
        f"CREATE VIRTUAL TABLE words USING fts5({', '.join(COLUMNS)}, tokenize='{TOKENIZER}')"
    )
    return memory


def _matches(
    index: sqlite3.Connection, expression: str, after: int | None, limit: int
) -> list[_Match]:
    until = time.monotonic() + _LONGEST_S
    index.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    asked = {
        "expression": expression,
        "after": -(2**63) if after is None else after,
        "limit": limit,
    }
    return [
        _Match(number, Kind(kind), ref, execution, executions)
        for number, kind, ref, execution, executions in index.execute(_MATCHING, asked)
    ]


def _findings(
    db: sqlite3.Connection, matches: Sequence[_Match], expression: str
) -> Iterator[Finding]:
    executions = {
        row["id"]: row
        for row in db.execute(_EXECUTIONS, (json.dumps([m.execution for m in matches]),))
    }
    bodies = dict(db.execute(_BODIES, (json.dumps([m.ref for m in matches]),)).fetchall())
    there = [m for m in matches if m.execution in executions and bodies.get(m.ref) is not None]
    masks = _masks(db, {m.execution: executions[m.execution]["run"] for m in there})
    texts = [masks[m.execution].text(readable(m.kind, bodies[m.ref])) for m in there]
    excerpts = _excerpts([(m.kind, text) for m, text in zip(there, texts, strict=True)], expression)
    for match, excerpt in zip(there, excerpts, strict=True):
        row = executions[match.execution]
        yield Finding(
            match.kind,
            excerpt,
            match.execution,
            match.executions,
            row["run"],
            row["suite"],
            row["test"],
            row["target"],
            row["repeat"],
            row["status"],
            row["started_at"],
        )


def _masks(db: sqlite3.Connection, executions: Mapping[str, str]) -> dict[str, Mask]:
    """Return what must not be shown of each execution, as its page does not show it."""
    views = {run: RunView(db, run) for run in set(executions.values())}
    masks = {}
    for wanted, run in executions.items():
        view = views[run]
        execution = view.execution(wanted)
        assertions = view.assertions(execution) if execution else []
        # Most executions have no personal data: their tool calls need not be read.
        told = [a for a in assertions if any(e.get("excerpt") is not None for e in a.evidence)]
        if execution is None or not told:
            masks[wanted] = Mask({})
        else:
            masks[wanted] = mask_of(execution, told, view.tool_calls(execution))
    return masks


def _excerpts(
    texts: Sequence[tuple[Kind, str]], expression: str
) -> list[tuple[tuple[str, bool], ...]]:
    """Return excerpts, marked by the same search in an index that holds only these texts."""
    with closing(_empty_index()) as memory:
        for number, (kind, text) in enumerate(texts):
            memory.execute(
                f"INSERT INTO words(rowid, {kind.value}) VALUES (?, ?)",  # noqa: S608
                (number, _MARKS.sub("\ufffd", text)),
            )
        marked = dict(
            memory.execute(
                "SELECT rowid, snippet(words, -1, ?, ?, '…', ?) FROM words WHERE words MATCH ?",
                (_OPEN, _CLOSE, _WORDS, expression),
            ).fetchall()
        )
    return [
        tuple(_pieces(marked[number])) if number in marked else ((text[:300], False),)
        for number, (_, text) in enumerate(texts)
    ]


def _pieces(marked: str) -> Iterator[tuple[str, bool]]:
    inside = False
    for piece in re.split(f"({_MARKS.pattern})", marked):
        if piece in (_OPEN, _CLOSE):
            inside = piece == _OPEN
        elif piece:
            yield piece, inside
