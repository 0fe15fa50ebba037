"""Conversations of recorded runs, rebuilt as the values that checks look at.

What was said stands in the tables of calls and tool calls, one row for each, texts by reference. A
transcript is rebuilt from them step by step, as the engine made it: so whatever was checked when
the run went on can be checked again, and comes out the same.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kindlm.errors import ErrorCode, KindlmError
from kindlm.plan import Execution
from kindlm.ports import HeldConversation, NothingHeld
from kindlm.transcript import (
    Cost,
    CostSource,
    FinishReason,
    Message,
    Role,
    Step,
    ToolCall,
    ToolProblem,
    ToolProblemKind,
    ToolUse,
    Transcript,
    Usage,
)

__all__ = [
    "PurgedError",
    "RecordedTranscripts",
    "body_of",
    "numbers_of",
    "read_conversation",
    "read_messages",
    "tool_call",
    "tool_calls_of",
    "tool_use",
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
SELECT e.source, e.source_attempt, e.messages, e.warnings, e.error_code, x.body AS error, e.hint,
       t.body AS trace
  FROM executions e
  LEFT JOIN contents x ON x.ref = e.error_ref
  LEFT JOIN contents t ON t.ref = e.trace_ref
 WHERE e.id = ?
"""

_CALLS = """
SELECT c.call, c.try, c.purpose, c.status, c.messages, t.body AS text, c.tool_calls,
       c.finish_reason, c.reported_model, c.input_tokens, c.output_tokens, c.latency_ms,
       c.cost_usd, c.cost_source, c.recorded_in, c.cost_then_usd, c.reported_ref,
       n.body AS reported, c.reports_tools
  FROM provider_calls c
  LEFT JOIN contents t ON t.ref = c.text_ref
  LEFT JOIN contents n ON n.ref = c.reported_ref
 WHERE c.execution = ? AND c.attempt = ?
 ORDER BY c.call
"""

_TOOL_CALLS = """
SELECT t.call, a.body AS arguments, t.rule, t.response_ref, r.body AS response, t.problems
  FROM tool_calls t
  LEFT JOIN contents a ON a.ref = t.arguments_ref
  LEFT JOIN contents r ON r.ref = t.response_ref
 WHERE t.execution = ? AND t.attempt = ?
 ORDER BY t.position
"""


_BODY = """
SELECT b.body FROM provider_calls c JOIN contents b ON b.ref = c.raw_ref
 WHERE c.execution = ? AND c.attempt = ? AND c.call = ?
"""


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

    If texts of it were purged, that is its error.
    """
    row = db.execute(_HOW_IT_ENDED, (execution,)).fetchone()
    place = (row["source"], row["source_attempt"])
    source = f"{row['source']}.{row['source_attempt']}"
    calls = db.execute(_CALLS, place).fetchall()
    last = calls[-1]["call"] if calls else 0
    try:
        messages = tuple(read_messages(db, row["messages"]))
        transcript = _rebuild(db, messages, calls, db.execute(_TOOL_CALLS, place).fetchall())
    except PurgedError:
        return HeldConversation(source, Transcript(), (), _purged(source), (), last)
    warnings = tuple(json.loads(row["warnings"] or "[]"))
    bodies = tuple(_bodies(db, source, calls)) if with_bodies else ()
    return HeldConversation(source, transcript, messages, _error(row), warnings, last, bodies)


def body_of(db: sqlite3.Connection, call: str) -> str | None:
    """Return the body of an answer as it was received; None if it was not kept, or not for long.

    `call` is the one that was really made, such as `k3f9x2ab-17.1/3`.
    """
    place, _, number = call.rpartition("/")
    execution, _, attempt = place.rpartition(".")
    row = db.execute(_BODY, (execution, int(attempt), int(number))).fetchone()
    return None if row is None else row[0]


def _bodies(
    db: sqlite3.Connection, source: str, calls: Sequence[sqlite3.Row]
) -> Iterator[str | None]:
    """Yield the bodies of what was answered to the messages of the user, one after the other."""
    for call in calls:
        is_answer = call["purpose"] == "test" and call["status"] == "responded"
        if is_answer and (call["text"] or json.loads(call["tool_calls"] or "[]")):
            yield body_of(db, call["recorded_in"] or f"{source}/{call['call']}")


def tool_calls_of(db: sqlite3.Connection, column: str | None) -> Iterator[ToolCall]:
    """Yield the tool calls of an answer; `column` is the one of the table of calls.

    Raises `PurgedError` if what was written in them is not there any more.
    """
    for call in json.loads(column or "[]"):
        written = _text(db, call["arguments"]["$ref"])
        yield tool_call(call, written)


def _rebuild(
    db: sqlite3.Connection,
    messages: Sequence[Message],
    calls: Sequence[sqlite3.Row],
    tool_rows: Sequence[sqlite3.Row],
) -> Transcript:
    system = next((m.text for m in messages if m.role is Role.SYSTEM), None)
    users = (m.text for m in messages if m.role is Role.USER)
    transcript = Transcript(system)
    if (user := next(users, None)) is not None:
        # That of a scenario comes with its first call.
        transcript = transcript.with_turn(user)
    used: dict[int, list[sqlite3.Row]] = {}
    for row in tool_rows:
        used.setdefault(row["call"], []).append(row)
    for call in calls:
        if call["purpose"] != "test":
            continue
        if call["try"] == 1:  # What is tried again is not said again.
            for message in read_messages(db, call["messages"]):
                if message.role is Role.USER:
                    transcript = transcript.with_turn(message.text)
        step = _step(db, call, used.get(call["call"], []))
        if step is not None:
            transcript = transcript.with_step(step)
    return transcript


def _step(
    db: sqlite3.Connection, call: sqlite3.Row, tool_rows: Sequence[sqlite3.Row]
) -> Step | None:
    """Return the step that an answer was; None without an answer, and while tools had to answer."""
    if call["status"] != "responded":
        return None
    if call["text"] is None:
        raise PurgedError
    asked = json.loads(call["tool_calls"] or "[]")
    answered = [row for row in tool_rows if row["response_ref"] is not None]
    if len(answered) < len(asked) or not (call["text"] or asked):
        return None
    finish = call["finish_reason"]
    return Step(
        text=call["text"],
        tool_uses=tuple(
            tool_use(db, each, row) for each, row in zip(asked, answered, strict=False)
        ),
        usage=Usage(call["input_tokens"], call["output_tokens"]),
        cost=_cost(call),
        latency_ms=call["latency_ms"],
        finish_reason=None if finish is None else FinishReason(finish),
        model=call["reported_model"],
        recorded=call["recorded_in"] is not None,
        reported=numbers_of(call),
        reports_tools=bool(call["reports_tools"]),
    )


def numbers_of(call: sqlite3.Row) -> dict[str, float]:
    """Return what an agent told of an answer; raise `PurgedError` if it is not there any more."""
    if call["reported_ref"] is None:
        return {}
    if call["reported"] is None:
        raise PurgedError
    numbers = _parsed(call["reported"])
    return numbers if isinstance(numbers, dict) else {}


def tool_use(db: sqlite3.Connection, call: Mapping[str, Any], row: sqlite3.Row) -> ToolUse:
    """Return a tool call of an answer, with what was answered to it as its row tells.

    Raises `PurgedError` if what was written in them is not there any more.
    """
    if row["arguments"] is None or row["response"] is None:
        raise PurgedError
    return ToolUse(
        tool_call(call, row["arguments"]),
        _parsed(row["response"]),
        row["rule"],
        tuple(
            ToolProblem(ToolProblemKind(found["kind"]), _text(db, found["message"]["$ref"]))
            for found in json.loads(row["problems"] or "[]")
        ),
    )


def tool_call(call: Mapping[str, Any], written: str) -> ToolCall:
    """Return a recorded tool call, with its arguments as they were written."""
    arguments = None if call.get("malformed") else _parsed(written)
    if not isinstance(arguments, dict):
        # No JSON object as it was written, or none any more since something in it was taken out.
        return ToolCall(call["id"], call["name"], {}, malformed=written)
    return ToolCall(call["id"], call["name"], arguments)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _cost(call: sqlite3.Row) -> Cost:
    recorded = call["recorded_in"] is not None
    usd = call["cost_then_usd"] if recorded else call["cost_usd"]
    return Cost(usd, CostSource(call["cost_source"]))


def read_messages(db: sqlite3.Connection, column: str) -> Iterator[Message]:
    """Yield the messages of a column that holds them; raise `PurgedError` without their texts."""
    for message in json.loads(column):
        yield Message(
            Role(message["role"]),
            _text(db, message["text"]["$ref"]),
            tuple(
                tool_call(call, _text(db, call["arguments"]["$ref"]))
                for call in message.get("tool_calls", ())
            ),
            message.get("tool_call_id"),
            prefill=bool(message.get("prefill")),
        )


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


def _purged(source: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"Texts of the conversation {source} were purged or withheld: it can not be looked at"
        " again.",
        "Run the test again: kindlm test. What was withheld comes with a copy that has it:"
        " kindlm merge",
    )
