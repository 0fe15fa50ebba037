"""The comparison of two runs as an HTML page, for a file and for `kindlm browse`."""

from __future__ import annotations

from typing import Any, TextIO

from kindlm.history.diff.run_diff import RunDiff
from kindlm.reports.diff import parts, phrases
from kindlm.reports.facts import run_text
from kindlm.reports.pages.html_document import Document, Links, render
from kindlm.reports.report_registry import ReportOptions

_DETAILED = 200
_LISTED = 1_000
_TEXT = 6_000

STYLE_MOODS = {"red": "bad", "green": "good", "yellow": "unsure", "dim": "soft"}
VERDICT_MOODS = {True: "good", False: "bad", None: "unsure"}


def diff_page(diff: RunDiff, form: dict[str, Any] | None = None) -> Document:
    """Return the page of a comparison. A served page has a form for another one."""
    headline = phrases.headline_of(diff)
    return Document(
        "diff.html",
        f"{headline.word}: {diff.before.id} → {diff.after.id}",
        {
            "diff": diff,
            "form": form,
            "headline": headline,
            "mood": VERDICT_MOODS[headline.good],
            "sections": phrases.sections_of(diff, _DETAILED, _LISTED),
            "style_moods": STYLE_MOODS,
            "parts": parts,
            "phrases": phrases,
            "run_text": run_text,
            "characters": _TEXT,
        },
        styles=("runs",) if form else (),
    )


def write_diff(diff: RunDiff, out: TextIO, options: ReportOptions) -> None:
    """Write the page; it has no options."""
    del options
    out.writelines(render(diff_page(diff), Links()))
