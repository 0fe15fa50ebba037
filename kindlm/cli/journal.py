"""Records what people do with a history, such as labels and reviews, in journals."""

from __future__ import annotations

import getpass
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from kindlm.cli.console import fail_if, refuse
from kindlm.cli.history import existing_history, find_execution, project_here
from kindlm.cli.history_errors import disk_full
from kindlm.errors import Err, ErrorCode, Ok, Result, SourceLocation, misuse
from kindlm.events.codec import Payload, new_event
from kindlm.events.run import ReviewRecorded
from kindlm.outcome import Status
from kindlm.recording.history_file import new_journal, open_log, project_secrets
from kindlm_store import EventLog, WriteFailedError

if TYPE_CHECKING:
    from kindlm.browse.routes import RecordReview
    from kindlm.history.rows import ExecutionView
    from kindlm.history.run_view import RunView


@contextmanager
def open_journal(
    database: Path | None, *, create: bool = False
) -> Iterator[tuple[EventLog, sqlite3.Connection]]:
    """Open the history to write to a journal, and to read it.

    The command ends if the history cannot be opened or written, or does not exist and is not to be
    created.
    """
    from kindlm.history.read_models import read_model_problem

    project = project_here(database) if create else existing_history(database)
    with (
        open_log(project.database, project_secrets(project.root)) as log,
        closing(log.reader()) as reader,
    ):
        fail_if(read_model_problem(reader))
        try:
            yield log, reader
        except WriteFailedError as error:
            fail_if(disk_full(project.database, error.__cause__))
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


def record(log: EventLog, *noted: tuple[Payload, str | None]) -> None:
    """Record events in a new journal, each after a known time.

    That is the time of the last event about the same thing, UTC, ISO 8601; None without one. It may
    be in the future, if another machine with a wrong clock recorded it.
    """
    events = []
    for payload, known in noted:
        event = new_event(payload)
        if known is not None and known >= event.at:
            later = datetime.fromisoformat(known) + timedelta(microseconds=1)
            event = new_event(payload, at=later.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        events.append(event)
    log.append(new_journal(), events)


def record_review(
    log: EventLog, view: RunView, number: str, passed: bool, text: str | None, by: str
) -> Result[ExecutionView]:
    """Record a verdict on an execution, and return the execution."""
    found = find_execution(view, number)
    if isinstance(found, Err):
        return found
    execution = found.value
    if execution.status in (None, Status.SKIPPED):
        how = "was skipped" if execution.status is Status.SKIPPED else "has not ended"
        nothing = f"The execution {execution.id} {how}: there is nothing to review."
        return Err(misuse(nothing, "Choose an execution that finished."))
    before = next((review for review in view.reviews(execution) if review.by == by), None)
    # A rescored execution has the conversation of its source, and the review is of that.
    run, _, place = execution.source.rpartition("-")
    payload = ReviewRecorded(run=run, execution=int(place), passed=passed, note=text or None, by=by)
    record(log, (payload, before.at if before else None))
    return Ok(execution)


def recorder_of(database: Path, by: str, secret: set[str] | None = None) -> RecordReview:
    """Return a function for pages that records reviews by a person; each opens the history."""

    def review(execution: str, passed: bool, text: str | None) -> Result[None]:
        from kindlm.history.run_view import RunView  # servers start without it

        with open_log(database, secret) as log, closing(log.reader()) as reader:
            view = RunView(reader, execution.rpartition("-")[0])
            found = record_review(log, view, execution, passed, text, by)
        return found if isinstance(found, Err) else Ok(None)

    return review
