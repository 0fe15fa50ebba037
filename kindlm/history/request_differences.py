"""How a request differs from one that was recorded, to say why it was never recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from kindlm.events import ProviderRequested
from kindlm.ports import Asked
from kindlm.stored_form import bounded
from kindlm.transcript import Message, Role, ToolCall
from kindlm.wording import shown

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


_CONTEXT = 30


def differences(
    asked: Asked, then: ProviderRequested, tools_then: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """Yield how a request differs from a recorded one, what explains most first.

    `then` holds all messages of the recorded request.
    """
    now = asked.request
    if asked.provider != then.provider:
        yield f"the provider is {shown(asked.provider)}, it was {shown(then.provider)}"
    if now.model != then.model:
        yield f"the model is {shown(now.model)}, it was {shown(then.model)}"
    for name in ("temperature", "max_tokens", "top_p", "seed"):
        value, before = getattr(now.params, name), then.parameters.get(name)
        if value != before:
            yield f"{name} is {shown(value)}, it was {shown(before)}"
    yield from _tools(
        {tool.name: (tool.description, tool.parameters) for tool in now.tools},
        {tool["name"]: (tool["description"], tool["parameters"]) for tool in tools_then},
    )
    yield from _messages(now.messages, then.messages)


def text_difference(now: str, then: str) -> str:
    """Return both texts around the first character in which they differ."""
    pairs = enumerate(zip_longest(now, then))
    same = next((index for index, (new, old) in pairs if new != old), 0)
    start = max(0, same - _CONTEXT)
    lead = "…" if start else ""
    end = same + 2 * _CONTEXT
    return f"{shown(lead + now[start:end])}, it was {shown(lead + then[start:end])}"


def _tools(now: dict[str, Any], then: dict[str, Any]) -> Iterator[str]:
    for name, tool in {**now, **then}.items():
        if name not in then:
            yield f"the tool {shown(name)} is new"
        elif name not in now:
            yield f"the tool {shown(name)} is gone"
        elif now[name] != tool:
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
