"""Reads answers and requests in any wire format, as JSON or as a stream.

Each format is a module with four functions: `answer_of` reads a complete body, `usage_of` only its
tokens, `whole_of` joins the events of a stream into such a body, and `messages_of` reads a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from kindlm.dataclass import dataclass, replace
from kindlm.strict_json import read_json
from kindlm.transcript import FinishReason, Message, Usage
from kindlm.wires import (
    DONE,
    UnreadableReply,
    Wire,
    WireAnswer,
    anthropic,
    chat,
    error_message,
    is_sse,
    objects,
    parse_events,
    parse_object,
    responses,
    text_or_none,
)

_FORMATS = {"chat": chat, "responses": responses, "anthropic": anthropic}

WIRES: Mapping[str, Wire] = {
    "openai/chat/completions": "chat",
    "openai/responses": "responses",
    "anthropic/messages": "anthropic",
}
"""The format of a request by its recorded path. Requests to other paths are not understood."""

ITEMS = {"chat": "messages", "responses": "input", "anthropic": "messages"}
"""The key with the list of messages in requests of a format."""


def read_answer(wire: Wire, content_type: str, body: str) -> WireAnswer:
    """Read the body of an answer with any status, perhaps cut off; problems are in `error`.

    `content_type` is the value of the header, or "".
    """
    format_, is_whole = _FORMATS[wire], True
    whole: Mapping[str, Any] = {}
    try:
        if "event-stream" in content_type.lower() or is_sse(body):
            whole, is_whole = format_.whole_of(_events(body))
        else:
            whole = parse_object(body)
        answer: WireAnswer = format_.answer_of(whole)
    except (ValueError, RecursionError) as error:
        # A stream that was cut off has not reported all its tokens.
        usage = format_.usage_of(whole) if is_whole else Usage()
        model = text_or_none(whole.get("model"))
        return WireAnswer("", error=str(error), complete=False, usage=usage, model=model)
    if answer.finish_reason is FinishReason.TOOL_CALLS and not answer.tool_calls:
        return replace(answer, error="it ends with tool calls, and none is in it", complete=False)
    return answer if is_whole else replace(answer, complete=False)


@dataclass(frozen=True, slots=True)
class WireRequest:
    """The content of a request.

    Attributes:
        messages: the conversation, the system text first. Parts without a text appear as their
            type, such as `[image]`.
        tool_results: the results of tool calls by the ids of the calls: JSON values, or texts that
            are not JSON. The result of a failed tool is an object with `error`.
        offers_tools: whether the request defines tools.
        continues: the id of the answer that the request continues, if the provider stores it.
    """

    messages: tuple[Message, ...] = ()
    tool_results: Mapping[str, Any] = field(default_factory=dict)
    offers_tools: bool = False
    continues: str | None = None


def read_request(wire: Wire, body: Mapping[str, Any]) -> WireRequest:
    """Read the body of a request; never raises.

    Unknown parts are left out, and so are all messages if one of them cannot be read.
    """
    try:
        messages = tuple(_FORMATS[wire].messages_of(body))
    except (ValueError, RecursionError):
        messages = ()
    return WireRequest(
        messages=messages,
        tool_results={
            message.tool_call_id: read_json(message.text)
            for message in messages
            if message.tool_call_id is not None
        },
        offers_tools=bool(objects(body.get("tools")) or objects(body.get("functions"))),
        continues=text_or_none(body.get("previous_response_id")),
    )


def sent_body(path: str, body: str | None, items: Sequence[str]) -> Any:
    """Return the body of a request as a JSON value, from its separately recorded `items`."""
    sent, wire = read_json(body), WIRES.get(path)
    if items and wire is not None and isinstance(sent, dict):
        sent[ITEMS[wire]] = list(map(read_json, items))
    return sent


def _events(body: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of a stream, with `[DONE]` as an object of that `type`.

    An incomplete last event is left out.

    Raises:
        UnreadableReply: another event has no JSON object, or reports an error.
    """
    events = list(parse_events(body))
    for event in events:
        if event.data == DONE:
            yield {"type": DONE}
            return
        try:
            value = parse_object(event.data)
        except UnreadableReply:
            if event is not events[-1]:
                raise
            return
        if value.get("type") == "error" or value.get("error"):
            raise UnreadableReply(error_message(value) or "the stream ended with an error")
        yield value
