"""What a model answered, in any of the wire formats, as JSON or as a stream.

Each format is a module with three functions: `answer_of` reads a whole body, `whole_of` puts the
events of a stream together as such a body, and `request_of` reads a request. So a stream says what
the same answer says without streaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

from kindlm.strict_json import parse_json, unique_keys
from kindlm.transcript import FinishReason, ToolCall, Usage
from kindlm.wires.sse import DONE, is_sse, parse_events

Wire = Literal["chat", "responses", "anthropic"]
"""OpenAI's Chat Completions, OpenAI's Responses, Anthropic's Messages."""

_MOST_TOKENS = 2**53


class UnreadableReply(ValueError):  # noqa: N818 - it names what arrived
    """A body that is no answer: the message says what is wrong with it, `hint` what helps."""

    hint: str | None = None


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """What an answer of a model says.

    Attributes:
        text: all text in it; a refusal if there is nothing else.
        tool_calls: all calls in their order.
        usage: the tokens that it reports.
        finish_reason: why it ended.
        model: the model that it names.
        id: its id, which a later request may name.
        hosted: the calls that the provider ran itself, by their ids, with their results; None
            where a result is not shown. Nobody else answers these.
        error: why it is no answer, or none to go by: what the provider says, or what cannot be
            read.
        complete: whether it came to its end.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: FinishReason | None = None
    model: str | None = None
    id: str | None = None
    hosted: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    complete: bool = True

    @property
    def own_calls(self) -> tuple[ToolCall, ...]:
        """The calls that whoever asked is to answer."""
        if not self.hosted:
            return self.tool_calls
        return tuple(call for call in self.tool_calls if call.id not in self.hosted)


def read_answer(wire: Wire, content_type: str, body: str) -> WireAnswer:
    """Read the body of an answer of any status; what cannot be read is in its `error`.

    Args:
        wire: The format.
        content_type: As its header says, or "".
        body: The body as text, as far as it came.
    """
    # Each of these modules imports this one.
    format_ = import_module(f"kindlm.wires.{wire}")
    is_whole = True
    try:
        if "event-stream" in content_type.lower() or is_sse(body):
            whole, is_whole = format_.whole_of(stream_objects(body))
        else:
            whole = parse_body(body)
        answer: WireAnswer = format_.answer_of(whole)
    except (ValueError, RecursionError) as error:
        return WireAnswer("", error=str(error), complete=False)
    return answer if is_whole else replace(answer, complete=False)


def parse_body(text: str) -> Mapping[str, Any]:
    """Return the JSON object that a body is; raise `UnreadableReply` if it is none."""
    try:
        body = parse_json(text, unique_keys)
    except ValueError as error:
        raise UnreadableReply(f"no JSON: {error}") from None
    if not isinstance(body, dict):
        raise UnreadableReply("no JSON object")
    return body


def stream_objects(body: str) -> Iterator[Mapping[str, Any]]:
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
            yield parse_body(event.data)
        except UnreadableReply:
            if event is not events[-1]:
                raise


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none if it is no list."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def text_or_none(value: Any) -> str | None:
    """Return a text, None for anything else."""
    return value if isinstance(value, str) else None


def token_count(value: Any) -> int | None:
    """Return a reported number of tokens, None for anything that can be none.

    A number that is negative, or larger than a database holds, was not counted by anybody.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < _MOST_TOKENS else None


def error_message(body: Any) -> str | None:
    """Find the human sentence in an error body; providers and proxies put it in various places."""
    if not isinstance(body, Mapping):
        return None
    error = body.get("error", body)
    if isinstance(error, Mapping):
        error = error.get("message", error.get("detail"))
    return error if isinstance(error, str) and error else None


def part_texts(content: Any) -> Iterable[str]:
    """Return the texts of a list of parts, refusals among them."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            text = part.get("text", part.get("refusal"))
            if isinstance(text, str):
                yield text
