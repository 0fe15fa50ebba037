"""`kindlm runs`: list recorded runs, or show a test over time with sparklines."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kindlm.cli.console import fail, note, refuse, table
from kindlm.cli.history import open_history
from kindlm.cli.options import DATABASE, LIST_FORMAT, ListFormat, option, parse_since
from kindlm.errors import not_there
from kindlm.history.runs import Run, RunFigures, RunFilter, read_figures, runs
from kindlm.history.trends import Trend, TrendPoint, find_tests, read_trend
from kindlm.history.verdict import StatusCounts
from kindlm.reports.facts import git_state
from kindlm.reports.figures import duration, local_time, money, percent, score, total
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.untrusted import json_document, one_line
from kindlm.spelling import fields_of
from kindlm.wording import count

_COMMIT_LENGTH = 8

_HEADER = ("RUN", "LABEL", "WHEN", "STATUS", "PASSED", "GATES", "COST", "GIT", "SUITES")

_MOST_TESTS = 20
"""The number of tests shown. If more match, the user should write more of the name."""

_TREND_HEADER = (
    "RUN", "LABEL", "WHEN", "STATUS", "PASSED", "JUDGE", "LATENCY", "COST", "MODEL", "GIT",
    "CHANGED",
)  # fmt: skip

_BLOCKS = "▁▂▃▄▅▆▇█"


def runs_command(
    test: str | None = option("--test -t NAME", "Show this test over time."),
    limit: int = option("--limit N", "Maximum number of runs.", default=20, min=1, max=1_000_000),
    suite: str | None = option("--suite -s NAME", "Show only runs of this suite."),
    model: str | None = option("--model ID", "With --test: show only this target."),
    since: str | None = option(
        "--since AGE", "Show only runs since then: 30d, 12h, 2w, 2026-01-31."
    ),
    form: ListFormat = LIST_FORMAT,
    db: Path | None = DATABASE,
) -> None:
    """List recorded runs, or show one test over time.

    A + after a commit marks uncommitted changes.
    """
    if model is not None and test is None:
        refuse("--model goes with --test.", "Add --test NAME, or leave --model out.")
    start = None if since is None else parse_since(since)
    with open_history(db) as connection:
        if test is None:
            _show_runs(connection, RunFilter(suite=suite, since=start, limit=limit), form)
            return
        found = find_tests(connection, test, suite=suite, target=model)
        if not found:
            of = (f" of suite {suite!r}" if suite else "") + (f" on {model!r}" if model else "")
            message = f"No recorded test{of} has {test!r} in its name."
            fail([not_there(message, "The tests of a run: kindlm show RUN")])
        shown = found[:_MOST_TESTS]
        trends = [read_trend(connection, each, limit=limit, since=start) for each in shown]
    if form == "json":
        sys.stdout.write(trends_json(trends))
    else:
        seen = [trend for trend in trends if trend.points]
        if not seen:
            note("No run since then selected it.")
        sys.stdout.write(trends_text(seen))
    more = len(found) - _MOST_TESTS
    if more > 0:
        note(f"{count(more, 'more test')} match: write more of the name, or add --suite.")


def _show_runs(db: sqlite3.Connection, wanted: RunFilter, form: ListFormat) -> None:
    found = list(runs(db, wanted))
    figures = read_figures(db, found)
    if form == "json":
        values = [
            {
                **fields_of(run, "id label suites startedAt status passed"),
                "executions": {
                    "passed": figures[run.id].executions.passed,
                    "total": figures[run.id].executions.tested,
                },
                "gates": {"passed": figures[run.id].gates_passed, "total": figures[run.id].gates},
                "costUsd": figures[run.id].paid.total_usd,
                "unknownCosts": figures[run.id].paid.unknown,
                "git": git_state(run),
                "group": run.group_id,
                **fields_of(run, "shard mode sourceRun"),
            }
            for run in found
        ]
        sys.stdout.write(json_document(runs=values))
    elif found:
        sys.stdout.write(table(_HEADER, [_cells(run, figures[run.id]) for run in found]))
        if len(found) > 1:
            note("Compare two runs: kindlm diff BEFORE AFTER")
    else:
        note("No run matches. Record one: kindlm test. All runs: kindlm runs")


def _cells(run: Run, figures: RunFigures) -> tuple[str, ...]:
    commit = (run.git_commit or "")[:_COMMIT_LENGTH] + ("+" if run.git_dirty else "")
    git = f"{run.git_branch} {commit}" if run.git_branch else commit
    of_group = f" of {run.group_id}" if run.group_id else ""
    shard = f" · shard {run.shard}{of_group}" if run.shard else ""
    derived = "" if run.mode == "live" else f" · {run.mode}"
    derived += f" from {run.source_run}" if run.source_run else ""
    # As in reports, default gates only show if they fail.
    gates = figures.gates - figures.gates_tacit
    return (
        one_line(run.id),
        one_line(run.label or ""),
        local_time(run.started_at),
        run.status,
        f"{figures.executions.passed}/{figures.executions.tested}",
        f"{figures.gates_passed - figures.gates_tacit}/{gates}" if gates else "",
        total(figures.paid),
        one_line(git),
        one_line(", ".join(run.suites) + shard + derived),
    )


def trends_json(trends: Sequence[Trend]) -> str:
    """Return tests over time as JSON."""
    tests = [
        {
            **fields_of(trend.test, "project suite"),
            "test": trend.test.name,
            "target": trend.test.target,
            "flakiness": {
                **fields_of(trend.flakiness, "within between"),
                "passedLater": trend.passed_later.passed,
            },
            "runs": [_point_json(point) for point in trend.points],
        }
        for trend in trends
    ]
    return json_document(tests=tests)


def trends_text(trends: Sequence[Trend]) -> str:
    """Return tests over time as text."""
    texts = []
    for trend in trends:
        test = trend.test
        name = f"{one_line(test.name)} · {one_line(test.target)}"
        text = f"{name}  {one_line(test.suite)}, {one_line(test.project)}\n"
        for title, line in _figures(trend):
            text += f"  {title:<9}  {line}\n"
        texts.append(text + table(_TREND_HEADER, map(_trend_cells, trend.points)))
    return "\n".join(texts)


def _figures(trend: Trend) -> Iterator[tuple[str, str]]:
    """Yield name and sparkline of each figure, the oldest run first, with its range."""
    points = list(reversed(trend.counted))
    rates = [point.test.counts.pass_rate for point in points]
    passed = sum(point.test.counts.passed for point in points)
    tested = sum(point.test.counts.tested for point in points)
    if tested:
        share = f"{percent(passed / tested)}, {passed:,} of {tested:,}"
        yield "pass rate", f"{sparkline(rates, 1)}  {share}"
    for title, values, figure in (
        ("judge", [point.judge for point in points], score),
        ("score", [point.weighted for point in points], points_of_100),
        ("latency", [point.test.latency_ms for point in points], duration),
        ("cost", [point.cost_usd for point in points], money),
    ):
        known = [value for value in values if value is not None]
        if not known:
            continue
        high = 1.0 if title in ("judge", "score") else max(known)
        least, most = figure(min(known)), figure(max(known))
        spread = least if least == most else f"{least} to {most}"
        yield title, f"{sparkline(values, high)}  {spread}"
    found, parts = trend.flakiness, []
    if found.within is not None:
        parts.append(f"repeats disagreed in {percent(found.within)} of pairs")
    if found.between is not None:
        parts.append(f"the result changed in {percent(found.between)} of runs")
    if later := trend.passed_later.passed:
        of = count(trend.passed_later.n, "execution")
        parts.append(f"{later:,} of {of} passed only when run again")
    if parts:
        yield "flaky", ", ".join(parts)


def _trend_cells(point: TrendPoint) -> tuple[str, ...]:
    counts, run = point.test.counts, point.run
    remarks = [run.mode] if run.mode != "live" else []
    if run.ended in ("interrupted", "aborted"):
        remarks.append(run.ended)
    if run.mode == "live" and point.is_cached:
        remarks.append("with answers from the history")
    passed = f"{counts.passed}/{counts.tested}{' flaky' if point.test.flaky else ''}"
    return (
        one_line(point.run.id),
        one_line(point.run.label or ""),
        local_time(point.run.started_at),
        str(point.test.status),
        passed if counts.tested else "-",
        "" if point.judge is None else score(point.judge),
        "" if point.test.latency_ms is None else duration(point.test.latency_ms),
        "" if point.cost_usd is None else money(point.cost_usd),
        one_line(", ".join(point.models), 40),
        one_line((point.run.git_commit or "")[:_COMMIT_LENGTH]),
        one_line(", ".join([*remarks, *point.changes])),
    )


def _point_json(point: TrendPoint) -> dict[str, Any]:
    own = StatusCounts() if point.is_cached else point.test.counts
    return {
        **fields_of(point.run, "id label mode startedAt ended"),
        "status": point.test.status,
        "executions": point.test.counts.by_status,
        "ownExecutions": {
            "passed": own.passed,
            "passedLater": 0 if point.is_cached else point.test.passed_later,
            "tested": own.tested,
        },
        "passRate": point.test.counts.pass_rate,
        "judgeAvg": point.judge,
        "weightedScoreAvg": point.weighted,
        "latencyAvgMs": point.test.latency_ms,
        **fields_of(point, "costUsd models configHash"),
        "git": git_state(point.run),
        "kindlm": point.run.kindlm_version,
        "changes": point.changes,
    }


def sparkline(values: Sequence[float | None], high: float) -> str:
    """Return a bar from 0 to `high` for each value, and a space for None."""
    parts = (None if value is None else value / high if high else 1.0 for value in values)
    top = len(_BLOCKS) - 1
    return "".join(
        " " if part is None else _BLOCKS[round(min(max(part, 0.0), 1.0) * top)] for part in parts
    )
