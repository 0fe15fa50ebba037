"""`kindlm runs --test`: find the tests that a user names, and write how they did over time."""

from __future__ import annotations

import os
import sqlite3
import sys

from kindlm.cli.console import fail, note, wants_color
from kindlm.cli.options import ListFormat
from kindlm.cli.sparkline import draws_blocks
from kindlm.cli.trend_list import trends_json, trends_text
from kindlm.errors import ErrorCode, KindlmError
from kindlm.history.diff.values import QualifiedName
from kindlm.history.trends import find_tests, read_trend
from kindlm.wording import count

_MOST_TESTS = 20
"""Of so many tests the runs are listed; more are rather a name that says too little."""


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
    if form is ListFormat.JSON:
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
        note(f"{count(more, 'more test')} of that name: say more of it, or name a --suite.")


def _unknown(
    db: sqlite3.Connection, name: str, suite: str | None, target: str | None
) -> KindlmError:
    elsewhere = find_tests(db, name)
    if elsewhere:
        where = ", ".join(dict.fromkeys(map(_place, elsewhere)))
        return KindlmError(
            ErrorCode.CONFIG_NOT_FOUND,
            f"No test {name!r} is recorded {_wanted(suite, target)}.",
            f"It is in: {where}",
        )
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"No test is recorded whose name holds {name!r}.",
        "The tests of a run: kindlm show RUN",
    )


def _place(test: QualifiedName) -> str:
    return f"{test.suite} on {test.target}"


def _wanted(suite: str | None, target: str | None) -> str:
    parts = [f"in suite {suite!r}" if suite else "", f"on {target!r}" if target else ""]
    return " ".join(filter(None, parts))
