"""What changed since the run before, as reports of a run say it: the verdict, and a table."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from kindlm.history.diff.evidence_values import Kind, TestDiff
from kindlm.history.diff.run_diff import DiffOptions, RunDiff
from kindlm.history.run_view import RunView
from kindlm.reports.diff.phrases import (
    LOOKS,
    Headline,
    Look,
    headline_of,
    outcome_text,
    status_text,
)
from kindlm.reports.facts import verdict_of
from kindlm.reports.report_registry import ReportOptions

SHOWN_KINDS = tuple(
    kind for kind in Kind if kind not in (Kind.OTHER_WORDS, Kind.NOT_RUN, Kind.UNCHANGED)
)
"""The kinds of tests that changed, the most important first."""


class Changes(NamedTuple):
    """A run beside the run before. The verdict `is_marked` as good or bad where it may be.

    Beside a run that failed, nothing is marked as good because it was no better before.
    """

    diff: RunDiff
    headline: Headline
    is_marked: bool

    @property
    def command(self) -> str:
        """What shows the comparison in full."""
        return shlex.join(("kindlm", "diff", self.diff.before.id, self.diff.after.id))


class ChangedTest(NamedTuple):
    """A test that changed: its look, how it came out, and what changed in it."""

    look: Look
    test: TestDiff
    outcome: str
    what: str


def changes_since_before(view: RunView, options: ReportOptions) -> Changes | None:
    """Return what changed since the run before, if there is one to compare with."""
    if view.why_not_compared is not None or (before := view.run_before) is None:
        return None
    asked = DiffOptions(regression_threshold=options.regression_threshold)
    diff = RunDiff(view.db, before, view, asked)
    headline = headline_of(diff)
    return Changes(diff, headline, not headline.good or verdict_of(view).passed)


def changed_tests(diff: RunDiff, most: int) -> tuple[list[ChangedTest], int]:
    """Return the tests that changed, the worst first, at most so many; and how many more."""
    found = [(kind, test) for kind in SHOWN_KINDS for test in diff.kinds.get(kind, ())]
    shown = [
        ChangedTest(LOOKS[kind], t, outcome_text(t), _what(kind, t)) for kind, t in found[:most]
    ]
    return shown, len(found) - len(shown)


def _what(kind: Kind, test: TestDiff) -> str:
    others = [
        name
        for name, changed in (
            ("tools", test.behaviour.tools),
            ("arguments", test.behaviour.arguments),
            ("checks", test.behaviour.failures or bool(test.evidence.dropped_checks)),
            ("scores", bool(test.evidence.dropped_scores)),
        )
        if changed
    ]
    named = kind in (Kind.OTHER_BEHAVIOUR, Kind.OTHER_CHECKS)
    status = LOOKS[kind].title.lower() if named else status_text(test)
    return f"{status}: {', '.join(others)}" if others else status
