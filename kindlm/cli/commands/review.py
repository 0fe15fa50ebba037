"""`kindlm review`: record a human verdict, or report judge–human agreement."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from kindlm.cli.console import note, or_fail, refuse
from kindlm.cli.history import named_run, open_history, report_options
from kindlm.cli.journal import author, open_journal, record_review
from kindlm.cli.options import (
    DATABASE,
    EXECUTION,
    RUN_NAMES,
    ListFormat,
    argument,
    flag,
    option,
    parse_since,
)
from kindlm.history.reviews import compare_reviews, reviewed_executions
from kindlm.history.run_view import RunView
from kindlm.outcome import Status

_USAGE = "For help: kindlm review --help"


def review_command(
    run: str | None = argument("RUN", RUN_NAMES, default=None),
    execution: str | None = EXECUTION,
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
) -> None:
    """Record a human verdict, or report judge–human agreement."""
    if agreement:
        from kindlm.reports.terminal.agreement import agreement_json, write_agreement

        if execution is not None or verdict is not None or text is not None:
            refuse("--agreement cannot be combined with EXECUTION, a verdict or --note.", _USAGE)
        start = None if since is None else parse_since(since)
        with open_history(db) as reader:
            chosen = None if run is None else named_run(reader, run)
            executions = reviewed_executions(reader, run=chosen, suite=suite, since=start)
        if form == "json":
            sys.stdout.write(agreement_json(compare_reviews(executions)))
        elif executions:
            write_agreement(compare_reviews(executions), sys.stdout, report_options(db))
        else:
            note(
                "No such execution was reviewed. Review one: kindlm review RUN EXECUTION pass|fail"
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
        found = or_fail(record_review(log, view, execution, passed, text, author()))
    agrees = found.status is (Status.PASSED if passed else Status.FAILED)
    recorded = "as recorded" if agrees else f"but recorded as {found.status}"
    note(f"{found.id}: reviewed as {verdict} by {author()}, {recorded}.")
    if found.source != found.id:
        note(f"{found.source} has the same conversation: the review applies to both.")
