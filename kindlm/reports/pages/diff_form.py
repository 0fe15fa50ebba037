"""The form that asks which runs are compared, and the page of it where they can't be."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from kindlm.errors import KindlmError
from kindlm.history.runs import Run, RunFilter, runs
from kindlm.reports.pages.document import Document

_OFFERED = 100


@dataclass(frozen=True, slots=True)
class DiffForm:
    """What stands in the form, and the runs it offers."""

    before: str
    after: str
    choices: tuple[Run, ...]


def read_diff_form(
    db: sqlite3.Connection, before: str, after: str, like: str | None = None
) -> DiffForm:
    """Return the form; it offers runs of the suites of the run `like`, or of all."""
    return DiffForm(before, after, tuple(runs(db, RunFilter(like=like, limit=_OFFERED))))


def diff_choice_page(form: DiffForm, problem: KindlmError) -> Document:
    """Return the page of runs that can't be compared: why, and the form."""
    return Document(
        "diff_choice.html",
        "Which runs are compared?",
        {"form": form, "problem": problem},
        styles=("runs",),
    )
