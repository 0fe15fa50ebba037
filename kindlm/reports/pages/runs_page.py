"""The page of all runs: the newest first, what they can be narrowed down by, how they went."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from kindlm.history.runs import (
    STATUSES,
    Run,
    RunFigures,
    RunFilter,
    choices,
    read_figures,
    runs,
    status_of,
)
from kindlm.reports.figures import money, percent
from kindlm.reports.pages.charts import Chart, Point, trend
from kindlm.reports.pages.html_document import MOODS, Document, Links
from kindlm.reports.untrusted import one_line

_LISTED = 50


def runs_page(db: sqlite3.Connection, query: Mapping[str, str], links: Links) -> Document:
    """Return the page; `query` may hold suite, label, branch, status, and page, from 1."""
    given: dict[str, Any] = {
        name: query[name] for name in ("suite", "label", "branch", "status") if query.get(name)
    }
    number = page_number(query.get("page"))
    # One more shows whether there are older ones.
    wanted = RunFilter(**given, limit=_LISTED + 1, offset=(number - 1) * _LISTED)
    found = list(runs(db, wanted))
    listed = found[:_LISTED]
    figures = read_figures(db, listed)
    statuses = {run.id: status_of(db, run) for run in listed}
    # Runs of this page, each with the one before it that ran the same, or the same shard.
    before, newer = dict[str, str](), dict[tuple[str, tuple[str, ...], str | None], str]()
    for run in listed:
        same = (run.project, run.suites, run.shard)
        if same in newer:
            before[newer[same]] = run.id
        newer[same] = run.id
    return Document(
        "runs.html",
        "Runs",
        {
            "runs": listed,
            "figures": figures,
            "statuses": statuses,
            "before": before,
            "given": wanted,
            "narrowed": bool(given),
            "choices": {**choices(db), "status": STATUSES},
            "charts": _charts(listed, figures, statuses, links),
            "newer": _address(given, number - 1) if number > 1 else None,
            "older": _address(given, number + 1) if len(found) > _LISTED else None,
        },
        styles=("charts", "runs", "pager"),
    )


def page_number(written: str | None) -> int:
    """Return the number of a page as it was asked for, 1 if that is not a number."""
    if written is None or not written.isascii() or not written.isdigit() or len(written) > 6:
        return 1
    return max(int(written), 1)


def _address(given: Mapping[str, str], number: int) -> str:
    return "?" + urlencode({**given, "page": str(number)})


def _charts(
    listed: Sequence[Run],
    figures: Mapping[str, RunFigures],
    statuses: Mapping[str, str],
    links: Links,
) -> list[Chart]:
    """Return charts of the runs of this page, the oldest first; those without values are absent."""
    oldest_first = listed[::-1]
    points = [
        Point(
            MOODS[statuses[run.id]],
            one_line(f"{run.id} {run.label}" if run.label else run.id, 40),
            statuses[run.id],
            run.started_at,
            links.run(run.id) or "",
        )
        for run in oldest_first
    ]
    found = [figures[run.id] for run in oldest_first]
    charts = (
        trend("Pass rate", points, [each.executions.pass_rate for each in found], percent, 1.0),
        trend("Cost", points, [each.paid.total_usd for each in found], money),
    )
    return [chart for chart in charts if chart is not None]
