"""`kindlm diff`: what became of each test between two runs."""

from __future__ import annotations

import sqlite3
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from kindlm.cli.console import note, or_fail, refuse
from kindlm.cli.ending import ending_at_once
from kindlm.cli.history import (
    commit_named,
    existing_history,
    open_history,
    report_options,
    require_names,
)
from kindlm.cli.options import (
    RUN_NAMES,
    DatabaseOption,
    DiffFormat,
    FailOnOption,
    InsecureOption,
    ServerOption,
    VerboseOption,
)
from kindlm.cli.reporters import STDOUT, is_history, open_report
from kindlm.errors import ErrorCode
from kindlm.garbage import put_off
from kindlm.recording.project import regression_threshold

if TYPE_CHECKING:
    from kindlm.history.diff.run_diff import RunDiff
    from kindlm.history.run_names import Side
    from kindlm.reports.report_registry import ReportOptions

_NAMES = f"{RUN_NAMES} Or a group of shards."


# Ten thousand tests are a million objects, and none of them is garbage before the end.
@put_off()
def diff_command(
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="BEFORE",
            help=f"{_NAMES} Default: baseline if one is set, else previous.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="AFTER", help="Named in the same way. Default: latest.", show_default=False
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="BRANCH",
            help="Compare with the newest finished run of BRANCH; the only argument is then AFTER.",
        ),
    ] = None,
    url: ServerOption = None,
    insecure: InsecureOption = False,
    comment: Annotated[
        bool,
        typer.Option(
            "--comment", help="In GitHub Actions: keep one comment on the pull request up to date."
        ),
    ] = False,
    form: Annotated[
        DiffFormat, typer.Option("--format", help="Format of the comparison.")
    ] = DiffFormat.TERMINAL,
    fail_on: Annotated[
        FailOnOption,
        typer.Option(
            "--fail-on",
            help="What exits with 1. default: confirmed regressions and removed tests. behaviour:"
            " also changed behaviour. any: also suspected regressions.",
        ),
    ] = FailOnOption.DEFAULT,
    test: Annotated[
        str | None,
        typer.Option(
            "--test",
            "-t",
            metavar="PATTERN",
            help="Compare only tests and suites whose name contains PATTERN.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; - is stdout."),
    ] = None,
    old: Annotated[str | None, typer.Option("--before", hidden=True)] = None,
    new: Annotated[str | None, typer.Option("--after", hidden=True)] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Compare two runs: regressions, fixes and changed behaviour.

    Exits with 1 if a regression is confirmed or a test was removed.
    """
    from kindlm.cli.base_branch import Base, comment_on, sides_with_branch

    with ending_at_once():
        from kindlm.history.diff.evidence_values import FailOn
        from kindlm.history.diff.run_diff import DiffOptions, compare_runs
        from kindlm.history.run_names import find_sides

    sides = (before if old is None else old, after if new is None else new)
    if base is None and url is not None:
        refuse("--url names the server of --base, which is missing.", "Add --base BRANCH.")
    if base is not None:
        if None not in sides:
            refuse("--base names the earlier run, and so does BEFORE.", "Leave one of them out.")
        sides = (None, sides[1] or sides[0])
    require_names(base, *sides)
    history = existing_history(db)
    output = None if output == STDOUT else output
    if output is not None and is_history(output, history.database):
        refuse(f"The comparison would be written over the history: {output}.", "Name another file.")
    threshold = or_fail(regression_threshold(history.root))
    options = DiffOptions(FailOn(fail_on.value), test, regression_threshold=threshold)
    shown = report_options(db, verbose=verbose)
    with open_history(db) as reader:
        if base is not None:
            asked = Base(base, url, insecure, comment)
            found = sides_with_branch(reader, history, asked, sides[1])
        else:
            found = or_fail(find_sides(reader, *sides, commit_named))
            if sides[0] is None:
                _tell_baseline(reader, *found)
        diff = compare_runs(reader, *found, options)
        if test is not None and not diff.tests:
            refuse(
                f"No test or suite of these runs has {test!r} in its name.",
                "Leave --test out to see all of them.",
            )
        _write_to(diff, form, output, shown)
        _say_what_it_can_show(diff)
        if comment:
            comment_on(diff, shown)
        raise typer.Exit(1 if diff.fails else 0)


def write_diff(diff: RunDiff, form: DiffFormat, out: TextIO, options: ReportOptions) -> None:
    """Write a comparison in one of its forms."""
    module = import_module(f"kindlm.reports.diff.{form.value}")
    module.write_diff(diff, out, options)


def _tell_baseline(db: sqlite3.Connection, before: Side, after: Side) -> None:
    """Report on standard error that BEFORE is the baseline by default."""
    from kindlm.history.run_names import baseline_of

    run = after if isinstance(after, str) else after.runs[0]
    if before == baseline_of(db, run):
        what = f"run {before}" if isinstance(before, str) else f"group {before.name}"
        note(f"Compared with the baseline, {what}. With the run before: kindlm diff previous")


def _say_what_it_can_show(diff: RunDiff) -> None:
    """Report on standard error, whatever the form, which drops these repeats can confirm at all."""
    from kindlm.history.diff.power import power_of_pairs
    from kindlm.reports.figures import power_text

    shown = power_of_pairs(diff.pairs)
    if shown is not None:
        typer.echo(power_text(shown), err=True)


def _write_to(diff: RunDiff, form: DiffFormat, output: Path | None, shown: ReportOptions) -> None:
    if output is None:
        write_diff(diff, form, sys.stdout, shown)
        sys.stdout.flush()
        return
    try:
        with open_report(output) as out:
            write_diff(diff, form, out, replace(shown, color=False))
    except OSError as error:
        refuse(
            f"The comparison could not be written to {output}: {error.strerror}.",
            "Name another file with -o, or leave it out.",
            code=ErrorCode.UNKNOWN_ERROR,
        )
