"""The comparison of two runs as a page: one file that needs nothing else, and runs nothing.

Everything is escaped by the template engine, and the page's own policy lets no script run and
nothing be loaded, should anything ever slip through.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TextIO

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kindlm.history.diff.calls import CallEdit
from kindlm.history.diff.run_diff import RunDiff
from kindlm.history.diff.values import CheckChange, Kind, TestDetails, TestDiff
from kindlm.history.diff.words import Segment, WordDiff
from kindlm.reports.diff_parts import (
    argument_text,
    call_aside,
    check_name,
    check_text,
    checks_to_tell,
    config_text,
    excerpt,
    measures,
    sequence_text,
)
from kindlm.reports.diff_text import (
    LOOKS,
    Look,
    fail_on_text,
    figure_text,
    headline_of,
    needs_text,
    next_step,
    notes_of,
    outcome_text,
    rate_text,
    run_text,
    scope_text,
    status_text,
)
from kindlm.reports.registry import ReportOptions
from kindlm.reports.untrusted import bounded, one_line, visible

__all__ = ["write_diff"]

_TOLD = 200
_LISTED = 1_000
_TEXT = 6_000

_MOODS = {"red": "bad", "green": "good", "yellow": "unsure", "dim": "soft"}
_VERDICTS = {True: "good", False: "bad", None: "unsure"}
_SIGNS = {
    CallEdit.SAME: ("=", "soft"),
    CallEdit.ADDED: ("+", "good"),
    CallEdit.REMOVED: ("-", "bad"),
    CallEdit.ARGUMENTS: ("~", "unsure"),
    CallEdit.MOVED: ("↕", "unsure"),
}


@dataclass(frozen=True, slots=True)
class _Part:
    """Tests of one kind: some told in full, some only listed, and how many more there are."""

    look: Look
    mood: str
    number: int
    first: bool
    told: Iterator[tuple[TestDiff, TestDetails]] | None
    listed: Sequence[TestDiff]
    more: int


def write_diff(diff: RunDiff, out: TextIO, options: ReportOptions) -> None:
    """Write the page; it has no options."""
    del options
    style = files("kindlm.reports").joinpath("templates/diff.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    headline = headline_of(diff)
    figures = [(figure.name, figure_text(figure)) for figure in diff.figures]
    if rate := rate_text(diff):
        figures.insert(0, ("pass rate", rate))
    stream = (
        _environment()
        .get_template("diff.html")
        .generate(
            diff=diff,
            style=Markup(style),  # noqa: S704 - the page's own style sheet
            style_hash=f"sha256-{digest}",
            headline=headline,
            mood=_VERDICTS[headline.good],
            runs=(run_text(diff.before), run_text(diff.after)),
            scope=scope_text(diff),
            asked=fail_on_text(diff),
            notes=list(notes_of(diff)),
            figures=figures,
            parts=_parts(diff),
            configs=diff.configs,
            step=next_step(diff),
        )
    )
    out.writelines(stream)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kindlm.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["shown"] = one_line
    environment.filters["text"] = _text
    environment.globals.update(
        aside=call_aside,
        argument_text=argument_text,
        calls_changed=_calls_changed,
        check_name=check_name,
        check_text=check_text,
        checks=_checks,
        edit_mood=lambda change: _SIGNS[change.edit][1],
        edit_sign=lambda change: _SIGNS[change.edit][0],
        excerpt=_excerpt,
        measures=measures,
        needs=needs_text,
        outcome=outcome_text,
        place=config_text,
        sequence=sequence_text,
        status=status_text,
    )
    return environment


def _parts(diff: RunDiff) -> Iterator[_Part]:
    told = 0
    for number, (kind, tests) in enumerate(diff.kinds.items()):
        look = LOOKS[kind]
        full = () if look.listed else tests[: max(0, _TOLD - told)]
        told += len(full)
        listed = tests[len(full) : len(full) + _LISTED]
        yield _Part(
            look=look,
            mood=_MOODS[look.style],
            number=len(tests),
            first=number == 0 and kind is not Kind.UNCHANGED,
            told=((test, diff.details(test)) for test in full) if full else None,
            listed=listed,
            more=len(tests) - len(full) - len(listed),
        )


def _text(text: str) -> str:
    return visible(bounded(text, _TEXT))


def _excerpt(words: WordDiff) -> list[Segment]:
    return excerpt(words, _TEXT)


def _calls_changed(details: TestDetails) -> bool:
    return any(change.edit is not CallEdit.SAME for change in details.calls)


def _checks(test: TestDiff, details: TestDetails) -> list[CheckChange]:
    return checks_to_tell(details.checks, test.evidence.dropped_scores)
