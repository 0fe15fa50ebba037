"""What can be searched: the texts of executions that have finished, each by its reference."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from kindlm.history.json_text import read_json

__all__ = ["Finished", "Kind", "Said", "newest_finished", "read_finished", "readable", "texts_of"]

_MOST = 100_000
"""Characters of a text that are searched: what follows is data more often than words."""

# Of an execution that was resumed or retried, the attempt that it ended with.
_FINISHED = """
SELECT l.seq, l.id AS event, x.id, x.source, x.source_attempt, x.messages, x.output_ref
  FROM event_log l
 CROSS JOIN executions x
    ON x.run = substr(l.stream, 5) AND x.number = CAST(l.subject AS INTEGER)
   AND x.attempt = CAST(substr(l.subject, instr(l.subject, '.') + 1) AS INTEGER)
   AND x.status IS NOT NULL
 WHERE l.type = 'execution.finished' AND l.seq > :after
 ORDER BY l.seq
 LIMIT :limit
"""

_NEWEST = "SELECT seq FROM event_log WHERE type = 'execution.finished' ORDER BY seq DESC LIMIT 1"

_CALLS = """
SELECT messages, text_ref FROM provider_calls
 WHERE execution = ? AND attempt = ? AND purpose = 'test'
"""

_TOOL_CALLS = """
SELECT arguments_ref, response_ref FROM tool_calls WHERE execution = ? AND attempt = ?
"""


class Kind(Enum):
    """What a text was in the conversation; a column of the index."""

    PROMPT = "prompt"
    OUTPUT = "output"
    ARGUMENTS = "arguments"
    ANSWER = "answer"


class Said(NamedTuple):
    """A text by its reference, and what it was."""

    kind: Kind
    ref: str


class Finished(NamedTuple):
    """An execution that finished, with the position and the id of the event that says so."""

    seq: int
    event: str
    id: str
    source: str
    source_attempt: int
    messages: str
    output_ref: str | None


def newest_finished(db: sqlite3.Connection) -> int:
    """Return the position of the last event that an execution finished; 0 if none did."""
    row = db.execute(_NEWEST).fetchone()
    return 0 if row is None else int(row[0])


def read_finished(db: sqlite3.Connection, after: int, limit: int) -> list[Finished]:
    """Return executions that finished after a position of the log, in order."""
    return [Finished(*row) for row in db.execute(_FINISHED, {"after": after, "limit": limit})]


def texts_of(db: sqlite3.Connection, execution: Finished) -> set[Said]:
    """Return what was said in an execution: judges and bodies as received are left out."""
    found = set(_prompts(execution.messages))
    if execution.output_ref is not None:
        found.add(Said(Kind.OUTPUT, execution.output_ref))
    conversation = (execution.source, execution.source_attempt)
    for messages, text in db.execute(_CALLS, conversation):
        found.update(_prompts(messages))
        if text is not None:
            found.add(Said(Kind.OUTPUT, text))
    for arguments, response in db.execute(_TOOL_CALLS, conversation):
        if arguments is not None:
            found.add(Said(Kind.ARGUMENTS, arguments))
        if response is not None:
            found.add(Said(Kind.ANSWER, response))
    return found


def readable(kind: Kind, body: str) -> str:
    """Return a text as it is indexed and shown: JSON without the escapes that hide its words."""
    text = body[:_MOST]
    if kind in (Kind.ARGUMENTS, Kind.ANSWER) and "\\" in text:
        value = read_json(text)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text


def _prompts(messages: str | None) -> Iterator[Said]:
    # What tools and the target said is also sent to it again: that stands where it was said.
    for message in json.loads(messages or "[]"):
        if message["role"] in ("system", "user"):
            yield Said(Kind.PROMPT, message["text"]["$ref"])
