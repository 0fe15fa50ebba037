"""Conversations of recorded runs, read back from the events of their executions.

A transcript is folded from the events that the engine recorded: so whatever was checked when the
run went on can be checked again, and comes out the same.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from kindlm.errors import ErrorCode, KindlmError
from kindlm.events import (
    AgentReplied,
    AgentSent,
    ExecutionStarted,
    Payload,
    ProviderRequested,
    ProviderResponded,
    ToolSimulated,
    load_event,
    read,
)
from kindlm.plan import Execution
from kindlm.ports import HeldConversation, NothingHeld
from kindlm.transcript import Message, Role, ToolCall, ToolUse, Transcript

__all__ = [
    "PurgedError",
    "RecordedTranscripts",
    "body_of",
    "read_answer",
    "read_conversation",
    "read_messages",
    "read_tool_calls",
    "transcript_of",
]

_SUITE = """
SELECT id FROM suites WHERE run = ? AND project = ? AND name = ? AND error_code IS NULL
"""

_EXECUTION = """
SELECT e.id, e.attempt, e.status
  FROM executions e
 WHERE e.suite = ? AND e.test = ? AND e.target = ? AND e.repeat = ?
"""

_HOW_IT_ENDED = """
SELECT e.source, e.source_attempt, e.warnings, e.error_code, x.body AS error, e.hint,
       t.body AS trace
  FROM executions e
  LEFT JOIN contents x ON x.ref = e.error_ref
  LEFT JOIN contents t ON t.ref = e.trace_ref
 WHERE e.id = ?
"""

_FIRST = "SELECT seq FROM event_log WHERE stream = ? ORDER BY version LIMIT 1"

_LAST = "SELECT seq FROM event_log WHERE stream = ? ORDER BY version DESC LIMIT 1"

# The events of one attempt, by the index over subjects; every run has one of that subject.
_EVENTS = """
SELECT type, data FROM event_log
 WHERE subject = ? AND +stream = ? AND seq BETWEEN ? AND ?
   AND type IN (SELECT value FROM json_each(?))
 ORDER BY version
"""

# The answer to a call: from its request on, the events of the attempt up to the first that is it.
# So it costs the same wherever in a conversation it stands.
_ANSWER = """
SELECT a.type, a.data
  FROM provider_calls c
 CROSS JOIN event_log q ON q.stream = ? AND q.version = c.first_event
 CROSS JOIN event_log a ON +a.stream = ? AND a.seq > q.seq
 WHERE c.execution = ? AND c.attempt = ? AND c.call = ? AND a.subject = ?
   AND a.type IN ('provider.responded', 'agent.replied') AND a.data ->> 'call' = ?
 ORDER BY a.seq LIMIT 1
"""

_BODY = """
SELECT b.body FROM provider_calls c JOIN contents b ON b.ref = c.raw_ref
 WHERE c.execution = ? AND c.attempt = ? AND c.call = ?
"""

_TALK = (
    ExecutionStarted,
    ProviderRequested,
    ProviderResponded,
    ToolSimulated,
    AgentSent,
    AgentReplied,
)
"""The events that a conversation is made of."""

# A transcript has none of it, so that it may be purged. Who needs the body as it was received asks
# for it: it may be kept for a shorter time.
_UNSEEN = ("raw", "tools", "context", "stop_sequences", "response_schema")


class PurgedError(LookupError):
    """A text that is needed is not there any more."""


class RecordedTranscripts:
    """Looks conversations of a run up; implements `ports.TranscriptSource`.

    `db` is a read-only connection.
    """

    def __init__(self, db: sqlite3.Connection, run: str) -> None:
        self._db = db
        self._run = run

    def find(self, execution: Execution) -> HeldConversation | NothingHeld:
        """Return the conversation of the same test, target and repeat."""
        suite = execution.suite.suite
        row = self._db.execute(_SUITE, (self._run, suite.project, suite.name)).fetchone()
        key = (row and row["id"], execution.case.name, execution.target, execution.repeat)
        found = self._db.execute(_EXECUTION, key).fetchone()
        if found is None:
            return NothingHeld(f"run {self._run} has no conversation of it; run it: kindlm test")
        if found["status"] in (None, "skipped"):
            how = "skipped it" if found["status"] else "did not finish it"
            return NothingHeld(f"run {self._run} {how}; run it: kindlm test")
        is_scripted = execution.case.script is not None
        held = read_conversation(self._db, found["id"], with_bodies=is_scripted)
        now, then = 1 + len(execution.case.follow_ups), len(held.transcript.turns)
        if execution.case.script is None and held.error is None and now != then:
            return NothingHeld(
                f"its conversation has another length now ({then} → {now} messages of the user);"
                " run it: kindlm test"
            )
        return held


def read_conversation(
    db: sqlite3.Connection, execution: str, *, with_bodies: bool = False
) -> HeldConversation:
    """Return what was said in an execution that ended, as its last attempt left it.

    If texts of it were purged, or the run that held it is not here, that is its error.
    """
    row = db.execute(_HOW_IT_ENDED, (execution,)).fetchone()
    source = f"{row['source']}.{row['source_attempt']}"
    recorded = _recorded(db, row["source"], row["source_attempt"])
    last = max((data.get("call", 0) for _, data in recorded), default=0)
    try:
        events = list(_of_the_target(db, recorded))
    except PurgedError:
        return HeldConversation(source, Transcript(), (), _purged(source), (), last)
    started = next((event for event in events if isinstance(event, ExecutionStarted)), None)
    if started is None:
        return HeldConversation(source, Transcript(), (), _not_here(source), (), last)
    bodies = tuple(_bodies(db, source, events)) if with_bodies else ()
    return HeldConversation(
        source,
        transcript_of(events),
        tuple(started.messages),
        _error(row),
        tuple(json.loads(row["warnings"] or "[]")),
        last,
        bodies,
    )


def transcript_of(events: Iterable[Payload]) -> Transcript:
    """Return the transcript that the events of a conversation with the target add up to."""
    transcript = Transcript()
    waiting: ProviderResponded | None = None
    uses: list[ToolUse] = []
    for event in events:
        match event:
            case ExecutionStarted(messages=messages):
                system = next((m.text for m in messages if m.role is Role.SYSTEM), None)
                # The first message of a scenario comes with its first call.
                transcript = _with_turns(Transcript(system), messages)
            # What is tried again is not said again.
            case ProviderRequested(attempt=1) | AgentSent(attempt=1):
                transcript = _with_turns(transcript, event.messages)
            case ProviderResponded(tool_calls=calls):
                waiting, uses = event if calls else None, []
                # An answer of blanks was an error when it came, and no step.
                if not calls and event.text.strip():
                    transcript = transcript.with_step(event.step())
            case ToolSimulated() if waiting is not None:
                call = waiting.tool_calls[len(uses)]
                uses.append(ToolUse(call, event.response, event.rule, tuple(event.problems)))
                if len(uses) == len(waiting.tool_calls):
                    transcript = transcript.with_step(waiting.step(uses))
                    waiting = None
            case AgentReplied(tool_calls=calls) if calls or event.text.strip():
                transcript = transcript.with_step(event.step())
    return transcript


def _with_turns(transcript: Transcript, messages: Iterable[Message]) -> Transcript:
    for message in messages:
        if message.role is Role.USER:
            transcript = transcript.with_turn(message.text)
    return transcript


def read_answer(
    db: sqlite3.Connection, execution: str, attempt: int, call: int
) -> ProviderResponded | AgentReplied | None:
    """Return what a call was answered; None if it was not, or if texts of it were purged."""
    run, _, number = execution.rpartition("-")
    subject, stream = f"{number}.{attempt}", f"run/{run}"
    row = db.execute(_ANSWER, (stream, stream, execution, attempt, call, subject, call)).fetchone()
    if row is None:
        return None
    data = _seen(row["data"])
    with suppress(PurgedError):
        event = load_event(row["type"], data, partial(_text, db))
        assert isinstance(event, ProviderResponded | AgentReplied)
        return event
    return None


def _recorded(
    db: sqlite3.Connection, execution: str, attempt: int
) -> list[tuple[str, dict[str, Any]]]:
    """Return the types and the data of the events of a conversation, judges included."""
    run, _, number = execution.rpartition("-")
    stream, types = f"run/{run}", json.dumps([event.type for event in _TALK])
    first, last = (db.execute(end, (stream,)).fetchone() for end in (_FIRST, _LAST))
    if first is None:
        return []
    rows = db.execute(_EVENTS, (f"{number}.{attempt}", stream, first[0], last[0], types))
    return [(name, _seen(data)) for name, data in rows]


def _seen(data: str) -> dict[str, Any]:
    """Return the data of an event without what nobody looks at here."""
    read: dict[str, Any] = json.loads(data)
    return {key: value for key, value in read.items() if key not in _UNSEEN}


def _of_the_target(
    db: sqlite3.Connection, recorded: Iterable[tuple[str, dict[str, Any]]]
) -> Iterator[Payload]:
    """Yield the events of the conversation with the target under test, without those of judges."""
    others: set[int] = set()
    for name, data in recorded:
        if data.get("purpose", "test") != "test":
            others.add(data["call"])
        if data.get("call") not in others:
            yield load_event(name, data, partial(_text, db))


def body_of(db: sqlite3.Connection, call: str) -> str | None:
    """Return the body of an answer as it was received; None if it was not kept, or not for long.

    `call` is the one that was really made, such as `k3f9x2ab-17.1/3`.
    """
    place, _, number = call.rpartition("/")
    execution, _, attempt = place.rpartition(".")
    row = db.execute(_BODY, (execution, int(attempt), int(number))).fetchone()
    return None if row is None else row[0]


def _bodies(db: sqlite3.Connection, source: str, events: Iterable[Payload]) -> Iterator[str | None]:
    """Yield the bodies of what was answered to the messages of the user, one after the other."""
    for event in events:
        match event:
            case ProviderResponded() | AgentReplied() if event.text.strip() or event.tool_calls:
                yield body_of(db, event.recorded_in or f"{source}/{event.call}")


def read_messages(db: sqlite3.Connection, column: str) -> Iterator[Message]:
    """Yield the messages of a column that holds them; raise `PurgedError` without their texts."""
    for message in json.loads(column):
        yield read(Message, message, partial(_text, db))


def read_tool_calls(db: sqlite3.Connection, column: str | None) -> Iterator[ToolCall]:
    """Yield the tool calls of a column that holds them; raise `PurgedError` without their texts."""
    for call in json.loads(column or "[]"):
        yield read(ToolCall, call, partial(_text, db))


def _text(db: sqlite3.Connection, ref: str) -> str:
    row = db.execute("SELECT body FROM contents WHERE ref = ?", (ref,)).fetchone()
    if row is None or row[0] is None:
        raise PurgedError
    return str(row[0])


def _error(row: sqlite3.Row) -> KindlmError | None:
    name = row["error_code"]
    if name is None:
        return None
    code = ErrorCode.__members__.get(name, ErrorCode.UNKNOWN_ERROR)
    return KindlmError(
        code, row["error"] or "(erased or withheld)", row["hint"], trace=row["trace"]
    )


def _not_here(source: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"The run that held the conversation {source} is not in this history.",
        "Add it from the history that has it: kindlm merge. Or run the test again: kindlm test",
    )


def _purged(source: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"Texts of the conversation {source} were purged or withheld: it can not be looked at"
        " again.",
        "Run the test again: kindlm test. What was withheld comes with a copy that has it:"
        " kindlm merge",
    )
