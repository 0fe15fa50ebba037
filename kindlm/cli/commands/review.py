"""`kindlm label` and `kindlm review`: people's notes on runs, and agreement with judges.

A label is a name by which other commands find a run. A review is a verdict on an execution.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kindlm.cli.console import fail, note, or_fail, refuse
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
from kindlm.errors import Err, Ok, Result, misuse, not_there
from kindlm.events.run import ReviewRecorded, RunLabelled
from kindlm.history.reviews import compare_reviews, reviewed_executions
from kindlm.history.rows import ExecutionView, ReviewView
from kindlm.history.run_names import find_run, label_problem
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.recording.history_file import new_journal
from kindlm_store import EventLog

if TYPE_CHECKING:
    from kindlm.browse.routes import RecordReview

_OLDER = "SELECT run FROM run_list WHERE label = ? AND run <> ? ORDER BY started_at DESC LIMIT 1"


def label_command(
    run: str = argument("RUN", RUN_NAMES),
    name: str | None = argument("NAME", "The label.", default=None),
    remove: bool = flag("--remove", "Remove the label."),
    db: Path | None = DATABASE,
) -> None:
    """Name a run. A new label replaces the one before."""
    if (name is None) is not remove:
        refuse("Write either a NAME or --remove.", "How it is used: kindlm label --help")
    if name is not None and (problem := label_problem(name)) is not None:
        fail([problem])
    with open_journal(db) as (log, reader):
        run = named_run(reader, run)
        if name and reader.execute("SELECT 1 FROM runs WHERE id = ?", (name,)).fetchone():
            refuse(f"{name!r} cannot be a label: it is the id of a run.", "Choose another name.")
        before = RunView(reader, run).info.label
        if name is None and before is None:
            fail([not_there(f"Run {run} has no label.", "The labels of all runs: kindlm runs")])
        last = reader.execute("SELECT at FROM run_labels WHERE run = ?", (run,)).fetchone()
        payload = RunLabelled(run=run, label=name, by=author())
        log.append(new_journal(), [journal_event(payload, last[0] if last else None)])
        if name is None:
            note(f"Removed the label {before!r} from run {run}.")
            return
        was = f" Its label was {before!r} before." if before not in (None, name) else ""
        note(f"Run {run} is now labelled {name!r}.{was}")
        # Other runs may have the label, too.
        means = or_fail(find_run(reader, name))
        if means != run:
            note(f"Run {means} has the same label and is newer: the label refers to that run.")
        elif other := reader.execute(_OLDER, (name, run)).fetchone():
            note(f"The label now refers to this run. Run {other[0]} has it, too, but is older.")


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
        from kindlm.reports.terminal.agreement import agreement_json, write_agreement

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
        found, before = or_fail(_reviewed(log, view, execution, passed, text, author()))
    agrees = found.status is (Status.PASSED if passed else Status.FAILED)
    recorded = ", as recorded" if agrees else f"; it was recorded as {found.status}"
    note(f"{found.id}: {author()} says that it {_word(passed)}{recorded}.")
    if before is not None and before.passed is not passed:
        note(f"Your earlier review, that it {_word(before.passed)}, stays in the log.")
    if found.source != found.id:
        note(f"{found.source} has the same conversation: the review applies to both.")


def _reviewed(
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
    before = next((said for said in view.reviews(execution) if said.by == by), None)
    # A review is of the conversation, in the run that held it.
    held_in, _, place = execution.source.rpartition("-")
    payload = ReviewRecorded(
        run=held_in, execution=int(place), passed=passed, note=text or None, by=by
    )
    log.append(new_journal(), [journal_event(payload, before.at if before else None)])
    return Ok((execution, before))


def recorder_of(opened: Callable[[], AbstractContextManager[EventLog]], by: str) -> RecordReview:
    """Return what records a person's reviews from a page into an open log."""

    def record(execution: str, passed: bool, text: str | None) -> Result[None]:
        with opened() as log, closing(log.reader()) as reader:
            view = RunView(reader, execution.rpartition("-")[0])
            found = _reviewed(log, view, execution, passed, text, by)
        return found if isinstance(found, Err) else Ok(None)

    return record


def _word(passed: bool) -> str:
    return "passes" if passed else "fails"
