"""`kindlm review`: a person's verdict on an execution, and whether judges agree with people."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kindlm.cli.options import DatabaseOption, ListFormat, VerboseOption


class _Verdict(StrEnum):
    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"


def review_command(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run's id or its beginning, a label, or latest."),
    ] = None,
    execution: Annotated[
        str | None,
        typer.Argument(metavar="EXECUTION", help="An execution's id, or its number in the run."),
    ] = None,
    verdict: Annotated[
        _Verdict | None, typer.Argument(metavar="pass|fail", help="What you say of it.")
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", help="Why; it is recorded with the verdict.")
    ] = None,
    agreement: Annotated[
        bool,
        typer.Option("--agreement", help="Report whether judges agree with people, of all or RUN."),
    ] = False,
    suite: Annotated[
        str | None, typer.Option("--suite", "-s", help="Of the agreement: only this suite.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Of the agreement: only runs since then: 30d, 2026-01-31."),
    ] = None,
    form: Annotated[
        ListFormat, typer.Option("--format", help="Of the agreement: for people, or for programs.")
    ] = ListFormat.TERMINAL,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Say whether an execution passes, or report whether judges say what people say."""
    from kindlm.cli.console import fail
    from kindlm.cli.reading import misused
    from kindlm.cli.reviewing import record_review, report_agreement

    if agreement:
        if execution is not None or verdict is not None or note is not None:
            fail([misused("--agreement takes no EXECUTION, no verdict and no --note.", "review")])
        report_agreement(db, run, suite=suite, since=since, form=form, verbose=verbose)
        return
    if run is None or execution is None or verdict is None:
        wanted = "A review needs RUN, EXECUTION and pass or fail; a report of them --agreement."
        fail([misused(wanted, "review")])
    if suite is not None or since is not None or form is not ListFormat.TERMINAL:
        fail([misused("--suite, --since and --format go with --agreement.", "review")])
    record_review(db, run, execution, verdict is _Verdict.PASS, note)
