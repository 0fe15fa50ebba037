"""Tests over time, as tables with sparklines and as JSON: `kindlm runs --test`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from kindlm.cli.sparkline import sparkline
from kindlm.cli.table import aligned
from kindlm.history.trends import Trend, TrendPoint
from kindlm.reports.figures import duration, money, percent, score
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.untrusted import one_line, printed_json
from kindlm.wording import count

_HEADER = (
    "RUN",
    "LABEL",
    "WHEN",
    "STATUS",
    "PASSED",
    "JUDGE",
    "LATENCY",
    "COST",
    "MODEL",
    "GIT",
    "CHANGED",
)
_STATUS = _HEADER.index("STATUS")
_COLORS = {"passed": "32", "failed": "31", "errored": "35"}
_COMMIT = 8


def trends_json(trends: Sequence[Trend]) -> str:
    """Return the tests over time for programs."""
    report = {"schemaVersion": 1, "tests": [_trend(trend) for trend in trends]}
    return printed_json(report, indent=2) + "\n"


def trends_text(trends: Sequence[Trend], *, color: bool, blocks: bool) -> str:
    """Return the tests over time for people; `blocks` says whether a terminal shows them."""
    return "\n".join("".join(_lines(trend, color, blocks)) for trend in trends)


def _lines(trend: Trend, color: bool, blocks: bool) -> Iterator[str]:
    test = trend.test
    name = f"{one_line(test.name)} · {one_line(test.target)}"
    yield f"{name}  {one_line(test.suite)}, {one_line(test.project)}\n"
    for title, line in _figures(trend, blocks):
        yield f"  {title:<9}  {line}\n"
    rows = aligned([_HEADER, *(_cells(point) for point in trend.points)])
    if color:
        for point, cells in zip(trend.points, rows[1:], strict=True):
            paint = _COLORS.get(point.test.status, "33")
            cells[_STATUS] = f"\x1b[{paint}m{cells[_STATUS]}\x1b[0m"
    yield from ("  ".join(row).rstrip() + "\n" for row in rows)


def _figures(trend: Trend, blocks: bool) -> Iterator[tuple[str, str]]:
    """Yield a sparkline for each figure, the oldest run first, with the range that it shows."""
    points = list(reversed(trend.counted))
    rates = [point.test.counts.pass_rate for point in points]
    passed = sum(point.own.passed for point in points)
    tested = sum(point.own.n for point in points)
    if tested:
        share = f"{percent(passed / tested)}, {passed:,} of {tested:,}"
        yield "pass rate", f"{sparkline(rates, 0, 1, blocks=blocks)}  {share}"
    for title, values, low, figure in (
        ("judge", [point.judge for point in points], 0.0, score),
        ("score", [point.weighted for point in points], 0.0, points_of_100),
        ("latency", [point.test.latency_ms for point in points], 0.0, duration),
        ("cost", [point.cost_usd for point in points], 0.0, money),
    ):
        known = [value for value in values if value is not None]
        if not known:
            continue
        high = 1.0 if title in ("judge", "score") else max(known)
        least, most = figure(min(known)), figure(max(known))
        spread = least if least == most else f"{least} to {most}"
        yield title, f"{sparkline(values, low, high, blocks=blocks)}  {spread}"
    yield from _flakiness(trend)
    counted = {point.run.id for point in trend.counted}
    others = Counter(
        "from the history" if point.run.mode == "live" else point.run.mode
        for point in trend.points
        if point.run.id not in counted
    )
    if told := [f"{number:,} {mode}" for mode, number in sorted(others.items()) if number]:
        yield "others", f"{', '.join(told)}: shown, and not counted above"


def _flakiness(trend: Trend) -> Iterator[tuple[str, str]]:
    found = trend.flakiness
    parts = []
    if found.within is not None:
        parts.append(f"{percent(found.within)} of pairs of repeats came out differently")
    if found.between is not None:
        parts.append(f"{percent(found.between)} of runs did not come out like the run before")
    if later := trend.passed_later.passed:
        of = count(trend.passed_later.n, "execution")
        parts.append(f"{later:,} of {of} passed only when run again")
    if parts:
        yield "flaky", ", ".join(parts)


def _cells(point: TrendPoint) -> tuple[str, ...]:
    when = datetime.fromisoformat(point.run.started_at).astimezone()
    counts, run = point.test.counts, point.run
    remarks = [run.mode] if run.mode != "live" else []
    if run.ended in ("interrupted", "aborted"):
        remarks.append(run.ended)
    if run.mode == "live" and (taken := counts.tested - point.own.n):
        remarks.append(f"{taken:,} of {counts.tested:,} from the history")
    return (
        one_line(point.run.id),
        one_line(point.run.label or ""),
        when.strftime("%Y-%m-%d %H:%M"),
        str(point.test.status),
        _passed(point),
        "" if point.judge is None else score(point.judge),
        "" if point.test.latency_ms is None else duration(point.test.latency_ms),
        "" if point.cost_usd is None else money(point.cost_usd),
        one_line(", ".join(point.models), 40),
        one_line((point.run.git_commit or "")[:_COMMIT]),
        one_line(", ".join([*remarks, *point.changes])),
    )


def _passed(point: TrendPoint) -> str:
    if not point.test.counts.tested:
        return "-"
    return f"{point.test.counts.passed}/{point.test.counts.tested}{' flaky' if point.flaky else ''}"


def _trend(trend: Trend) -> dict[str, Any]:
    test, flaky = trend.test, trend.flakiness
    return {
        "project": test.project,
        "suite": test.suite,
        "test": test.name,
        "target": test.target,
        "flakiness": {
            "within": flaky.within,
            "between": flaky.between,
            "passedLater": trend.passed_later.passed,
        },
        "runs": [_point(point) for point in trend.points],
    }


def _point(point: TrendPoint) -> dict[str, Any]:
    return {
        "id": point.run.id,
        "label": point.run.label,
        "mode": point.run.mode,
        "startedAt": point.run.started_at,
        "ended": point.run.ended,
        "status": point.test.status,
        "executions": {
            "passed": point.test.counts.passed,
            "failed": point.test.counts.failed,
            "errored": point.test.counts.errored,
            "skipped": point.test.counts.untested,
        },
        "ownExecutions": {
            "passed": point.own.passed,
            "passedLater": point.passed_later,
            "tested": point.own.n,
        },
        "passRate": point.test.counts.pass_rate,
        "judgeAvg": point.judge,
        "weightedScoreAvg": point.weighted,
        "latencyAvgMs": point.test.latency_ms,
        "costUsd": point.cost_usd,
        "models": point.models,
        "configHash": point.config_hash,
        "git": {
            "branch": point.run.git_branch,
            "commit": point.run.git_commit,
            "dirty": point.run.git_dirty,
        },
        "kindlm": point.run.kindlm_version,
        "changes": point.changes,
    }
