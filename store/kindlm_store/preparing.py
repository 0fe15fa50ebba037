"""What a caller submits, made fit to be appended, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kindlm_store.appender import PreparedAppend, PreparedEvent
from kindlm_store.events import Append, NewEvent, is_timestamp
from kindlm_store.payload import prepare, scrub

if TYPE_CHECKING:
    from collections.abc import Callable


def prepared(append: Append, redact: Callable[[str], str]) -> PreparedAppend:
    """An append whose events are ready to be stored.

    Raises:
        ValueError: Something in it cannot be stored; the message names it.
    """
    _require_name("stream", append.stream)
    if not append.events:
        message = f"no event to append to {append.stream}"
        raise ValueError(message)
    events = []
    for event in append.events:
        _require_name("type", event.type)
        if event.subject is not None:
            _require_name("subject", event.subject)
        if event.schema < 1:
            message = f"schema {event.schema} of {event.type}: must be 1 or more"
            raise ValueError(message)
        if not is_timestamp(event.at):
            message = f"{event.at!r} is not a time in UTC, ISO 8601, with microseconds"
            raise ValueError(message)
        payload = prepare(event.data, redact)
        events.append(
            PreparedEvent(event.id, event.type, payload, event.schema, event.subject, event.at)
        )
    return PreparedAppend(append.stream, tuple(events), append.expected_version, append.seal)


def restored(append: PreparedAppend) -> Append:
    """An append as it can be submitted again."""
    events = [
        NewEvent(e.type, e.payload.restore(), e.schema, e.subject, e.id, e.at)
        for e in append.events
    ]
    return Append(append.stream, events, append.expected_version, append.seal)


@lru_cache(maxsize=4_096)
def _require_name(what: str, name: str) -> None:
    if not name or scrub(name) != name:
        message = f"{what} {name!r}: must be a text, not empty, without NUL or lone surrogates"
        raise ValueError(message)
