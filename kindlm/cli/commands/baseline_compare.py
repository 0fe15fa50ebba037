"""`kindlm baseline compare`: compare a run with the baseline, as `kindlm diff` does."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from kindlm.cli.commands.baseline import suites_of
from kindlm.cli.console import fail, note, or_fail, show, wants_color, warn
from kindlm.cli.history import existing_history, finished_side, open_history
from kindlm.cli.options import ListFormat
from kindlm.dataclass import dataclass
from kindlm.history.baselines import Baseline, BaselineChecks, find_baseline, no_baseline, output_of
from kindlm.history.diff.details import CheckChange
from kindlm.history.diff.evidence_values import Change, Side, Strength, TestDiff
from kindlm.history.diff.run_diff import DiffOptions, RunDiff
from kindlm.history.run_view import RunView
from kindlm.recording.project import regression_threshold
from kindlm.reports.diff.json import check_evidence
from kindlm.reports.diff.parts import check_name, check_text
from kindlm.reports.diff.phrases import (
    attempts_text,
    completing_command,
    lacking_text,
    not_comparable_text,
    side_text,
)
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import Page, Part
from kindlm.reports.untrusted import json_document, one_line
from kindlm.spelling import fields_of

_SIGNS: dict[Change, Part] = {
    Change.REGRESSED: ("✗", "red"),
    Change.REMOVED: ("✗", "red"),
    Change.IMPROVED: ("↑", "green"),
    Change.ADDED: ("+", "green"),
    Change.UNCHANGED: ("=", "dim"),
    Change.NOT_RUN: ("-", "dim"),
}


@dataclass(frozen=True, slots=True)
class ComparedTest:
    """A test compared with its baseline.

    `change` differs from that of `diff` if a side has no result. `after` is None if the test is not
    defined any more. `checks` pass less often, and `output_changed` is about the representative
    output.
    """

    diff: TestDiff
    change: Change
    after: Side | None
    checks: tuple[CheckChange, ...] = ()
    output_changed: bool = False

    @property
    def strength(self) -> Strength | None:
        """The strength of the evidence; None for changes that need none."""
        return self.diff.strength if self.diff.compared else None

    @property
    def fails(self) -> bool:
        """Whether this test fails the comparison."""
        return self.diff.fails if self.diff.compared else self.change is Change.REMOVED

    @property
    def new_failure_codes(self) -> list[str]:
        """The failure codes that are new since the baseline."""
        sides = (self.diff.before, self.after)
        before, after = (side.failure_codes if side else frozenset() for side in sides)
        return sorted(after - before)


def compare_with_baseline(
    database: Path | None,
    wanted: str | None,
    suite: str | None,
    label: str | None,
    form: ListFormat,
    out: TextIO,
) -> bool:
    """Write a comparison of a run with the baseline; return whether nothing got worse."""
    with open_history(database) as db:
        view = RunView(db, or_fail(finished_side(db, wanted, suite)))
        whole = view.is_whole(suite)
        if not whole:
            warn(
                f"INCOMPLETE: {lacking_text(view)}. Missing tests count as not run, and the"
                f" comparison fails. Next: {completing_command(view)}"
            )
        rows = (row for row in view.suites if row.error_code is not None)
        unloaded = [row.name for row in rows if suite in (None, row.name)]
        for name in unloaded:
            warn(f"{name}: the suite could not be loaded in run {view.id}.")
        suites = suites_of(db, view.runs[0], suite)
        baselines = {key: find_baseline(db, *key, label) for key in suites}
        if not any(baselines.values()):
            fail(no_baseline(name, label) for _, name in suites)
        options = DiffOptions(
            regression_threshold=or_fail(regression_threshold(existing_history(database).root))
        )
        checks = BaselineChecks(db)

        @cache
        def diff_with(baseline: Baseline) -> RunDiff:
            before = view if baseline.runs == view.runs else RunView(db, baseline.side(db))
            return RunDiff(before, view, options)

        page = Page(
            out,
            ReportOptions(color=wants_color(out), width=shutil.get_terminal_size().columns),
        )
        fails, compared = not whole or bool(unloaded), list[dict[str, Any]]()
        for (project, name), baseline in baselines.items():
            problem = checks.corruption(baseline.runs, project, name) if baseline else None
            diff, tests = None, list[ComparedTest]()
            if problem is not None:
                show([problem])
            elif baseline is not None:
                diff = diff_with(baseline)
                tests = list(compared_tests(db, diff, project, name))
            run_regressed = diff is not None and diff.evidence.run_regressed
            fails |= problem is not None or run_regressed or any(test.fails for test in tests)
            if form == "json":
                compared.append(
                    {
                        "suite": name,
                        "baseline": baseline
                        and {
                            "run": baseline.run,
                            "group": baseline.group_id,
                            "runs": baseline.runs,
                            "label": baseline.label or None,
                            **fields_of(baseline, "setAt setBy"),
                        },
                        "error": problem
                        and {
                            "code": problem.code.name,
                            "number": problem.code,
                            "message": problem.message,
                        },
                        "runRegressed": run_regressed,
                        "attempts": diff and diff.attempts,
                        "tests": list(map(_test_json, tests)),
                    }
                )
            elif baseline is None:
                note(f"{name}: no baseline.")
            elif diff is not None:
                _write_suite(baseline, diff, tests, page)
        if form == "json":
            about = {"run": view.id, "fails": fails, "complete": whole}
            out.write(json_document(**about, suites=compared, unloadedSuites=unloaded))
    return not fails


def compared_tests(
    db: sqlite3.Connection, diff: RunDiff, project: str, suite: str
) -> Iterator[ComparedTest]:
    """Yield the tests of a suite in the order of the run, then those not run and the removed ones.

    A removed test without a result in the baseline is left out. A test of a file that could not be
    loaded is not run: it is unknown whether the test is still defined.
    """
    tests = [test for test in diff.tests if (test.key.project, test.key.suite) == (project, suite)]
    for test in tests:
        if test.after is None:
            continue
        change = test.change
        if not test.after.counts.n:
            change = Change.NOT_RUN
        elif not test.compared:
            change = Change.ADDED
        dropped = diff.details(test).checks if test.evidence.dropped_checks else ()
        checks = tuple(check for check in dropped if check.evidence is not None)
        sides = (diff.before, diff.after) if test.compared else ()
        outputs = {output_of(db, side.runs, test.key) for side in sides}
        yield ComparedTest(test, change, test.after, checks, len(outputs) > 1)
    gone = [test for test in tests if test.after is None]
    for test in sorted(gone, key=lambda test: (test.change is Change.REMOVED, test.key)):
        if test.change is Change.NOT_RUN:
            yield ComparedTest(test, Change.NOT_RUN, Side())
        elif test.change is Change.REMOVED and test.before and test.before.counts.n:
            yield ComparedTest(test, Change.REMOVED, None)


def _write_suite(
    baseline: Baseline, diff: RunDiff, tests: Sequence[ComparedTest], page: Page
) -> None:
    label = f" ({one_line(baseline.label)})" if baseline.label else ""
    what = "run" if diff.after.group is None else "group"
    page.line(
        (one_line(baseline.suite), "bold"),
        f"  baseline {baseline.name}{label} → {what} {diff.after.id}",
        hang=2,
    )
    if baseline.runs == diff.after.runs:
        page.line("The run is the baseline itself.", indent=2)
    if diff.attempts is not None:
        page.line(attempts_text(diff.attempts), indent=2)
    if unseen := not_comparable_text(diff):
        page.line((unseen, "yellow"), indent=2)
    for test in tests:
        status = f"{test.change}, {test.strength}" if test.strength else str(test.change)
        suspected = test.change is Change.REGRESSED and test.strength is Strength.SUSPECTED
        sides = dict.fromkeys((side_text(test.diff.before), side_text(test.after)))
        page.line(
            ("?", "yellow") if suspected else _SIGNS[test.change],
            f" {one_line(test.diff.key.name)} · {one_line(test.diff.key.target)}",
            f"  {' → '.join(sides)}  {status}",
            indent=2,
            hang=2,
        )
        for check in test.checks:
            page.line(f"check {check_name(check)} {check_text(check)}", indent=6)
        if test.new_failure_codes:
            page.line(f"new: {', '.join(test.new_failure_codes)}", indent=6)
        if test.output_changed:
            page.line("the output is another one", indent=6)
        for turn in test.diff.behaviour.turns:
            page.line(f"the answer of turn {turn} is another one", indent=6)
    counts = Counter(test.change for test in tests)
    tally = ", ".join(f"{counts[change]} {change}" for change in Change if counts[change])
    page.line(tally or "no tests", indent=2)
    if diff.evidence.run_regressed:
        page.line(("The run as a whole passes less often, for certain.", "red"), indent=2)


def _test_json(test: ComparedTest) -> dict[str, Any]:
    before, after = (
        side
        and {
            "passRate": side.counts.passed / side.counts.n if side.counts.n else None,
            "executions": side.counts.n,
            "status": side.status,
            "failureCodes": sorted(side.failure_codes),
        }
        for side in (test.diff.before, test.after)
    )
    return {
        **fields_of(test.diff.key, "name target"),
        **fields_of(test, "change strength fails"),
        "before": before,
        "after": after,
        **fields_of(test, "newFailureCodes outputChanged"),
        "turnsChanged": test.diff.behaviour.turns,
        "droppedChecks": [
            {**fields_of(check, "kind label"), **check_evidence(check.evidence)}
            for check in test.checks
            if check.evidence is not None
        ],
    }
