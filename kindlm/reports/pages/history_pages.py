"""The pages of a whole history: its runs, a test over time, and the search."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
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
from kindlm.history.search import (
    Findings,
    Kind,
    Progress,
    TooLongError,
    catch_up,
    find_texts,
    is_damage,
    progress_of,
    remove_index,
)
from kindlm.history.trends import Trend, read_trend
from kindlm.plan import QualifiedName
from kindlm.reports.figures import duration, money, percent, score
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.pages.charts import Chart, Point, trend
from kindlm.reports.pages.html_document import MOODS, Document, Links, page_number
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

_LISTED = 50
"""So many runs stand on a page of runs, and on that of a test."""

_FOUND = 20
"""So many texts stand on a page of the search."""

_COMMIT = 8


def runs_page(db: sqlite3.Connection, query: Mapping[str, str], links: Links) -> Document:
    """Return the page of all runs, the newest first.

    `query` may hold suite, label, branch, status, and page, from 1.
    """
    given: dict[str, Any] = {
        name: query[name] for name in ("suite", "label", "branch", "status") if query.get(name)
    }
    number = page_number(query)
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
            "charts": _run_charts(listed, figures, statuses, links),
            "newer": _address(given, number - 1) if number > 1 else None,
            "older": _address(given, number + 1) if len(found) > _LISTED else None,
        },
        styles=("charts", "runs", "pager"),
    )


def _address(given: Mapping[str, str], number: int) -> str:
    return "?" + urlencode({**given, "page": str(number)})


def _run_charts(
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
        trend(
            "Cost",
            points,
            [None if each.paid.unknown else each.paid.total_usd for each in found],
            money,
        ),
    )
    return [chart for chart in charts if chart is not None]


def trend_page(db: sqlite3.Connection, query: Mapping[str, str], links: Links) -> Document | None:
    """Return the page of a test on a target, None if no run selected it.

    `query` has its project, suite, name and target.
    """
    test = QualifiedName(*(query.get(name, "") for name in QualifiedName._fields))
    found = read_trend(db, test, limit=_LISTED)
    if not found.points:
        return None
    return Document(
        "trend.html",
        f"{one_line(test.name)} · {one_line(test.target)} over time",
        {
            "test": test,
            "points": found.points,
            "counted": {point.run.id for point in found.counted},
            "charts": _trend_charts(found, links),
            "facts": list(_trend_facts(found)),
            "more": found.more,
            "commit": _COMMIT,
            # Each with the run before it in this list, which is older.
            "before": dict(pairwise(point.run.id for point in found.points)),
        },
        styles=("charts", "trend"),
    )


def _trend_facts(found: Trend) -> Iterator[tuple[str, str]]:
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


def _trend_charts(found: Trend, links: Links) -> list[Chart]:
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


_NUMBER = re.compile(r"-?\d{1,15}", re.ASCII)

_WORK_S = 2.0
"""So long a page brings the index up to date at most; it renews itself while that is behind."""

_STEP = 1_000
"""Executions that are indexed between two looks at the time."""

_KINDS = {
    Kind.PROMPT: "prompts",
    Kind.OUTPUT: "outputs",
    Kind.ARGUMENTS: "tool arguments",
    Kind.ANSWER: "tool results",
}
_NAMES = {
    Kind.PROMPT: "prompt",
    Kind.OUTPUT: "output",
    Kind.ARGUMENTS: "tool arguments",
    Kind.ANSWER: "tool result",
}


def search_page(db: sqlite3.Connection, history: Path, query: Mapping[str, str]) -> Document:
    """Return the page of the search; `query` may hold q, kind, and after, where older texts begin.

    It brings the index of a history, which is a file, up to date. While that is behind, the page
    renews itself. A damaged index is made anew.
    """
    try:
        return _search_page(db, history, query)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
    remove_index(history)
    return _search_page(db, history, query)


def _search_page(db: sqlite3.Connection, history: Path, query: Mapping[str, str]) -> Document:
    progress, index_problem = _brought_up_to_date(db, history)
    # Invisible characters are no words, and must not come back in the page.
    written = "".join(char if char.isprintable() else " " for char in query.get("q", "")).strip()
    kind = next((each for each in Kind if each.value == query.get("kind")), None)
    text = query.get("after", "")
    after = int(text) if _NUMBER.fullmatch(text) else None
    findings, problem = _found(db, history, written, kind, after)
    older = None
    if findings is not None and findings.next is not None:
        narrowed = {"kind": kind.value} if kind else {}
        older = "?" + urlencode({"q": written, **narrowed, "after": str(findings.next)})
    behind = not progress.current and index_problem is None
    return Document(
        "search.html",
        f"Search: {one_line(written)}" if written else "Search",
        {
            "written": written,
            "kind": kind,
            "kinds": {each.value: name for each, name in _KINDS.items()},
            "names": _NAMES,
            "findings": findings,
            "older": older,
            "behind": behind,
            "done": percent(int(progress.part * 100) / 100),
            "problem": problem,
            "index_problem": index_problem,
        },
        styles=("runs", "search", "pager"),
        scripts=("live",) if behind else (),
    )


def _brought_up_to_date(db: sqlite3.Connection, history: Path) -> tuple[Progress, str | None]:
    """Return how far the index is after a moment of work at it, and why it gets no further."""
    progress, problem = progress_of(db, history), None
    end = time.monotonic() + _WORK_S
    try:
        while not progress.current and time.monotonic() < end:
            progress = catch_up(db, history, _STEP)
    except TimeoutError:
        pass  # another process is at it: how far that is, is seen when the page renews itself
    except (OSError, sqlite3.Error) as error:
        if isinstance(error, sqlite3.Error) and is_damage(error):
            raise
        problem = getattr(error, "strerror", None) or str(error)
    return progress, problem


def _found(
    db: sqlite3.Connection, history: Path, written: str, kind: Kind | None, after: int | None
) -> tuple[Findings | None, str | None]:
    if not written:
        return None, None
    try:
        found = find_texts(db, history, written, kind=kind, after=after, limit=_FOUND)
    except FileNotFoundError:
        return Findings((), None, as_words=False), None
    except TooLongError:
        return None, "This search takes too long. Use longer prefixes, or fewer of them."
    except sqlite3.Error as error:
        if is_damage(error):
            raise
        return None, f"The index cannot be read: {error}."
    return found, None
