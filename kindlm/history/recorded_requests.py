"""Requests that were recorded, whole again, and how another request differs from one.

A conversation is recorded once: a request names the call that it continues, and what is new since.
Here it is put together, to say why a request of today was never recorded.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from kindlm.history.transcripts import PurgedError, read_messages, read_tool_calls
from kindlm.ports import Asked
from kindlm.stored_form import bounded
from kindlm.transcript import Message, Role, ToolCall
from kindlm.wording import shown

__all__ = ["RecordedRequest", "differences", "is_as_recorded", "read_request", "text_difference"]

# What stands in a suite until values of the environment are put in. They are not recorded as such.
_DEFERRED = re.compile("\ufdd0\\{\\{[\\w.]+\\}\\}")


def is_as_recorded(message: Message, then: str) -> bool:
    """Tell whether a message of now is a recorded text, whatever the environment put into it."""
    if message.text == then:
        return True
    if message.written is None:
        return False
    first, *rest = _DEFERRED.split(message.written)
    if not rest or not then.startswith(first):
        return False
    position = len(first)
    for piece in rest[:-1]:
        found = then.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return then.endswith(rest[-1]) and len(then) - len(rest[-1]) >= position


_REQUEST = """
SELECT c.provider, c.model, c.parameters, c.after, c.messages, e.messages AS first,
       t.body AS tools
  FROM provider_calls c
  JOIN executions e ON e.id = c.execution
  LEFT JOIN contents t ON t.ref = e.tools_ref
 WHERE c.execution = ? AND c.attempt = ? AND c.call = ?
"""

_ANSWERED = """
SELECT c.after, c.messages, t.body AS text, c.tool_calls
  FROM provider_calls c
  LEFT JOIN contents t ON t.ref = c.text_ref
 WHERE c.execution = ? AND c.attempt = ? AND c.call = ?
"""

_CONTEXT = 30


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it was recorded; secrets may have been taken out of its texts."""

    provider: str
    model: str
    parameters: dict[str, Any]
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]


def read_request(
    db: sqlite3.Connection, execution: str, attempt: int, call: int
) -> RecordedRequest:
    """Return a recorded request with the whole conversation that it continues.

    Raises `PurgedError` if a text of it is not there any more.
    """
    row = db.execute(_REQUEST, (execution, attempt, call)).fetchone()
    messages: list[Message] = []
    new, after = row["messages"], row["after"]
    while True:
        messages[:0] = read_messages(db, new)
        if not after:
            break
        before = db.execute(_ANSWERED, (execution, attempt, after)).fetchone()
        if before["text"] is None:
            raise PurgedError
        calls = tuple(read_tool_calls(db, before["tool_calls"]))
        messages.insert(0, Message(Role.ASSISTANT, before["text"], tool_calls=calls))
        new, after = before["messages"], before["after"]
    if after is not None:
        first = list(read_messages(db, row["first"]))
        if messages and first[-1].prefill and row["after"]:
            first.pop()  # The answer began with it.
        messages[:0] = first
    tools = json.loads(row["tools"] or "[]") if row["after"] is not None else []
    return RecordedRequest(
        row["provider"],
        row["model"],
        json.loads(row["parameters"]),
        tuple(messages),
        tuple(tools),
    )


def differences(asked: Asked, then: RecordedRequest) -> Iterator[str]:
    """Yield how a request differs from a recorded one, what explains most first."""
    now = asked.request
    if asked.provider != then.provider:
        yield f"the provider is {shown(asked.provider)}, it was {shown(then.provider)}"
    if now.model != then.model:
        yield f"the model is {shown(now.model)}, it was {shown(then.model)}"
    params = now.params
    numbers = {
        "temperature": params.temperature,
        "max_tokens": params.max_tokens,
        "top_p": params.top_p,
        "seed": params.seed,
    }
    for name, value in numbers.items():
        before = then.parameters.get(name)
        if value != before:
            yield f"{name} is {shown(value)}, it was {shown(before)}"
    yield from _tools(
        {tool.name: (tool.description, tool.parameters) for tool in now.tools},
        {tool["name"]: (tool["description"], tool["parameters"]) for tool in then.tools},
    )
    yield from _messages(now.messages, then.messages)


def text_difference(now: str, then: str) -> str:
    """Return both texts around the first character in which they differ."""
    same = next(
        (
            index
            for index, pair in enumerate(zip_longest(now, then))
            if pair[0] != pair[1]
        ),
        0,
    )  # fmt: skip
    start = max(0, same - _CONTEXT)
    lead = "…" if start else ""
    end = same + 2 * _CONTEXT
    return f"{shown(lead + now[start:end])}, it was {shown(lead + then[start:end])}"


def _tools(now: dict[str, Any], then: dict[str, Any]) -> Iterator[str]:
    for name in now.keys() - then.keys():
        yield f"the tool {shown(name)} is new"
    for name in then.keys() - now.keys():
        yield f"the tool {shown(name)} is gone"
    for name in now.keys() & then.keys():
        if now[name] != then[name]:
            yield f"the tool {shown(name)} is described in another way"
    if now.keys() == then.keys() and list(now) != list(then):
        yield "the tools come in another order"


def _messages(now: Sequence[Message], then: Sequence[Message]) -> Iterator[str]:
    for number, (new, old) in enumerate(zip_longest(now, then), start=1):
        if new is None:
            yield f"message {number}, {_who(old)}, is gone"
        elif old is None:
            yield f"message {number}, {_who(new)}, is new: {shown(new.text)}"
        elif new.role is not old.role:
            yield f"message {number} is {_who(new)}, it was {_who(old)}"
        elif not is_as_recorded(new, old.text):
            yield f"message {number}, {_who(new)}, is {text_difference(new.text, old.text)}"
        elif list(map(_call, new.tool_calls)) != list(map(_call, old.tool_calls)):
            yield f"message {number}, {_who(new)}, asks for other tool calls"
        elif new.prefill != old.prefill or _answers(new) != _answers(old):
            yield f"message {number}, {_who(new)}, is marked in another way"
        else:
            continue
        return  # What follows from it differs, too.


def _who(message: Message) -> str:
    match message.role:
        case Role.SYSTEM:
            return "the system text"
        case Role.USER:
            return "of the user"
        case Role.TOOL:
            return f"the answer of the tool {shown(message.tool_name or '')}"
        case Role.ASSISTANT:
            return "the prefill" if message.prefill else "of the model"


def _answers(message: Message) -> str:
    """Return the id of the call that a message answers, as far as the record keeps ids."""
    return bounded(message.tool_call_id or "")


def _call(call: ToolCall) -> tuple[Any, ...]:
    return (bounded(call.id), bounded(call.name), call.arguments, call.malformed)
