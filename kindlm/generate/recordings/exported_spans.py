"""Reads the spans in exports of observability tools, whose forms differ.

An observation of Langfuse and a run of LangSmith say what a span of the GenAI conventions says,
under other names. They become such spans here, so that one reader of traces serves all sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kindlm.dataclass import replace
from kindlm.strict_json import read_json
from kindlm.telemetry import dialects
from kindlm.telemetry.spans import Span

_MAX_DEPTH = 20
_HOLDERS = ("messages", "generations", "choices", "message", "output", "outputs", "input", "inputs")
"""Where messages are in what a model was given or gave back, the most telling keys first."""


def exported_span(
    trace: str,
    key: str,
    parent: str,
    name: str,
    times: tuple[Any, Any],
    *,
    error: str | None = None,
    session: Any = None,
) -> Span:
    """Return a span of which only the id of its conversation is known; `times` are as exported."""
    start, end = map(nanoseconds, times)
    known, is_error = {"session.id": session}, error is not None
    return Span(trace, key, parent, name, "", start, end, known, {}, is_error, error or "")


def chat_span(span: Span, asked: Any, said: Any, facts: Mapping[str, Any]) -> Span:
    """Return the span of a model call: what the model was asked, and what it said."""
    given = read_json(asked) if isinstance(asked, str) else asked
    messages = messages_of(given, "user")
    # Langfuse appends the tools that LangChain gives to a model to its messages.
    tools = [each["content"] for each in messages if isinstance(each.get("content"), dict)]
    if isinstance(given, dict):
        tools.append(given.get("tools"))
    return _known(
        span,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": [
                each for each in messages if not isinstance(each.get("content"), dict)
            ],
            "gen_ai.output.messages": messages_of(said, "assistant"),
            "gen_ai.tool.definitions": tools,
            **facts,
        },
    )


def tool_span(span: Span, arguments: Any, result: Any, call_id: Any = None) -> Span:
    """Return the span of a tool call; the arguments may be the text of a mapping."""
    given = read_json(arguments) if isinstance(arguments, str) else arguments
    value = read_json(result) if isinstance(result, str) else result
    message = dialects.unwrapped(value)
    if isinstance(message, dict) and "tool_call_id" in message and "content" in message:
        call_id = call_id or message["tool_call_id"]
        value = message["content"]
    if span.is_error and value is None:
        value = {"error": span.status_message}
    return _known(
        span,
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": span.name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.call.arguments": given,
            "gen_ai.tool.call.result": value,
        },
    )


def agent_span(span: Span, asked: Any, said: Any) -> Span:
    """Return the span of what is neither a model call nor a tool call."""
    return _known(
        span,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.input.messages": messages_of(asked, "user"),
            "gen_ai.output.messages": messages_of(said, "assistant"),
        },
    )


def _known(span: Span, attributes: Mapping[str, Any]) -> Span:
    known = {name: value for name, value in attributes.items() if value not in (None, [], "")}
    return with_attributes(span, known)


def with_attributes(span: Span, attributes: Mapping[str, Any]) -> Span:
    """Return a span with the attributes of any convention, too."""
    return replace(span, attributes={**span.attributes, **attributes})


def messages_of(value: Any, role: str) -> list[dict[str, Any]]:
    """Return the messages in what a model was given or gave back, each with a `role`.

    Read are the forms of OpenAI, Anthropic and LangChain, JSON text of them, and plain text, which
    is a message of `role`.
    """
    return list(_messages(value, role, 0))


def _messages(value: Any, role: str, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _MAX_DEPTH or value is None:
        return
    if isinstance(value, str):
        parsed = read_json(value)
        if isinstance(parsed, dict | list):
            yield from _messages(parsed, role, depth + 1)
        elif value:
            yield {"role": role, "content": value}
    elif isinstance(value, list):
        if len(value) == 2 and all(isinstance(part, str) for part in value):
            yield {"role": value[0], "content": value[1]}  # as LangChain takes them, too
            return
        for each in value:
            yield from _messages(each, role, depth + 1)
    elif isinstance(value, dict):
        yield from _of_object(dialects.unwrapped(value), role, depth)


def _of_object(value: dict[str, Any], role: str, depth: int) -> Iterator[dict[str, Any]]:
    kind = value.get("type")
    if not {"content", "tool_calls", "parts"}.isdisjoint(value):
        # In LangChain, the type says whose message it is.
        yield value if "role" in value or isinstance(kind, str) else {"role": role, **value}
        return
    if isinstance(kind, str) and kind.startswith("function_call"):
        yield {"role": role, **value}  # an item of OpenAI's Responses
        return
    for key in ("system", "instructions"):
        if isinstance(value.get(key), str | list):
            yield {"role": "system", "content": value[key]}
    holder = next((key for key in _HOLDERS if value.get(key)), None)
    if holder is not None:
        yield from _messages(value[holder], role, depth + 1)
    elif isinstance(value.get("text"), str):
        yield {"role": role, "content": value["text"]}
    elif len(texts := [each for each in value.values() if isinstance(each, str)]) == 1:
        yield {"role": role, "content": texts[0]}  # such as {"question": "…"}


def nanoseconds(value: Any) -> int:
    """Return a time in ns since 1970; 0 if it cannot be read. Numbers are milliseconds."""
    if isinstance(value, int | float) and 0 <= value < 2**50:
        return int(value * 1_000_000)
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return 0
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1e9)
