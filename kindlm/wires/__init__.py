"""The wire formats of model APIs: reads their answers and requests.

Providers, agents and the gateway read the same bodies. Everything in them is untrusted. A module is
one format, and `reading` reads any of them. This module has `WireAnswer`, what a model answered,
and what all formats consist of: JSON, or a stream of events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from kindlm.bounds import MAX_COUNTED
from kindlm.dataclass import dataclass
from kindlm.strict_json import parse_json, unique_keys
from kindlm.transcript import Extras, FinishReason, Role, ToolCall, Usage

Wire = Literal["chat", "responses", "anthropic"]
"""OpenAI's Chat Completions, OpenAI's Responses, Anthropic's Messages."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What an answer says that it took: tokens, US dollars, and the model."""

    usage: Usage = Usage()
    cost_usd: float | None = None
    model: str | None = None

    def __bool__(self) -> bool:
        """Tell whether it says how much."""
        return self.usage != Usage() or self.cost_usd is not None


class UnreadableReply(ValueError):  # noqa: N818 - it names what arrived
    """A body that is no answer: the message says what is wrong with it, `hint` what helps.

    `spent` is what a stream of an agent reported before.
    """

    hint: str | None = None
    spent: Spent | None = None


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """What an answer of a model says.

    Attributes:
        text: all text in it; a refusal if there is nothing else.
        tool_calls: all calls in their order.
        usage: the tokens that it reports, also beside an error.
        finish_reason: why it ended.
        model: the model that it names.
        id: its id, which a later request may name.
        hosted: the calls that the provider ran itself, by their ids, with their results; None
            where a result is not shown.
        error: what the provider says went wrong, or what in the body cannot be read; None if the
            body is an answer.
        complete: whether it came to its end.
        echo: see `Message.echo`.
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
    echo: Mapping[str, Any] | None = None

    @property
    def own_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the client answers: all that the provider did not run."""
        if not self.hosted:
            return self.tool_calls
        return tuple(call for call in self.tool_calls if call.id not in self.hosted)


def parse_body(text: str) -> Any:
    """Return the JSON value that a body is; raise `UnreadableReply` if it is none."""
    try:
        return parse_json(text, unique_keys)
    except ValueError as error:
        raise UnreadableReply(f"not valid JSON: {error}") from None


def parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a body is; raise `UnreadableReply` if it is none."""
    value = parse_body(text)
    if not isinstance(value, dict):
        raise UnreadableReply("not a JSON object")
    return value


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none if it is not a list."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def object_or_empty(value: Any) -> Mapping[str, Any]:
    """Return an object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def text_or_none(value: Any) -> str | None:
    """Return a text, None for anything else."""
    return value if isinstance(value, str) else None


def token_count(value: Any) -> int | None:
    """Return a reported number of tokens, None for what is not a whole number from 0 up.

    Larger counts than `MAX_COUNTED` are ignored, too.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MAX_COUNTED else None


def token_usage(counts: Any, sent: str, written: str, tier: Any = None) -> Usage:
    """Return the tokens that an answer reports by these names, and the tier that it names."""
    if not isinstance(counts, dict):
        return Usage()
    details, of_answer = (
        object_or_empty(counts.get(f"{name}_details")) for name in (sent, written)
    )
    cached, stored = details.get("cached_tokens"), details.get("cache_write_tokens")
    # Audio has prices of its own.
    has_audio = any(token_count(each.get("audio_tokens")) for each in (details, of_answer))
    extras = extras_from(cached, stored, tier=tier, unpriced=has_audio)
    return Usage(token_count(counts.get(sent)), token_count(counts.get(written)), extras)


_STANDARD = frozenset({"default", "standard", "auto", "on_demand"})
"""How OpenAI, Anthropic, who defers to a setting, and Groq name the standard tier of service."""


def extras_from(
    cache_read: Any = None,
    cache_written: Any = None,
    written_1h: Any = None,
    searches: Any = None,
    *,
    tier: Any = None,
    us_only: bool = False,
    unpriced: bool = False,
) -> Extras | None:
    """Return the extras by their reported numbers; None if there are none."""
    read, written, longer, searched = (
        token_count(number) or 0 for number in (cache_read, cache_written, written_1h, searches)
    )
    named = tier if isinstance(tier, str) and tier and tier not in _STANDARD else None
    extras = Extras(read, written, longer, searched, tier=named, us_only=us_only, unpriced=unpriced)
    return None if extras == Extras() else extras


def error_message(body: Any) -> str | None:
    """Find the human sentence in an error body; providers and proxies put it in various places."""
    if isinstance(body, list) and body:
        body = body[0]  # Google's errors stand in a list
    if not isinstance(body, Mapping):
        return None
    if (choices := objects(body.get("choices"))) and "error" not in body:
        body = choices[0]  # OpenRouter's, of an answer that it cuts off
    error = body.get("error", body)
    if isinstance(error, Mapping):
        error = error.get("message", error.get("detail"))
    return error if isinstance(error, str) and error else None


def content_text(content: Any, *, shows_others: bool = False) -> str:
    """Return the text of a content: a string, or parts of which some are texts or refusals.

    Other parts are left out, or `shows_others`: they stand there as `[image]` and the like.
    """
    if isinstance(content, str):
        return content
    texts = list[str]()
    for part in content if isinstance(content, list) else ():
        is_part = isinstance(part, dict)
        text = part.get("text", part.get("refusal")) if is_part else part
        if isinstance(text, str):
            texts.append(text)
        elif is_part and shows_others:
            texts.append(f"[{part.get('type')}]")
    return "".join(texts)


def said_text(content: Any) -> str:
    """Return the text of what was said, in which parts without a text show their types."""
    return content_text(content, shows_others=True)


_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


def role_of(value: Any) -> Role:
    """Return whose message it is; what is not known is the user's."""
    return _ROLES.get(value, Role.USER) if isinstance(value, str) else Role.USER


DONE = "[DONE]"
"""The data of an event that ends a stream of completions."""

LINE_END = re.compile(r"\r\n|\n|\r")
_FIELD = re.compile(r"\s*(?:data|event):")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its type, and its data lines as one text."""

    type: str
    data: str


def parse_events(text: str) -> Iterator[Event]:
    """Return the events of a stream that was read to its end.

    One rule is not kept: an event that the end of the stream cuts off counts. Servers forget the
    empty line after the last event, and the event would be lost without a trace.
    """
    kind, data = "message", list[str]()
    for line in [*LINE_END.split(text.removeprefix("\ufeff")), ""]:
        if not line:
            if data:
                yield Event(kind, "\n".join(data))
            kind, data = "message", []
            continue
        field, _, value = line.partition(":")  # a line that begins with a colon is a comment
        value = value.removeprefix(" ")
        if field == "event":
            kind = value or "message"
        elif field == "data":
            data.append(value)


def is_sse(text: str) -> bool:
    """Tell whether a stream that does not say what it is looks like server-sent events."""
    return _FIELD.match(text.removeprefix("\ufeff")) is not None
