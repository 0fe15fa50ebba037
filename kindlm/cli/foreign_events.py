"""Looking at events that come from elsewhere, before they are in the log for good."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kindlm.events import EVENTS, EventError, load_event
from kindlm_store import RecordedEvent

_STREAM = re.compile(r"(run|journal)/[0-9A-Za-z_.-]{1,100}")

_BITS = 63
"""Bits of the largest integer that SQLite keeps as one."""

_ATTEMPT = re.compile(r"[0-9]{1,15}\.[0-9]{1,15}")
"""What an event of an attempt is about: `<number>.<attempt>`."""


def require_known_form(recorded: RecordedEvent) -> None:
    """Raise `ValueError` for an event that readers of the log could not read.

    Events of unknown types are kept as they are; nobody folds them.
    """
    if not _STREAM.fullmatch(recorded.stream):
        message = f"{recorded.stream!r} is neither a run nor a journal"
        raise ValueError(message)
    event = EVENTS.get(recorded.type)
    if event is None:
        return
    if recorded.schema > event.SCHEMA:
        message = f"{recorded.type} is in a newer form than this kindlm knows: update it"
        raise ValueError(message)
    if event.OF_ATTEMPT and not _ATTEMPT.fullmatch(recorded.subject or ""):
        message = f"{recorded.type} is about nothing that there can be: {recorded.subject!r}"
        raise ValueError(message)
    if any(
        isinstance(value, int) and value.bit_length() > _BITS for value in _leaves(recorded.data)
    ):
        message = f"{recorded.type}: a number is too large"
        raise ValueError(message)
    try:
        load_event(recorded.type, recorded.data, str)
    except EventError as error:
        message = f"{recorded.type} {'.'.join(error.path)}: {error.problem}"
        raise ValueError(message) from None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _leaves(member)
    else:
        yield value
