"""Looking at events that come from elsewhere, before they are in the log for good."""

from __future__ import annotations

import re

from kindlm.events import EVENTS, EventError, load_event
from kindlm_store import RecordedEvent

__all__ = ["require_known_form"]

_STREAM = re.compile(r"(run|journal)/[0-9A-Za-z_.-]{1,100}")


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
    try:
        load_event(recorded.type, recorded.data, str)
    except EventError as error:
        message = f"{recorded.type} {'.'.join(error.path)}: {error.problem}"
        raise ValueError(message) from None
