"""`kindlm review`: a person's verdict on an execution, and whether judges agree with people."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kindlm.cli.console import note, or_fail, refuse
from kindlm.cli.history import named_run, no_execution, open_history, report_options
from kindlm.cli.journal import author, journal_event, open_journal
from kindlm.cli.options import (
    DATABASE,
    RUN_NAMES,
    VERBOSE,
    ListFormat,
    argument,
    flag,
    option,
    parse_since,
)
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.events.run import ReviewRecorded
from kindlm.history.reviews import compare_reviews, reviewed_executions
from kindlm.history.rows import ExecutionView, ReviewView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.recording.history_file import new_journal
from kindlm.reports.terminal.agreement import agreement_json, write_agreement
from kindlm_store import EventLog

if TYPE_CHECKING:
    from kindlm.browse.routes import RecordReview

_USAGE = "How it is used: kindlm review --help"


def review_command(
    run: str | None = argument("RUN", RUN_NAMES, default=None),
    execution: str | None = argument(
        "EXECUTION", "The id of an execution, or its number in the run.", default=None
    ),
    verdict: Literal["pass", "fail"] | None = argument("pass|fail", "Your verdict.", default=None),
    text: str | None = option("--note TEXT", "Reason, recorded with the verdict."),
    agreement: bool = flag("--agreement", "Report judge–human agreement, for RUN or all runs."),
    suite: str | None = option("--suite -s NAME", "With --agreement: only this suite."),
    since: str | None = option(
        "--since AGE", "With --agreement: only runs since then: 30d, 2026-01-31."
    ),
    form: ListFormat = option(
        "--format", "With --agreement: json is for programs.", default="terminal"
    ),
    db: Path | None = DATABASE,
    verbose: bool = VERBOSE,
) -> None:
    """Record a human verdict, or report judge–human agreement."""
    if agreement:
        if execution is not None or verdict is not None or text is not None:
            refuse("--agreement does not go with EXECUTION, a verdict or --note.", _USAGE)
        start = None if since is None else parse_since(since)
        with open_history(db) as reader:
            chosen = None if run is None else named_run(reader, run)
            executions = reviewed_executions(reader, run=chosen, suite=suite, since=start)
        if form == "json":
            sys.stdout.write(agreement_json(compare_reviews(executions)))
        elif executions:
            shown = report_options(db, verbose=verbose)
            write_agreement(compare_reviews(executions), sys.stdout, shown)
        else:
            note(
                "No such execution has a review. Review one: kindlm review RUN EXECUTION pass|fail"
            )
        return
    if run is None or execution is None or verdict is None:
        wanted = "Write RUN, EXECUTION, and pass or fail. For a report on reviews: --agreement."
        refuse(wanted, _USAGE)
    if suite is not None or since is not None or form != "terminal":
        refuse("--suite, --since and --format require --agreement.", _USAGE)
    passed = verdict == "pass"
    with open_journal(db) as (log, reader):
        view = RunView(reader, named_run(reader, run))
        found, before = or_fail(reviewed(log, view, execution, passed, text, author()))
    agrees = found.status is (Status.PASSED if passed else Status.FAILED)
    recorded = ", as recorded" if agrees else f"; it was recorded as {found.status}"
    note(f"{found.id}: {author()} says that it {_word(passed)}{recorded}.")
    if before is not None and before.passed is not passed:
        note(f"Your earlier review, that it {_word(before.passed)}, stays in the log.")
    if found.source != found.id:
        note(f"{found.source} has the same conversation: the review applies to both.")


def reviewed(
    log: EventLog, view: RunView, number: str, passed: bool, text: str | None, by: str
) -> Result[tuple[ExecutionView, ReviewView | None]]:
    """Record whether an execution passes; return it with what the same person had said before."""
    execution = view.execution(number)
    if execution is None:
        return Err(no_execution(number, view))
    if execution.status in (None, Status.SKIPPED):
        how = "was skipped" if execution.status is Status.SKIPPED else "has not ended"
        nothing = f"The execution {execution.id} {how}: there is nothing to review."
        return Err(misuse(nothing, "Choose an execution that finished."))
    before = next((said for said in view.reviews(execution) if said.by == by), None)
    # A review is of the conversation, in the run that held it.
    held_in, _, place = execution.source.rpartition("-")
    payload = ReviewRecorded(
        run=held_in, execution=int(place), passed=passed, note=text or None, by=by
    )
    log.append(new_journal(), [journal_event(payload, before.at if before else None)])
    return Ok((execution, before))


def recorder_of(opened: Callable[[], AbstractContextManager[EventLog]], by: str) -> RecordReview:
    """Return what records the reviews that a person makes on a page, into a log that is opened."""

    def record(execution: str, passed: bool, text: str | None) -> Result[None]:
        with opened() as log, closing(log.reader()) as reader:
            view = RunView(reader, execution.rpartition("-")[0])
            found = reviewed(log, view, execution, passed, text, by)
        return found if isinstance(found, Err) else Ok(None)

    return record


def _word(passed: bool) -> str:
    return "passes" if passed else "fails"
