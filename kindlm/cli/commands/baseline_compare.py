"""`kindlm baseline compare`: compare a run with its baselines, as `kindlm diff` does."""

from __future__ import annotations

import io
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from kindlm.cli.commands.baseline import suites_of
from kindlm.cli.commands.diff import write_diff
from kindlm.cli.console import fail, is_verbose, note, or_fail, show, warn
from kindlm.cli.history import existing_history, finished_side, open_history, report_options
from kindlm.cli.options import ListFormat
from kindlm.history.baselines import Baseline, BaselineChecks, find_baseline, no_baseline
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.run_view import RunView
from kindlm.recording.project import regression_threshold
from kindlm.reports.diff.phrases import completing_command, lacking_text
from kindlm.reports.untrusted import json_document


def compare_with_baseline(
    database: Path | None,
    wanted: str | None,
    suite: str | None,
    label: str | None,
    form: ListFormat,
) -> bool:
    """Write a comparison of a run with each of its baselines; return whether nothing got worse.

    Suites with the same baseline are compared together.
    """
    threshold = or_fail(regression_threshold(existing_history(database).root))
    shown = report_options(database, verbose=is_verbose())
    compared: list[dict[str, Any]] = []
    with open_history(database) as db:
        side = or_fail(finished_side(db, wanted, suite))
        view = RunView(db, side)
        whole = view.is_whole(suite)
        if not whole:
            warn(f"INCOMPLETE: {lacking_text(view)}.", f"Next: {completing_command(view)}")
        broken = [row.name for row in view.suites if row.error_code is not None]
        unloaded = [name for name in broken if suite in (None, name)]
        for name in unloaded:
            warn(f"{name}: the suite could not be loaded in run {view.id}.")
        suites_with = defaultdict[tuple[str, ...], list[Baseline]](list)
        without = list[str]()
        for project, name in suites_of(db, view.runs[0], suite):
            baseline = find_baseline(db, project, name, label)
            if baseline is None:
                without.append(name)
            else:
                suites_with[baseline.runs].append(baseline)
        if not suites_with:
            fail(no_baseline(name, label) for name in without)
        for name in without:
            note(f"{name}: no baseline.")
        checks, fails = BaselineChecks(db), not whole or bool(unloaded)
        for runs, baselines in suites_with.items():
            suites = frozenset((each.project, each.suite) for each in baselines)
            problems = [checks.corruption(runs, *key) for key in sorted(suites)]
            errors = [problem for problem in problems if problem is not None]
            show(errors)
            about: dict[str, Any] = {
                "suites": [each.suite for each in baselines],
                "baseline": {"run": baselines[0].run, "group": baselines[0].group_id, "runs": runs},
                "errors": [{"code": each.code.name, "message": each.message} for each in errors],
                "diff": None,
            }
            compared.append(about)
            if errors:
                fails = True
                continue
            whole_run = suite is None and not without and len(suites_with) == 1
            options = DiffOptions(
                regression_threshold=threshold, suites=None if whole_run else suites
            )
            note(f"{', '.join(each.suite for each in baselines)}: baseline {baselines[0].what}")
            diff = compare_runs(db, baselines[0].side(db), side, options)
            fails |= diff.fails
            out = sys.stdout if form == "terminal" else io.StringIO()
            write_diff(diff, form, out, shown)
            if isinstance(out, io.StringIO):
                about["diff"] = json.loads(out.getvalue())
    if form == "json":
        document = {"run": view.id, "fails": fails, "complete": whole}
        sys.stdout.write(json_document(**document, comparisons=compared, unloadedSuites=unloaded))
    return not fails
