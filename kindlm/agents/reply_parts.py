"""The base of all readers of replies: paths into JSON, limits, errors, and reported failures."""

from __future__ import annotations

import re
from typing import Any

from kindlm.errors import DOCS
from kindlm.matching import ABSENT, path_parts, value_at
from kindlm.strict_json import compact_json
from kindlm.wires import UnreadableReply

__all__ = ["ABSENT", "PATH", "UnreadableReply", "compact_json", "first_text", "lookup"]

WHOLE = "$"
"""The path of the whole value."""

PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d+\])*")
"""The form of a path: `choices[0].message.content`, or `choices.0.message.content`."""


def first_text(*values: Any) -> str | None:
    """Return the first text that is not empty."""
    return next((value for value in values if isinstance(value, str) and value), None)


def not_decoded(text: str, remedy: str) -> tuple[str, ...]:
    """Return a warning if bytes of an answer could not be decoded, for example of Latin-1."""
    lost = (
        "The answer has U+FFFD, which stands for bytes that cannot be decoded, so no check finds"
        f" what was there. {remedy}."
    )
    return (lost,) if "\ufffd" in text else ()


def lookup(value: Any, path: str) -> Any:
    """Return the value at a path, or `ABSENT`."""
    return value if path == WHOLE else value_at(value, path_parts(path))


WHERE_THE_TEXT_IS = (
    "Send the text as `text`, or say in kindlm.yaml where it is: `responsePath: data.answer` (`$` "
    "takes all of the answer as it is), `toolCallsPath` for the tool calls (`response_path`, "
    "`tool_calls_path` in kindlm.toml); or name its format there, such as `protocol: chat` "
    f"({DOCS}/how-to/agents/#protocols)"
)

AGENT_RULE = "agent"
"""The rule of tool calls that the agent itself answered, not a simulated tool."""

OF_A_GRAPH = re.compile(r'"messages"\s*:\s*\[\s*\{|"additional_kwargs"\s*:')
"""A list of messages, or a message of LangChain, in the JSON of an answer."""

READ_AS_GRAPH = (
    "If the agent is a graph, or answers with messages, write `adapter: langgraph`, with a `body`"
    f" if its server takes other keys than `messages` ({DOCS}/how-to/agents/#langgraph)"
)

MAX_EVENTS = 100_000
"""The most events of a stream."""

MAX_MESSAGES = 100_000
"""The most messages of a list."""

MAX_CALLS = 10_000
"""The most tool calls of an answer."""


class NoTextKnown(UnreadableReply):
    """JSON without text under any of the usual keys."""

    hint = WHERE_THE_TEXT_IS


class NotJson(UnreadableReply):
    """Invalid JSON in a place that requires JSON."""

    hint = (
        "Let the agent send complete, valid JSON in which no key occurs twice; or send plain text"
        " as text/plain. Its log may say why the answer is cut off or empty"
    )


ANOTHER_PROTOCOL = (
    "Give the `protocol` that the agent speaks, or leave it out: answers are then read by what they"
    f" look like ({DOCS}/how-to/agents/#protocols)"
)
BROKE_OFF = (
    "See the agent's log for why it stopped, or check that its server sends the event that ends the"
    f" stream: {DOCS}/reference/agent-answers/#the-end-of-a-stream"
)


def refuse_more(number: int, most: int, things: str) -> None:
    """Raise `UnreadableReply` if there are too many things."""
    if number > most:
        reason = f"it has more than {most:,} {things}"
        raise UnreadableReply(reason, "Check whether the agent is caught in a loop")


_REASONS = ("finish_reason", "stop_reason", "finishReason", "stopReason")


def end_reasons(value: Any) -> tuple[str, ...]:
    """Return why an answer or an event says that it ended, in the spelling of OpenAI's API."""
    choices = lookup(value, "choices")
    parts = [value, lookup(value, "delta"), lookup(value, "message")]
    parts += choices if isinstance(choices, list) else []
    found = (part.get(key) for part in parts if isinstance(part, dict) for key in _REASONS)
    return tuple(it.lower().replace("-", "_") for it in found if isinstance(it, str))


def error_text(*parts: Any) -> str:
    """Return the first error text in some parts, each a text or an object.

    The text of an object consists of its `error` and its `message` or `detail`. Without these, it
    is the JSON of `error`.
    """
    for part in parts:
        if text := first_text(part):
            return text
        kind, inner = lookup(part, "error"), lookup(part, "error.message")
        message = first_text(inner, lookup(part, "message"), lookup(part, "detail"))
        if words := [word for word in (first_text(kind), message) if word]:
            return ": ".join(words)
        if isinstance(kind, dict | list) and kind:
            return compact_json(kind)
    return "no explanation"
