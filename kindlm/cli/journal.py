"""Opening the history of a project to record in its journal what people do to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kindlm.cli.history import existing_history, fail_to_open, project_here, require_read_models
from kindlm.projections import PROJECTIONS
from kindlm.recording.project import run_environment
from kindlm.recording.secrets import secret_values
from kindlm_store import EventLog, OpenError, Redactor

__all__ = ["open_journal"]


@contextmanager
def open_journal(
    database: Path | None, *, create: bool = False
) -> Iterator[tuple[EventLog, sqlite3.Connection]]:
    """Open the history to write to its journal, and to read what it holds.

    The command ends if there is no history and none is to be created, or it can not be opened.
    """
    project = project_here(database) if create else existing_history(database)
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
