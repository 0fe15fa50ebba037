"""`kindlm report`: any report of any run or group of shards, any time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.console import fail, or_fail
from kindlm.cli.history import existing_history, exit_code, open_view, report_options
from kindlm.cli.options import DatabaseOption, RunOrGroupArgument, VerboseOption
from kindlm.cli.reporters import of_project, parse_reporters, spare, write_reports


def report_command(
    run: RunOrGroupArgument = "latest",
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="terminal, json, junit, markdown, html, sarif or compliance.",
        ),
    ] = "terminal",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to FILE. Default: stdout."),
    ] = None,
    pdf: Annotated[
        Path | None,
        typer.Option("--pdf", metavar="FILE", help="Also write the compliance report as PDF."),
    ] = None,
    run_id: Annotated[str | None, typer.Option("--run-id", hidden=True)] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Write a report of a recorded run."""
    reporters = or_fail(parse_reporters([form], output))
    project = existing_history(db)
    options = of_project(report_options(db, verbose=verbose), project.root)
    with open_view(db, run_id or run) as view:
        suites = [project.root / suite.path for suite in view.suites]
        or_fail(spare(reporters, project.database, suites))
        if pdf is not None:
            from kindlm.cli.compliance import check_pdf, write_pdf

            or_fail(check_pdf(pdf, reporters, project.database, suites))
        errors = write_reports(reporters, view, options)
        if pdf is not None:
            errors += [error] if (error := write_pdf(view, pdf, options, view.suites)) else []
        if errors:
            fail(errors)
        if code := exit_code(view):
            raise typer.Exit(code)
