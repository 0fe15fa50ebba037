"""What `kindlm diff` does: finds two runs, compares them, and writes how they differ."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TextIO

import typer

from kindlm.cli.console import fail
from kindlm.cli.history import existing_history, open_history, or_fail
from kindlm.cli.options import DiffFormat
from kindlm.cli.output_file import STDOUT, open_report
from kindlm.cli.reading import report_options, require_names
from kindlm.cli.reporters import is_history
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.garbage import put_off
from kindlm.history.diff.power import power_of_pairs
from kindlm.history.diff.run_diff import DiffOptions, RunDiff, compare_runs
from kindlm.history.run_names import find_sides
from kindlm.recording.project import regression_threshold
from kindlm.reports.figures import power_text
from kindlm.reports.registry import ReportOptions


# Ten thousand tests are a million objects, and none of them is garbage before the end.
@put_off()
def compare_and_write(
    database: Path | None,
    before: str | None,
    after: str | None,
    form: DiffFormat,
    output: Path | None,
    options: DiffOptions,
    *,
    verbose: bool,
) -> bool:
    """Write how two runs differ; return whether that is what was hoped for."""
    require_names(before, after)
    history = existing_history(database)
    output = None if output == STDOUT else output
    if output is not None:
        or_fail(_spared(output, history.database))
    options = replace(options, regression_threshold=or_fail(regression_threshold(history.root)))
    shown = report_options(database, verbose=verbose)
    with open_history(database) as db:
        sides = or_fail(find_sides(db, before, after, partial(_commit, history.root)))
        diff = compare_runs(db, *sides, options)
        if options.test is not None and not diff.tests:
            fail([_no_test(options.test)])
        _say_what_it_can_show(diff)
        _write_to(diff, form, output, shown)
        return not diff.fails


def write_diff(diff: RunDiff, form: DiffFormat, out: TextIO, options: ReportOptions) -> None:
    """Write a comparison in one of its forms."""
    module = import_module(f"kindlm.reports.diff.{form.value}")
    module.write_diff(diff, out, options)


def _say_what_it_can_show(diff: RunDiff) -> None:
    """Say on standard error, whatever the form, which drops these repeats can confirm at all."""
    shown = power_of_pairs(diff.pairs)
    if shown is not None:
        typer.echo(power_text(shown), err=True)


def _commit(root: Path, revision: str) -> str | None:
    # It knows the events of runs, which take longer to import than most comparisons to make.
    from kindlm.recording.git import commit_of

    return commit_of(root, revision)


def _write_to(diff: RunDiff, form: DiffFormat, output: Path | None, shown: ReportOptions) -> None:
    if output is None:
        write_diff(diff, form, sys.stdout, shown)
        sys.stdout.flush()
        return
    try:
        with open_report(output) as out:
            write_diff(diff, form, out, replace(shown, color=False))
    except OSError as error:
        fail([_not_written(output, error)])


def _spared(output: Path, database: Path) -> Result[None]:
    if not is_history(output, database):
        return Ok(None)
    return Err(
        KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"The comparison would be written over the history: {output}.",
            "Name another file.",
        )
    )


def _no_test(wanted: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"No test or suite of these runs has {wanted!r} in its name.",
        "Leave --test out to see all of them.",
    )


def _not_written(output: Path, error: OSError) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"The comparison could not be written to {output}: {error.strerror}.",
        "Name another file with -o, or leave it out.",
    )
