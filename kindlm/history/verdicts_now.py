"""The verdicts of many runs by today's rules, beside what users were told when the runs ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from kindlm.history.run_view import RunView
from kindlm.history.runs import RunRow

__all__ = ["verdicts_now"]

_MOST_EXECUTIONS = 20_000
"""Runs of so many executions together are looked at in about half a second."""


def verdicts_now(db: sqlite3.Connection, runs: Iterable[RunRow]) -> dict[str, bool]:
    """Return whether runs pass by today's rules, of those that finished, by their ids.

    Where the runs have more than 20,000 executions together, the last of them are left out.
    """
    verdicts: dict[str, bool] = {}
    executions = 0
    for run in runs:
        executions += run.executions
        if executions > _MOST_EXECUTIONS and verdicts:
            break
        if run.passed is not None:
            verdicts[run.id] = RunView(db, run.id).passed
    return verdicts
