"""The page of all runs: the newest first, what they can be narrowed down by, how they went."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode

from markupsafe import Markup

from kindlm.history.run_index import Filters, IndexedRun, read_choices, read_page
from kindlm.reports.figures import percent
from kindlm.reports.pages.charts import Point, trend
from kindlm.reports.pages.document import Document
from kindlm.reports.pages.links import Links
from kindlm.reports.untrusted import one_line

__all__ = ["RUN_MOODS", "page_number", "runs_page"]

_LISTED = 50

RUN_MOODS = {
    "passed": "good",
    "failed": "bad",
    "running": "soft",
    "interrupted": "unsure",
    "aborted": "unsure",
    "killed": "unsure",
}
"""What a status means to a reader."""


def runs_page(db: sqlite3.Connection, query: Mapping[str, str], links: Links) -> Document:
    """Return the page; `query` may hold suite, label, branch, status, and page, from 1."""
    given = {
        name: query[name] for name in ("suite", "label", "branch", "status") if query.get(name)
    }
    number = page_number(query.get("page"))
    filters = Filters(**given)
    found = read_page(db, filters, limit=_LISTED, offset=(number - 1) * _LISTED)
    return Document(
        "runs.html",
        "Runs",
        {
            "runs": found.runs,
            "before": dict(_before(found.runs)),
            "given": filters,
            "narrowed": bool(given),
            "choices": read_choices(db),
            "chart": _chart(found.runs, links),
            "newer": _address(given, number - 1) if number > 1 else None,
            "older": _address(given, number + 1) if found.more else None,
            "moods": RUN_MOODS,
        },
        styles=("charts", "runs", "pager"),
    )


def _before(runs: Sequence[IndexedRun]) -> Iterator[tuple[str, str]]:
    """Yield runs of this page, each with the one before it that ran the same, or the same shard."""
    newer: dict[tuple[str, tuple[str, ...], str | None], str] = {}
    for run in runs:
        same = (run.project, run.suites, run.shard)
        if same in newer:
            yield newer[same], run.id
        newer[same] = run.id


def page_number(written: str | None) -> int:
    """Return the number of a page as it was asked for, the first one if that is none."""
    if written is None or not written.isascii() or not written.isdigit() or len(written) > 6:
        return 1
    return max(int(written), 1)


def _address(given: Mapping[str, str], number: int) -> str:
    return "?" + urlencode({**given, "page": str(number)})


def _chart(runs: Sequence[IndexedRun], links: Links) -> Markup | None:
    shown = [run for run in reversed(runs) if run.pass_rate is not None]
    if len(shown) < 2:
        return None
    points = [
        Point(
            run.pass_rate,
            RUN_MOODS[run.status],
            f"{_name(run)}, {run.started_at[:10]}: {run.status},"
            f" {percent(run.pass_rate or 0.0)} passed",
            links.run(run.id),
        )
        for run in shown
    ]
    return trend(points, "Pass rate of the runs of this page, from the oldest to the newest")


def _name(run: IndexedRun) -> str:
    return f"{one_line(run.id)} {one_line(run.label)}" if run.label else one_line(run.id)
