"""Journal streams: where what people do to a history is recorded, apart from its runs."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from kindlm.cli.history import existing_history, fail_to_open, require_read_models
from kindlm.cli.project import run_environment
from kindlm.cli.secrets import secret_values
from kindlm.events import Payload, new_event
from kindlm.projections import PROJECTIONS
from kindlm_store import EventLog, NewEvent, OpenError, Redactor

__all__ = ["author", "journal_event", "new_journal", "open_journal"]


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


@contextmanager
def open_journal(database: Path | None) -> Iterator[tuple[EventLog, sqlite3.Connection]]:
    """Open the history to write to its journal, and to read what it holds.

    The command ends if there is no history, or it can not be opened.
    """
    project = existing_history(database)
    environ = run_environment([project.root], os.environ)
    try:
        log = EventLog.open(
            project.database,
            projections=PROJECTIONS,
            redact=Redactor(secret_values(environ, ())),
        )
    except OpenError as error:
        fail_to_open(error)
    with log, closing(log.reader()) as reader:
        require_read_models(reader)
        yield log, reader


def journal_event(payload: Payload, known: str | None) -> NewEvent:
    """Return the event of a payload, later than what is known of the same matter.

    `known` is when that was recorded, UTC, ISO 8601; None if nothing is. The clock of the machine
    that recorded it may be ahead of this one: what follows it nevertheless counts after it.
    """
    event = new_event(payload)
    if known is None or known < event.at:
        return event
    later = datetime.fromisoformat(known) + timedelta(microseconds=1)
    return replace(event, at=later.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
