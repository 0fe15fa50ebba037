"""Replies that are none: what cannot be understood, and what is more than any answer holds."""

from __future__ import annotations

WHERE_THE_TEXT_IS = (
    "Send the text as `text`, or say where it is: `responsePath: data.answer` (`$` takes all of "
    "the answer as it is), `toolCallsPath` for the tool calls; or choose the adapter that reads "
    "this format (docs/agents.md)"
)

MAX_EVENTS = 100_000
"""A stream with more events is none of an answer."""

MAX_MESSAGES = 100_000
"""An answer is not made of more messages, those that are told again counted again."""

MAX_CALLS = 10_000
"""Nobody calls more tools for one answer."""


class UnreadableReply(ValueError):  # noqa: N818 - it names what arrived
    """A reply that is none: the message says what is wrong with it, `hint` what to do about it.

    Without a `hint` the adapter says where to look.
    """

    hint: str | None = None


class NoTextKnown(UnreadableReply):
    """JSON in which nothing is known to be the text of an answer."""

    hint = WHERE_THE_TEXT_IS


class StreamBrokeOff(UnreadableReply):
    """A stream that ended before its end."""

    hint = (
        "Look into the log of the agent for why it stopped, or into its server for the event that "
        "ends the stream: docs/agents.md#the-end-of-a-stream"
    )


def refuse_more(number: int, most: int, things: str) -> None:
    """Raise `UnreadableReply` if there are more things than an answer holds."""
    if number > most:
        raise UnreadableReply(f"it has more than {most:,} {things}")
