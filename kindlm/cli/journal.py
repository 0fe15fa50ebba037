"""Records what people do with a history, such as labels, in journals."""

from __future__ import annotations

import getpass
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from kindlm.cli.console import fail, refuse
from kindlm.cli.history import existing_history, project_here, require_read_models
from kindlm.cli.history_errors import disk_full
from kindlm.errors import ErrorCode, SourceLocation
from kindlm.events.codec import Payload, new_event
from kindlm.recording.history_file import open_log, project_secrets
from kindlm_store import EventLog, NewEvent, WriteFailedError


@contextmanager
def open_journal(
    database: Path | None, *, create: bool = False
) -> Iterator[tuple[EventLog, sqlite3.Connection]]:
    """Open the history to write to a journal, and to read it.

    The command ends if the history cannot be opened or written, or does not exist and is not to be
    created.
    """
    project = project_here(database) if create else existing_history(database)
    with (
        open_log(project.database, project_secrets(project.root)) as log,
        closing(log.reader()) as reader,
    ):
        require_read_models(reader)
        try:
            yield log, reader
        except WriteFailedError as error:
            if (full := disk_full(project.database, error.__cause__)) is not None:
                fail([full])
            refuse(
                f"The history could not be written: {error.__cause__ or error}.",
                "Check the disk and its permissions, and run it again.",
                code=ErrorCode.UNKNOWN_ERROR,
                where=SourceLocation(str(project.database)),
            )


def author() -> str:
    """Return the user as `user@host`."""
    try:
        user = getpass.getuser()
    # In a container the user may have no name.
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def journal_event(payload: Payload, known: str | None) -> NewEvent:
    """Return the event of a payload, with a time after `known`.

    `known` is the time of the last event about the same thing, UTC, ISO 8601; None without one. It
    may be in the future, if another machine with a wrong clock recorded it.
    """
    event = new_event(payload)
    if known is None or known < event.at:
        return event
    later = datetime.fromisoformat(known) + timedelta(microseconds=1)
    return new_event(payload, at=later.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
