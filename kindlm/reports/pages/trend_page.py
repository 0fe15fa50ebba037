"""The page of a test over time: how it did in each run, what changed, and how steady it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kindlm.history.diff.diff_values import QualifiedName
from kindlm.history.trends import Trend, TrendPoint, read_trend
from kindlm.reports.figures import duration, money, percent, score
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.pages.charts import Point, trend
from kindlm.reports.pages.html_document import MOODS, Document, Links
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

_RUNS = 50
_SMALL = 360
_COMMIT = 8


@dataclass(frozen=True, slots=True)
class _Chart:
    """A figure over time: its drawing, and in words what it goes from and to."""

    name: str
    drawing: Markup
    said: str


def trend_page(db: sqlite3.Connection, test: QualifiedName, links: Links) -> Document | None:
    """Return the page of a test on a target, None if no run selected it."""
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
            "charts": list(_charts(found, links)),
            "facts": list(_facts(found)),
            "more": found.more,
            "commit": _COMMIT,
            # Each with the run before it in this list, which is older.
            "before": dict(zip(_runs(found), _runs(found)[1:], strict=False)),
        },
        styles=("charts", "trend"),
    )


def _runs(found: Trend) -> list[str]:
    return [point.run.id for point in found.points]


def _facts(found: Trend) -> Iterator[tuple[str, str]]:
    passed = sum(point.own.passed for point in found.counted)
    tested = sum(point.own.n for point in found.counted)
    yield "Runs", f"{len(found.points):,}"
    if tested:
        yield "Executions that passed", f"{percent(passed / tested)} of {tested:,}"
    flaky = found.flakiness
    if flaky.within is not None:
        yield "Pairs of repeats that differ", percent(flaky.within)
    if flaky.between is not None:
        yield "Runs unlike the one before", percent(flaky.between)
    if later := found.passed_later.passed:
        yield "Passed only when run again", count(later, "execution")
    if left := len(found.points) - len(found.counted):
        yield "Not counted", count(left, "run")


def _charts(found: Trend, links: Links) -> Iterator[_Chart]:
    points = list(reversed(found.counted))
    for name, most, value, told in (
        ("Pass rate", 1.0, _rate, percent),
        ("Judge", 1.0, lambda point: point.judge, score),
        ("Weighted score", 1.0, lambda point: point.weighted, points_of_100),
        ("Latency", None, lambda point: point.test.latency_ms, duration),
        ("Cost", None, lambda point: point.cost_usd, money),
    ):
        if (chart := _chart(name, points, value, told, most, links)) is not None:
            yield chart


def _rate(point: TrendPoint) -> float | None:
    return point.test.counts.passed / point.test.counts.tested if point.test.counts.tested else None


def _chart(
    name: str,
    points: Sequence[TrendPoint],
    value: Callable[[TrendPoint], float | None],
    told: Callable[[float], str],
    most: float | None,
    links: Links,
) -> _Chart | None:
    values = [value(point) for point in points]
    known = [each for each in values if each is not None]
    high = most or max(known, default=0.0)
    if len(known) < 2 or not high:
        return None
    drawn = [
        Point(
            None if each is None else each / high,
            MOODS[point.test.status],
            f"{one_line(point.run.id)}, {point.run.started_at[:10]}: {point.test.status.value}, "
            f"{'unknown' if each is None else told(each)}",
            links.run(point.run.id),
        )
        for point, each in zip(points, values, strict=True)
    ]
    low, top = told(min(known)), told(max(known))
    spread = low if low == top else f"{low} to {top}"
    return _Chart(
        name,
        trend(drawn, f"{name}, from the oldest run to the newest: {spread}", _SMALL),
        f"{spread}, now {told(known[-1])}; drawn from 0 to {told(high)}",
    )
