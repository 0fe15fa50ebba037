"""Journal streams: where what people do to a history is recorded, apart from its runs."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from datetime import datetime, timedelta

from kindlm.events import Payload, new_event
from kindlm_store import NewEvent

__all__ = ["author", "journal_event", "new_journal"]


def new_journal() -> str:
    """Return the name of a journal stream of this process alone.

    Journals of several processes, on one machine or many, never claim the same version.
    """
    return f"journal/{secrets.token_hex(10)}"


def author() -> str:
    """Return who is doing something, as `user@host`."""
    try:
        user = getpass.getuser()
    # In a container the user may have no name.
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def journal_event(payload: Payload, known: str | None) -> NewEvent:
    """Return the event of a payload, later than what is known of the same matter.

    `known` is when that was recorded, UTC, ISO 8601; None if nothing is. The clock of the machine
    that recorded it may be ahead of this one: what follows it nevertheless counts after it.
    """
    event = new_event(payload)
    if known is None or known < event.at:
        return event
    later = datetime.fromisoformat(known) + timedelta(microseconds=1)
    return new_event(payload, at=later.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
