"""Answers and requests in any of the wire formats, as JSON or as a stream.

Each format is a module with four functions: `answer_of` reads a complete body, `usage_of` only its
tokens, `whole_of` joins the events of a stream into such a body, and `messages_of` reads a request.
So a stream reads as the same answer without streaming does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    is_sse,
    objects,
    parse_events,
    parse_object,
    responses,
    text_or_none,
)

_FORMATS = {"chat": chat, "responses": responses, "anthropic": anthropic}


def read_answer(wire: Wire, content_type: str, body: str) -> WireAnswer:
    """Read the body of an answer of any status; what cannot be read is in its `error`.

    Args:
        wire: The format.
        content_type: As its header says, or "".
        body: The body as text, as far as it came.
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
        # A stream that broke off has not reported all its tokens.
        usage = format_.usage_of(whole) if is_whole else Usage()
        model = text_or_none(whole.get("model"))
        return WireAnswer("", error=str(error), complete=False, usage=usage, model=model)
    says_calls = answer.finish_reason is FinishReason.TOOL_CALLS
    if says_calls and not answer.tool_calls:
        return replace(answer, error="it ends with tool calls, and none is in it", complete=False)
    return answer if is_whole else replace(answer, complete=False)


@dataclass(frozen=True, slots=True)
class WireRequest:
    """What a request says.

    Attributes:
        messages: what was said before, the system text first. In the text of a message, parts that
            are not text stand as `[image]` and the like.
        tool_results: the results of tool calls, by the ids of the calls: JSON values, or texts that
            are not JSON. Of a tool that failed, an object with `error`.
        offers_tools: whether tools are on offer.
        continues: the id of the answer that this continues, where the provider remembers it.
    """

    messages: tuple[Message, ...] = ()
    tool_results: Mapping[str, Any] = field(default_factory=dict)
    offers_tools: bool = False
    continues: str | None = None


def read_request(wire: Wire, body: Mapping[str, Any]) -> WireRequest:
    """Read the body of a request; nothing raises.

    What is not known in it is left out; so are all messages if one cannot be written as JSON.
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
        offers_tools=bool(objects(body.get("tools"))),
        continues=text_or_none(body.get("previous_response_id")),
    )


def _events(body: str) -> Iterator[Mapping[str, Any]]:
    """Return the JSON objects of a stream in turn, with `[DONE]` as an object of that `type`.

    Where a stream breaks off within an event, that event is left out.

    Raises:
        UnreadableReply: another event holds no JSON object.
    """
    events = list(parse_events(body))
    for event in events:
        if event.data == DONE:
            yield {"type": DONE}
            return
        try:
            yield parse_object(event.data)
        except UnreadableReply:
            if event is not events[-1]:
                raise
