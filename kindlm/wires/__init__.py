"""The wire formats of model APIs: reads answers and requests, all of them untrusted.

Each format is a module, and `reading` reads any format. This module has the result, `WireAnswer`,
and the common parts: JSON, usage, errors, and server-sent events.
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


def text_encoding(named: str | None) -> str:
    """Return the encoding that a server names if it is one of text; else UTF-8, as for `hex`."""
    encoding = named or "utf-8"
    try:
        text = b'"a\xff"'.decode(encoding, "replace")
    except (LookupError, UnicodeError):
        text = ""
    # From Python 3.13 on, `punycode` drops what it cannot decode.
    return encoding if text else "utf-8"


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage that an answer reports: tokens, US dollars, and the model."""

    usage: Usage = Usage()
    cost_usd: float | None = None
    model: str | None = None

    def __bool__(self) -> bool:
        """Return whether tokens or a cost were reported."""
        return self.usage != Usage() or self.cost_usd is not None


class UnreadableReply(ValueError):  # noqa: N818 - it names what arrived
    """A body that cannot be read: the message says why, `hint` has the remedy.

    `spent` is the usage that a stream of an agent reported before.
    """

    hint: str | None = None
    spent: Spent | None = None

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint or self.hint


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """The content of a model's answer.

    Attributes:
        text: all text, or else the refusal.
        tool_calls: all calls in their order.
        usage: the reported tokens, also of an answer with an error.
        model: the model that the answer names.
        id: the id of the answer, which a later request may name.
        hosted: the results of the calls that the provider ran, by the calls' ids; None for a
            result that the answer does not show.
        error: the provider's error, or why the body cannot be read; None for an answer.
        complete: whether the body is complete.
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
        """The calls that the provider did not run."""
        if not self.hosted:
            return self.tool_calls
        return tuple(call for call in self.tool_calls if call.id not in self.hosted)


def parse_body(text: str) -> Any:
    """Return the JSON value of a body; raise `UnreadableReply` if it is not JSON."""
    try:
        return parse_json(text, unique_keys)
    except ValueError as error:
        raise UnreadableReply(f"not valid JSON: {error}") from None


def parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object of a body; raise `UnreadableReply` if it is anything else."""
    value = parse_body(text)
    if not isinstance(value, dict):
        raise UnreadableReply("not a JSON object")
    return value


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects in a list; an empty list for anything else."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def object_or_empty(value: Any) -> Mapping[str, Any]:
    """Return an object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def text_or_none(value: Any) -> str | None:
    """Return a text, or None for anything else."""
    return value if isinstance(value, str) else None


def token_count(value: Any) -> int | None:
    """Return a reported number of tokens; None unless it is an integer from 0 to `MAX_COUNTED`.

    10.0 is one, too, as in all JSON.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if 0 <= value <= MAX_COUNTED and value == int(value) else None


def token_usage(counts: Any, sent: str, written: str, tier: Any = None) -> Usage:
    """Return the tokens under the names `sent` and `written` of a `usage`, with its extras."""
    if not isinstance(counts, dict):
        return Usage()
    details = [object_or_empty(counts.get(f"{name}_details")) for name in (sent, written)]
    cached, stored = details[0].get("cached_tokens"), details[0].get("cache_write_tokens")
    # Audio has other prices.
    has_audio = any(token_count(each.get("audio_tokens")) for each in details)
    extras = extras_from(cached, stored, tier=tier, unpriced=has_audio)
    usage = Usage(token_count(counts.get(sent)), token_count(counts.get(written)), extras)
    # Some servers report 0 if they did not count.
    return Usage() if usage.total == 0 else usage


_STANDARD = frozenset({"default", "standard", "auto", "on_demand"})
"""Names of the standard service tier at OpenAI, Anthropic and Groq; `auto` follows a setting."""


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
    """Return the extras of a usage from reported values; None if there are none.

    A value that is not a count makes the cost unknown.
    """
    reported = (cache_read, cache_written, written_1h, searches)
    read, written, longer, searched = (token_count(number) or 0 for number in reported)
    unpriced |= any(count is not None and token_count(count) is None for count in reported)
    named = tier if isinstance(tier, str) and tier and tier not in _STANDARD else None
    extras = Extras(read, written, longer, searched, tier=named, us_only=us_only, unpriced=unpriced)
    return None if extras == Extras() else extras


def error_message(body: Any) -> str | None:
    """Return the message in an error body, wherever a provider or proxy puts it."""
    if isinstance(body, list) and body:
        body = body[0]  # Google
    if not isinstance(body, Mapping):
        return None
    if (choices := objects(body.get("choices"))) and "error" not in body:
        body = choices[0]  # OpenRouter, for an answer that was cut off
    error = body.get("error", body)
    if isinstance(error, Mapping):
        error = error.get("message", error.get("detail"))
    return error if isinstance(error, str) and error else None


def content_text(content: Any, *, shows_others: bool = False) -> str:
    """Return the text of a content: of a string, or of the texts and refusals among its parts.

    Other parts are left out. With `shows_others`, they appear as their type, such as `[image]`.
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
    """Return the text of a message; parts without a text appear as their type."""
    return content_text(content, shows_others=True)


_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


def role_of(value: Any) -> Role:
    """Return the role of a message; the user's for unknown values."""
    return _ROLES.get(value, Role.USER) if isinstance(value, str) else Role.USER


DONE = "[DONE]"
"""The data of the last event in a stream of completions."""

LINE_END = re.compile(r"\r\n|\n|\r")
_FIELD = re.compile(r"\s*(?:data|event):")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its type, and its data lines as one text; `is_cut` if its data never came."""

    type: str
    data: str
    is_cut: bool = False


def parse_events(text: str) -> Iterator[Event]:
    """Yield the events of a complete stream.

    Unlike the standard demands, the last event counts without an empty line after it: some servers
    omit that line.
    """
    kind, data = "message", list[str]()
    lines = LINE_END.split(text.removeprefix("\ufeff"))
    for line in lines if lines[-1] else lines[:-1]:
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
    if data or kind != "message":
        yield Event(kind, "\n".join(data), is_cut=not data)


def is_sse(text: str) -> bool:
    """Return whether a body without a content type looks like server-sent events."""
    return _FIELD.match(text.removeprefix("\ufeff")) is not None
