"""The pages of a whole history: its runs, a test over time, and the search."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from kindlm.history.runs import STATUSES, Run, RunFilter, choices, read_figures, runs
from kindlm.history.search import Findings, TooLongError, catch_up, find_texts
from kindlm.history.trends import NOT_COUNTED, Trend, read_trend
from kindlm.plan import QualifiedName
from kindlm.reports.figures import duration, money, percent, score
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.pages.charts import Point, trend
from kindlm.reports.pages.html_document import MOODS, Document, Links, PageRequest
from kindlm.reports.untrusted import one_line
from kindlm.wording import count
from kindlm_store import LockHeldError, OpenError

_RUNS_PER_PAGE = 50
_FINDINGS_PER_PAGE = 20


def runs_page(db: sqlite3.Connection, asked: PageRequest) -> Document:
    """Return the list of runs, the newest first; the query may narrow it down."""
    given: dict[str, Any] = {
        name: asked.query[name]
        for name in ("suite", "label", "branch", "status")
        if asked.query.get(name)
    }
    number = asked.page
    # Reading one run more shows whether there is an older page.
    wanted = RunFilter(**given, limit=_RUNS_PER_PAGE + 1, offset=(number - 1) * _RUNS_PER_PAGE)
    found = list(runs(db, wanted))
    listed = found[:_RUNS_PER_PAGE]
    figures = read_figures(db, listed)
    oldest_first = listed[::-1]
    shown = [figures[run.id] for run in oldest_first]
    rates = [
        None if run.mode in NOT_COUNTED else each.executions.pass_rate
        for run, each in zip(oldest_first, shown, strict=True)
    ]
    # For each run, the previous run on this page of the same suites and the same shard. Added
    # repeats belong to the run that they add to.
    before, newer = dict[str, str](), dict[tuple[str, tuple[str, ...], str | None], str]()
    for run in listed:
        if run.mode == "settled":
            continue
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
            "before": before,
            "given": wanted,
            "narrowed": bool(given),
            "choices": {**choices(db), "status": STATUSES},
            "charts": _charts(
                ((run, run.status) for run in oldest_first),
                asked.links,
                ("Pass rate", rates, percent, 1.0),
                ("Cost", [None if f.paid.unknown else f.paid.total_usd for f in shown], money),
            ),
            "newer": _address(given, number - 1) if number > 1 else None,
            "older": _address(given, number + 1) if len(found) > _RUNS_PER_PAGE else None,
        },
        styles=("charts", "runs", "pager"),
    )


def _address(given: Mapping[str, str], number: int) -> str:
    return "?" + urlencode({**given, "page": str(number)})


def _charts(
    runs: Iterable[tuple[Run, str]], links: Links, *lines: tuple[Any, ...]
) -> list[dict[str, Any]]:
    """Return charts of runs, each with its status, oldest first, without empty charts.

    `lines` are the other arguments of `trend` for each chart.
    """
    points = [
        Point(
            MOODS[status],
            one_line(f"{run.id} {run.label}" if run.label else run.id, 40),
            status,
            run.started_at,
            links.page("run", run.id) or "",
        )
        for run, status in runs
    ]
    charts = (trend(name, points, *line) for name, *line in lines)
    return [chart for chart in charts if chart is not None]


def trend_page(db: sqlite3.Connection, asked: PageRequest) -> Document | None:
    """Return the page of a test on a target over time, None if no run selected the test.

    The query has its project, suite, name and target.
    """
    test = QualifiedName(*(asked.query.get(name, "") for name in QualifiedName._fields))
    found = read_trend(db, test, limit=_RUNS_PER_PAGE)
    if not found.points:
        return None
    oldest_first = found.counted[::-1]
    return Document(
        "trend.html",
        f"{one_line(test.name)} · {one_line(test.target)} over time",
        {
            "test": test,
            "points": found.points,
            "counted": {point.run.id for point in found.counted},
            "charts": _charts(
                ((p.run, p.test.status.value) for p in oldest_first),
                asked.links,
                ("Pass rate", [p.test.counts.pass_rate for p in oldest_first], percent, 1.0),
                ("Judge score", [p.judge for p in oldest_first], score, 1.0),
                ("Weighted score", [p.weighted for p in oldest_first], points_of_100, 1.0),
                ("Latency", [p.test.latency_ms for p in oldest_first], duration),
                ("Cost", [p.cost_usd for p in oldest_first], money),
            ),
            "facts": list(_trend_facts(found)),
            "more": found.more,
            # Each run is listed before the next older one.
            "before": dict(pairwise(point.run.id for point in found.points)),
        },
        styles=("charts", "trend"),
    )


def _trend_facts(found: Trend) -> Iterator[tuple[str, str]]:
    passed = sum(point.test.counts.passed for point in found.counted)
    tested = sum(point.test.counts.tested for point in found.counted)
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


_NUMBER = re.compile(r"-?\d{1,15}", re.ASCII)

_INDEXING_S = 2.0
"""How long a request indexes new executions at most; the page reloads until all are indexed."""

_NAMES = {
    "prompt": "prompt",
    "output": "output",
    "arguments": "tool arguments",
    "answer": "tool result",
}


def search_page(db: sqlite3.Connection, asked: PageRequest) -> Document:
    """Return the search; the query may have q, kind, and after, from which older findings follow.

    Each request first indexes new executions, for a limited time. If the index cannot be used, the
    page says why and shows no findings.
    """
    query, history = asked.query, asked.history
    # Invisible characters match nothing and must not be repeated in the page.
    written = "".join(char if char.isprintable() else " " for char in query.get("q", "")).strip()
    kind = query.get("kind") if query.get("kind") in _NAMES else None
    position = query.get("after", "")
    after = int(position) if _NUMBER.fullmatch(position) else None
    is_behind, findings, problem, index_problem = True, None, None, None
    try:
        end = time.monotonic() + _INDEXING_S
        # If another process is indexing, the reloaded page shows what it found.
        with suppress(LockHeldError):
            while is_behind and time.monotonic() < end:
                is_behind = not catch_up(db, history)
        if written:
            limit = _FINDINGS_PER_PAGE
            findings = find_texts(db, history, written, kind=kind, after=after, limit=limit)
    except FileNotFoundError:
        findings = Findings()  # another process has yet to create the index
    except TooLongError:
        problem = "This search takes too long. Use longer prefixes, or fewer of them."
    except OpenError as error:
        index_problem = f"the history {error.reason}"
    except (OSError, sqlite3.Error) as error:
        index_problem = getattr(error, "strerror", None) or str(error)
    is_behind = is_behind and index_problem is None
    older = None
    if findings is not None and findings.next is not None:
        narrowed = {"kind": kind} if kind else {}
        older = "?" + urlencode({"q": written, **narrowed, "after": str(findings.next)})
    return Document(
        "search.html",
        f"Search: {one_line(written)}" if written else "Search",
        {
            "written": written,
            "kind": kind,
            "names": _NAMES,
            "findings": findings,
            "older": older,
            "behind": is_behind,
            "problem": problem,
            "index_problem": index_problem,
        },
        styles=("runs", "search", "pager"),
        scripts=("live",) if is_behind else (),
    )
