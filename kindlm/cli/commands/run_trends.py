"""`kindlm runs --test`: how tests did over time, as tables with sparklines and as JSON."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kindlm.cli.commands.runs import table
from kindlm.cli.console import fail, note, wants_color
from kindlm.cli.options import ListFormat
from kindlm.errors import KindlmError, not_there
from kindlm.history.trends import Trend, TrendPoint, find_tests, read_trend
from kindlm.reports.facts import git_state
from kindlm.reports.figures import duration, local_time, money, percent, score
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.untrusted import json_document, one_line
from kindlm.spelling import fields_of
from kindlm.wording import count

_MOST_TESTS = 20
"""Of so many tests the runs are listed; more are rather a name that says too little."""

_HEADER = (
    "RUN", "LABEL", "WHEN", "STATUS", "PASSED", "JUDGE", "LATENCY", "COST", "MODEL", "GIT",
    "CHANGED",
)  # fmt: skip

_COLORS = {"passed": "32", "failed": "31", "errored": "35"}

_COMMIT_LENGTH = 8

_BLOCKS = "▁▂▃▄▅▆▇█"

_ASCII = "_.-:=+*#"

_ABSENT = " "


def show_trends(
    db: sqlite3.Connection,
    name: str,
    *,
    suite: str | None,
    target: str | None,
    limit: int,
    since: str | None,
    form: ListFormat,
) -> None:
    """Write how the tests of a name did over the newest runs; end the command if there is none."""
    found = find_tests(db, name, suite=suite, target=target)
    if not found:
        fail([_unknown(db, name, suite, target)])
    trends = [read_trend(db, test, limit=limit, since=since) for test in found[:_MOST_TESTS]]
    if form == "json":
        sys.stdout.write(trends_json(trends))
    else:
        shown = [trend for trend in trends if trend.points]
        if not shown:
            note("No run selected it since then.")
        sys.stdout.write(
            trends_text(shown, color=wants_color(sys.stdout), blocks=draws_blocks(os.environ))
        )
    more = len(found) - _MOST_TESTS
    if more > 0:
        note(f"{count(more, 'more test')} match: write more of the name, or add --suite.")


def _unknown(
    db: sqlite3.Connection, name: str, suite: str | None, target: str | None
) -> KindlmError:
    elsewhere = find_tests(db, name)
    if elsewhere:
        where = ", ".join(dict.fromkeys(f"{test.suite} on {test.target}" for test in elsewhere))
        parts = [f"in suite {suite!r}" if suite else "", f"on {target!r}" if target else ""]
        return not_there(
            f"No test {name!r} is recorded {' '.join(filter(None, parts))}.", f"It is in: {where}"
        )
    return not_there(
        f"No recorded test has {name!r} in its name.", "The tests of a run: kindlm show RUN"
    )


def trends_json(trends: Sequence[Trend]) -> str:
    """Return the tests over time for programs."""
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


def trends_text(trends: Sequence[Trend], *, color: bool, blocks: bool) -> str:
    """Return the tests over time for people; `blocks` says whether a terminal shows them."""
    texts = []
    for trend in trends:
        test = trend.test
        name = f"{one_line(test.name)} · {one_line(test.target)}"
        text = f"{name}  {one_line(test.suite)}, {one_line(test.project)}\n"
        for title, line in _figures(trend, blocks):
            text += f"  {title:<9}  {line}\n"
        paints = [_COLORS.get(point.test.status, "33") for point in trend.points] if color else []
        texts.append(text + table(_HEADER, map(_cells, trend.points), paints))
    return "\n".join(texts)


def _figures(trend: Trend, blocks: bool) -> Iterator[tuple[str, str]]:
    """Yield a sparkline for each figure, the oldest run first, with the range that it shows."""
    points = list(reversed(trend.counted))
    rates = [point.test.counts.pass_rate for point in points]
    passed = sum(point.own.passed for point in points)
    tested = sum(point.own.n for point in points)
    if tested:
        share = f"{percent(passed / tested)}, {passed:,} of {tested:,}"
        yield "pass rate", f"{sparkline(rates, 1, blocks=blocks)}  {share}"
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
        yield title, f"{sparkline(values, high, blocks=blocks)}  {spread}"
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
    counted = {point.run.id for point in trend.counted}
    others = Counter(
        "from the history" if point.run.mode == "live" else point.run.mode
        for point in trend.points
        if point.run.id not in counted
    )
    if told := [f"{number:,} {mode}" for mode, number in sorted(others.items()) if number]:
        yield "others", f"{', '.join(told)}: shown, and not counted above"


def _cells(point: TrendPoint) -> tuple[str, ...]:
    counts, run = point.test.counts, point.run
    remarks = [run.mode] if run.mode != "live" else []
    if run.ended in ("interrupted", "aborted"):
        remarks.append(run.ended)
    if run.mode == "live" and (taken := counts.tested - point.own.n):
        remarks.append(f"{taken:,} of {counts.tested:,} from the history")
    passed = f"{counts.passed}/{counts.tested}{' flaky' if point.flaky else ''}"
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
    return {
        **fields_of(point.run, "id label mode startedAt ended"),
        "status": point.test.status,
        "executions": point.test.counts.by_status,
        "ownExecutions": {
            "passed": point.own.passed,
            "passedLater": point.passed_later,
            "tested": point.own.n,
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


def draws_blocks(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal shows block characters: whether its locale uses UTF-8.

    As in POSIX, the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set decides. Where none is,
    nothing is known against it.
    """
    set_names = (environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((value for value in set_names if value), None)
    return locale is None or "utf8" in locale.lower().replace("-", "")


def sparkline(values: Sequence[float | None], high: float, *, blocks: bool = True) -> str:
    """Return bars from 0 to `high`; a space where there is no value."""
    levels = _BLOCKS if blocks else _ASCII
    top = len(levels) - 1

    def bar(value: float | None) -> str:
        if value is None:
            return _ABSENT
        part = value / high if high else 1.0
        return levels[round(min(max(part, 0.0), 1.0) * top)]

    return "".join(map(bar, values))
