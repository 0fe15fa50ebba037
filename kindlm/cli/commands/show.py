"""`kindlm show` and `kindlm report`: report a recorded run, or its shards, at any time."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from kindlm.cli.console import fail, or_fail
from kindlm.cli.history import (
    existing_history,
    exit_code,
    no_execution,
    open_view,
    report_options,
)
from kindlm.cli.options import DATABASE, DURATIONS, RUN_OR_GROUP, VERBOSE, argument, option
from kindlm.cli.reporters import parse_reporters, spare, write_reports
from kindlm.dataclass import replace


def show_command(
    run: str = RUN_OR_GROUP,
    execution: str | None = argument(
        "EXECUTION", "The id of an execution, or its number in the run.", default=None
    ),
    db: Path | None = DATABASE,
    durations: int = DURATIONS,
    verbose: bool = VERBOSE,
) -> None:
    """Show a run, or one execution with its transcript."""
    options = replace(report_options(db, verbose=verbose), durations=durations)
    with open_view(db, run) as view:
        if execution is None:
            from kindlm.reports.terminal_report import write_report

            write_report(view, sys.stdout, options)
            if code := exit_code(view):
                raise typer.Exit(code)
            return
        from kindlm.reports.terminal.execution_text import render_execution

        found = view.execution(execution)
        if found is None:
            fail([no_execution(execution, view)])
        render_execution(view, found, sys.stdout, options)


def report_command(
    run: str = RUN_OR_GROUP,
    form: str = option(
        "--format NAME",
        "terminal, json, junit, markdown, html, sarif, compliance or that of a package.",
        default="terminal",
    ),
    output: Path | None = option("--output -o FILE", "Write to FILE. Default: stdout."),
    pdf: Path | None = option("--pdf FILE", "Also write the compliance report as PDF."),
    run_id: str | None = option("--run-id", hidden=True),
    db: Path | None = DATABASE,
    verbose: bool = VERBOSE,
) -> None:
    """Write a report of a recorded run."""
    reporters = parse_reporters([form], output)
    project = existing_history(db)
    options = report_options(db, verbose=verbose)
    with open_view(db, run_id or run) as view:
        suites = [project.root / suite.path for suite in view.suites]
        or_fail(spare(reporters, project.database, suites))
        if pdf is not None:
            from kindlm.cli.compliance import check_pdf, write_pdf

            check_pdf(pdf, reporters, project.database, suites)
        errors = write_reports(reporters, view, options)
        if pdf is not None:
            errors += [error] if (error := write_pdf(view, pdf, options, view.suites)) else []
        if errors:
            fail(errors)
        if code := exit_code(view):
            raise typer.Exit(code)
