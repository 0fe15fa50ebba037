"""Records a person's verdict on an execution, for `kindlm review` and for pages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING

from kindlm.cli.history import no_execution
from kindlm.cli.journal import journal_event
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.events.run import ReviewRecorded
from kindlm.outcome import Status
from kindlm.recording.history_file import new_journal
from kindlm_store import EventLog

if TYPE_CHECKING:
    from kindlm.browse.routes import RecordReview
    from kindlm.history.rows import ExecutionView, ReviewView
    from kindlm.history.run_view import RunView


def record_review(
    log: EventLog, view: RunView, number: str, passed: bool, text: str | None, by: str
) -> Result[tuple[ExecutionView, ReviewView | None]]:
    """Record a verdict; return it with the previous one of the same person."""
    execution = view.execution(number)
    if execution is None:
        return Err(no_execution(number, view))
    if execution.status in (None, Status.SKIPPED):
        how = "was skipped" if execution.status is Status.SKIPPED else "has not ended"
        nothing = f"The execution {execution.id} {how}: there is nothing to review."
        return Err(misuse(nothing, "Choose an execution that finished."))
    before = next((review for review in view.reviews(execution) if review.by == by), None)
    # A rescored execution has the conversation of its source, and the review is of that.
    run, _, place = execution.source.rpartition("-")
    payload = ReviewRecorded(run=run, execution=int(place), passed=passed, note=text or None, by=by)
    log.append(new_journal(), [journal_event(payload, before.at if before else None)])
    return Ok((execution, before))


def recorder_of(opened: Callable[[], AbstractContextManager[EventLog]], by: str) -> RecordReview:
    """Return a function for pages that records reviews by a person; `opened` returns the log."""

    def record(execution: str, passed: bool, text: str | None) -> Result[None]:
        from kindlm.history.run_view import RunView  # servers start without it

        with opened() as log, closing(log.reader()) as reader:
            view = RunView(reader, execution.rpartition("-")[0])
            found = record_review(log, view, execution, passed, text, by)
        return found if isinstance(found, Err) else Ok(None)

    return record
