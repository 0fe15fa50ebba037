"""`kindlm report`: write a report of a recorded run, or of its shards."""

from __future__ import annotations

from pathlib import Path

from kindlm.cli.console import fail, or_fail, refuse
from kindlm.cli.history import existing_history, exit_for, open_view, report_options
from kindlm.cli.options import DATABASE, RUN_OR_GROUP, option
from kindlm.cli.reporters import parse_reporters, spare, write_reports


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
) -> None:
    """Write a report of a recorded run."""
    if run_id is not None and run != "latest":
        refuse("The run is named twice.", "Leave out --run-id: kindlm report RUN")
    reporters = parse_reporters([form], output)
    project = existing_history(db)
    options = report_options(db)
    with open_view(db, run_id or run) as view:
        suites = [project.root / suite.path for suite in view.suites]
        or_fail(spare(reporters, project.database, suites))
        if pdf is not None:
            from kindlm.cli.compliance import check_pdf, write_pdf
            from kindlm.reports.compliance_report import content_of, hashed

            check_pdf(pdf, reporters, project.database, suites)
        errors = write_reports(reporters, view, options)
        if pdf is not None:
            document = hashed(content_of(view, suite, options) for suite in view.suites)
            errors += [error] if (error := write_pdf(view, pdf, document, options)) else []
        if errors:
            fail(errors)
        exit_for(view)
