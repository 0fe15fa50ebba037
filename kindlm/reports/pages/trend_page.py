"""The page of a test over time: how it did in each run, what changed, and how steady it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from itertools import pairwise

from kindlm.history.trends import Trend, read_trend
from kindlm.plan import QualifiedName
from kindlm.reports.figures import duration, money, percent, score
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.pages.charts import Chart, Point, trend
from kindlm.reports.pages.html_document import MOODS, Document, Links
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

_RUNS = 50
_COMMIT = 8


def trend_page(db: sqlite3.Connection, query: Mapping[str, str], links: Links) -> Document | None:
    """Return the page of a test on a target, None if no run selected it.

    `query` has its project, suite, name and target.
    """
    test = QualifiedName(*(query.get(name, "") for name in QualifiedName._fields))
    found = read_trend(db, test, limit=_RUNS)
    if not found.points:
        return None
    return Document(
        "trend.html",
        f"{one_line(test.name)} · {one_line(test.target)} over time",
        {
            "test": test,
            "points": found.points,
            "counted": {point.run.id for point in found.counted},
            "charts": _charts(found, links),
            "facts": list(_facts(found)),
            "more": found.more,
            "commit": _COMMIT,
            # Each with the run before it in this list, which is older.
            "before": dict(pairwise(point.run.id for point in found.points)),
        },
        styles=("charts", "trend"),
    )


def _facts(found: Trend) -> Iterator[tuple[str, str]]:
    passed = sum(point.own.passed for point in found.counted)
    tested = sum(point.own.n for point in found.counted)
    yield "Runs", f"{len(found.points):,}"
    if tested:
        yield "Passed", f"{percent(passed / tested)} of {tested:,}"
    flaky = found.flakiness
    if flaky.within is not None:
        yield "Pairs of repeats that disagree", percent(flaky.within)
    if flaky.between is not None:
        yield "Runs with a changed result", percent(flaky.between)
    if later := found.passed_later.passed:
        yield "Passed only on retry", count(later, "execution")
    if left := len(found.points) - len(found.counted):
        yield "Not counted", count(left, "run")


def _charts(found: Trend, links: Links) -> list[Chart]:
    points = found.counted[::-1]
    runs = [
        Point(
            MOODS[point.test.status],
            one_line(point.run.id),
            point.test.status.value,
            point.run.started_at,
            links.run(point.run.id) or "",
        )
        for point in points
    ]
    charts = (
        trend("Pass rate", runs, [each.test.counts.pass_rate for each in points], percent, 1.0),
        trend("Judge score", runs, [each.judge for each in points], score, 1.0),
        trend("Weighted score", runs, [each.weighted for each in points], points_of_100, 1.0),
        trend("Latency", runs, [each.test.latency_ms for each in points], duration),
        trend("Cost", runs, [each.cost_usd for each in points], money),
    )
    return [chart for chart in charts if chart is not None]
