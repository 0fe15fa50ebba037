"""Tests of a run as a table: a row for each test of a suite, a column for each target."""

from __future__ import annotations

from typing import NamedTuple

from kindlm.history.rows import TestView
from kindlm.history.run_view import RunView


class RowName(NamedTuple):
    """What a row is of; `shown_suite` has the file of the suite if another one has its name."""

    project: str
    suite: str
    name: str
    shown_suite: str


Rows = dict[RowName, dict[str, TestView]]
"""Tests by their targets, in the order of their suites."""


def rows_of(view: RunView) -> Rows:
    """Return the tests of a run."""
    suites = {part: suite.full_name for suite in view.suites for part in suite.parts}
    rows: Rows = {}
    for test in view.tests():
        project, shown = view.projects[test.suite_id], suites[test.suite_id]
        rows.setdefault(RowName(project, test.suite, test.name, shown), {})[test.target] = test
    return rows


def targets_of(rows: Rows) -> list[str]:
    """Return all targets, in the order in which tests have them."""
    return list(dict.fromkeys(target for tests in rows.values() for target in tests))
