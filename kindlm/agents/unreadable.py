"""Replies that are none: what cannot be understood, and what is more than any answer holds."""

from __future__ import annotations

__all__ = ["MAX_CALLS", "MAX_EVENTS", "MAX_MESSAGES", "UnreadableReply", "refuse_more"]

MAX_EVENTS = 100_000
"""A stream with more events is none of an answer."""

MAX_MESSAGES = 100_000
"""An answer is not made of more messages, those that are told again counted again."""

MAX_CALLS = 10_000
"""Nobody calls more tools for one answer."""


class UnreadableReply(ValueError):  # noqa: N818 - it names what arrived
    """A reply that is none; the message says what is wrong with it."""


def refuse_more(number: int, most: int, things: str) -> None:
    """Raise `UnreadableReply` if there are more things than an answer holds."""
    if number > most:
        raise UnreadableReply(f"it has more than {most:,} {things}")
