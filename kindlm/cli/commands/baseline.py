"""`kindlm baseline`: choose the recorded run that later runs are compared with."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kindlm.cli.console import fail, note, or_fail, refuse, show, table, warn
from kindlm.cli.history import (
    commit_named,
    existing_history,
    finished_side,
    open_history,
    project_here,
    report_options,
    warn_of_passed_over,
)
from kindlm.cli.journal import author, open_journal, record
from kindlm.cli.options import DATABASE, LIST_FORMAT, RUN_NAMES, ListFormat, argument, option
from kindlm.errors import ErrorCode, Ok, Result
from kindlm.events.run import BaselineRemoved, BaselineSet
from kindlm.history.baselines import (
    Baseline,
    BaselineChecks,
    find_baseline,
    last_change,
    list_baselines,
    no_baseline,
)
from kindlm.history.groups import Group
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.recording.project import regression_threshold
from kindlm.reports.figures import local_time, power_text
from kindlm.reports.untrusted import json_document, one_line
from kindlm.spelling import fields_of
from kindlm.wording import count
from kindlm_store import EventLog

if TYPE_CHECKING:
    from kindlm.cli.foreign_import import ForeignFile

baseline_app = typer.Typer(rich_markup_mode=None)

_RUN = argument(
    "RUN",
    f"{RUN_NAMES} Or a group of shards, or a JSON report. Default: the newest finished run.",
    default=None,
)
_SUITE = option("--suite -s NAME", "Use only this suite.")

_LABEL = option("--label NAME", "Name of the baseline. Default: the active one.")

_DEFINED = "SELECT count(*) FROM planned_tests WHERE suite = ? AND NOT skip"

_HEADER = ("", "SUITE", "LABEL", "RUN", "SET", "BY", "PROJECT")


@baseline_app.command("set")
def set_command(
    wanted: str | None = _RUN,
    suite: str | None = _SUITE,
    label: str = option(
        "--label NAME", "Name of the baseline, to keep several.", default="", show_default=False
    ),
    database: Path | None = DATABASE,
) -> None:
    """Make a finished run the baseline of its suites.

    A complete group of shards can be a baseline, too.
    """
    from kindlm.cli.foreign_import import read_results
    from kindlm.history.diff.power import comparison_power
    from kindlm.history.diff.run_diff import DiffOptions, RunDiff

    read = read_results(Path(wanted)) if wanted and Path(wanted).is_file() else None
    with open_journal(database, create=isinstance(read, Ok)) as (log, db):
        view = RunView(db, _chosen(log, db, wanted, suite, read))
        run = view.runs[0]
        if view.group is not None and not view.group.complete:
            refuse(
                f"The group {view.id} is incomplete: {view.group.what_lacks}.",
                "Run the missing shards with the same --run-group, then set the baseline again.",
            )
        if view.info.ended != "finished" or view.info.mode == "generation":
            what = "generated tests" if view.info.mode == "generation" else f"is {view.status}"
            refuse(
                f"The run {run} {what}: only a run of tests that finished can be a baseline.",
                "List the recorded runs: kindlm runs",
            )
        chosen = _suites_of(view, suite)
        checks = BaselineChecks(db)
        problems = [error for key in chosen if (error := checks.corruption(view.runs, *key))]
        if problems:
            fail(problems)
        before = {key: find_baseline(db, *key) for key in chosen}
        noted = []
        for project, name in chosen:
            payload = BaselineSet(
                project=project,
                suite=name,
                run=run,
                runs=view.runs if len(view.runs) > 1 else None,
                label=label or None,
                by=author(),
            )
            noted.append((payload, last_change(db, project, name)))
        record(log, *noted)
        what = f"{'run' if view.group is None else 'group'} {view.id}"
        what += f" ({label})" if label else ""
        for (_, name), earlier in before.items():
            was = f"before: {_named(earlier)}" if earlier else "no baseline before"
            note(f"{name}: {what} is now the baseline ({was}).")
        _warn_of_gaps(db, view, {name for _, name in chosen})
        # Which drops can a later run with as many repeats confirm?
        pairs = RunDiff(view, view, DiffOptions()).pairs
        tests = [test for key, test in pairs.items() if key[:2] in chosen]
        rates = [rate for test in tests for _, rate in test.rates]
        if power := comparison_power((rate.before, rate.after.n) for rate in rates):
            note(power_text(power))


@baseline_app.command("list")
def list_command(
    suite: str | None = _SUITE, form: ListFormat = LIST_FORMAT, db: Path | None = DATABASE
) -> None:
    """List baselines."""
    with open_history(db) as connection:
        found = list_baselines(connection, suite)
    if form == "json":
        listed = [
            {
                **fields_of(baseline, "project suite"),
                "label": baseline.label or None,
                "run": baseline.run,
                "group": baseline.group_id,
                **fields_of(baseline, "runs setAt setBy active"),
                "here": baseline.missing is None,
            }
            for baseline in found
        ]
        sys.stdout.write(json_document(baselines=listed))
    elif found:
        sys.stdout.write(table(_HEADER, map(_cells, found)))
    else:
        note("No baseline is set. Run: kindlm baseline set")


@baseline_app.command("compare")
def compare_command(
    run: str | None = _RUN,
    suite: str | None = _SUITE,
    label: str | None = _LABEL,
    form: ListFormat = LIST_FORMAT,
    db: Path | None = DATABASE,
) -> None:
    """Compare a run with the baseline.

    Exits with 1 if a regression is confirmed or a test was removed.
    """
    from kindlm.history.diff.run_diff import DiffOptions, compare_runs
    from kindlm.reports.diff import write_diff
    from kindlm.reports.diff.phrases import completing_command, lacking_text

    threshold = or_fail(regression_threshold(existing_history(db).root))
    shown = report_options(db)
    compared: list[dict[str, Any]] = []
    with open_history(db) as reader:
        view = RunView(reader, after := finished_side(reader, run, suite))
        warn_of_passed_over(reader, run, after)
        whole = view.is_whole(suite)
        if not whole:
            why = f"INCOMPLETE: {lacking_text(view)}. The comparison fails."
            warn(why, f"Next: {completing_command(view)}")
        broken = [row.name for row in view.suites if row.error_code is not None]
        unloaded = [name for name in broken if suite in (None, name)]
        for name in unloaded:
            warn(f"{name}: the suite could not be loaded in run {view.id}.")
        by_runs, without = _baselines_of(view, suite, label)
        is_whole_run = suite is None and not without and len(by_runs) == 1
        fails = not whole or bool(unloaded)
        for runs, baselines in by_runs.items():
            first, names = baselines[0], [each.suite for each in baselines]
            keys = sorted((each.project, each.suite) for each in baselines)
            checks = BaselineChecks(reader)
            errors = [error for key in keys if (error := checks.corruption(runs, *key))]
            show(errors)
            about: dict[str, Any] = {
                "suites": names,
                "baseline": {"run": first.run, "group": first.group_id, "runs": runs},
                "errors": [{"code": each.code.name, "message": each.message} for each in errors],
                "diff": None,
            }
            compared.append(about)
            if errors:  # a changed baseline is not compared
                fails = True
                continue
            note(f"{', '.join(names)}: baseline {first.what}")
            suites = None if is_whole_run else frozenset(keys)
            options = DiffOptions(regression_threshold=threshold, suites=suites)
            diff = compare_runs(reader, first.side(reader), after, options)
            fails |= diff.fails
            if form == "terminal":
                write_diff(diff, form, sys.stdout, shown)
            else:
                text = io.StringIO()
                write_diff(diff, form, text, shown)
                about["diff"] = json.loads(text.getvalue())
    if form == "json":
        document = {"run": view.id, "fails": fails, "complete": whole}
        sys.stdout.write(json_document(**document, comparisons=compared, unloadedSuites=unloaded))
    if fails:
        raise typer.Exit(1)


@baseline_app.command("remove")
def remove_command(
    suite: str | None = _SUITE,
    label: str | None = _LABEL,
    project: str | None = option(
        "--project NAME", "Project of the baseline, if several share a history."
    ),
    database: Path | None = DATABASE,
) -> None:
    """Remove the baseline of a suite. The run stays in the history."""
    with open_journal(database) as (log, db):
        matching = [
            baseline
            for baseline in list_baselines(db, suite)
            if (baseline.active if label is None else baseline.label == label)
            and project in (None, baseline.project)
        ]
        if not matching:
            named = f" {label!r}" if label else f" of suite {suite!r}" if suite else ""
            hint = "List the baselines: kindlm baseline list. Set one: kindlm baseline set"
            refuse(f"No baseline{named} is set.", hint, code=ErrorCode.BASELINE_NOT_FOUND)
        if len(matching) > 1:
            which = ", ".join(sorted(f"{each.suite} of {each.project}" for each in matching))
            refuse(f"There are several baselines: {which}.", "Name one: --suite, --project")
        (found,) = matching
        of = found.project, found.suite
        payload = BaselineRemoved(
            project=found.project, suite=found.suite, label=found.label or None, by=author()
        )
        record(log, (payload, last_change(db, *of)))
        now = find_baseline(db, *of)
    note(f"{found.suite}: {_named(found)} is no longer the baseline.")
    if now is None:
        note("No baseline is left, so drift is not checked. Set one: kindlm baseline set")
    else:
        note(f"The baseline is now {_named(now)}.")


def _chosen(
    log: EventLog,
    db: sqlite3.Connection,
    wanted: str | None,
    suite: str | None,
    read: Result[ForeignFile] | None,
) -> str | Group:
    """Return the run or group that a user names; import it if they name another tool's file."""
    from kindlm.cli.foreign_import import import_results

    # A run comes before a file of its name.
    if read is None or isinstance(find_run_or_group(db, wanted or "", commit_named), Ok):
        return finished_side(db, wanted, suite)
    file = or_fail(read)
    run, added, _ = import_results(log, file, project_here(log.path).root, suite)
    if added:
        note(f"{wanted} was imported as run {run}.")
    for warning in file.results.warnings:
        warn(warning)
    return run


def _suites_of(view: RunView, suite: str | None) -> list[tuple[str, str]]:
    """Return project and name of the suites that a run tested, or of those named `suite`."""
    tested = (each for each in view.suites if each.error_code is None)
    found = list(dict.fromkeys((each.project or "", each.name) for each in tested))
    chosen = [key for key in found if suite in (None, key[1])]
    if not found:
        refuse(f"The run {view.id} tested no suite.", "Choose another: kindlm runs")
    if not chosen:
        known = ", ".join(name for _, name in found)
        refuse(f"The run {view.id} tested no suite {suite!r}.", f"Its suites are: {known}")
    return chosen


def _baselines_of(
    view: RunView, suite: str | None, label: str | None
) -> tuple[dict[tuple[str, ...], list[Baseline]], list[str]]:
    """Return the baselines of the suites of a run, by the runs that they are.

    The names of suites without a baseline follow; the command ends if none has one.
    """
    found: dict[tuple[str, ...], list[Baseline]] = {}
    without = list[str]()
    for project, name in _suites_of(view, suite):
        baseline = find_baseline(view.db, project, name, label)
        if baseline is None:
            without.append(name)
        else:
            found.setdefault(baseline.runs, []).append(baseline)
    if not found:
        fail(no_baseline(name, label) for name in without)
    for name in without:
        note(f"{name}: no baseline.")
    return found, without


def _warn_of_gaps(db: sqlite3.Connection, view: RunView, names: set[str]) -> None:
    """Warn about a baseline that failed, whose answers are old, or that lacks tests."""
    suites = [suite for suite in view.suites if suite.name in names]
    if not all(suite.passed for suite in suites):
        warn(
            "This run failed, so later runs are compared with a failing run.",
            "Choose another one: kindlm runs",
        )
    cached = view.summary.calls_from_history
    if cached and view.info.mode == "live":
        warn(
            f"{cached:,} of its {count(view.summary.calls, 'call')} were answered from the history:"
            " these answers are as old as the runs that recorded them.",
            "To compare with what the models answer now, choose a run without --cache.",
        )
    for suite in suites:
        defined = db.execute(_DEFINED, (suite.id,)).fetchone()[0]
        untested = defined - sum(test.counts.tested > 0 for test in view.tests(suite.id))
        if untested:
            warn(
                f"{suite.name}: {untested} of its {defined} tests did not run in this run and"
                " have no baseline.",
                "Choose a run of all tests, or a whole group of shards: kindlm runs",
            )


def _named(baseline: Baseline) -> str:
    return f"{baseline.what} ({baseline.label})" if baseline.label else baseline.what


def _cells(baseline: Baseline) -> tuple[str, ...]:
    """Return the row of a baseline; an arrow marks the active one."""
    return (
        "→" if baseline.active else "",
        one_line(baseline.suite),
        one_line(baseline.label),
        one_line(baseline.name) + (" (not here)" if baseline.missing else ""),
        local_time(baseline.set_at),
        one_line(baseline.set_by),
        one_line(baseline.project),
    )
