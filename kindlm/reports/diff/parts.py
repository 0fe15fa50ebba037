"""Parts of a comparison in words, shortened, for all formats of `kindlm diff`.

Reports of a run use some of them to show what changed since the previous run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kindlm.history.diff.call_changes import CallChange, CallEdit, ChangedValue, is_gone
from kindlm.history.diff.config import SuiteConfig
from kindlm.history.diff.details import (
    NOT_COMPARED,
    CheckChange,
    Edit,
    Segment,
    WordDiff,
    diff_words,
)
from kindlm.history.diff.evidence_values import Kind, Strength, TestDiff
from kindlm.history.diff.run_diff import DiffOptions, RunDiff
from kindlm.history.diff.samples import SCORED
from kindlm.history.run_view import RunView
from kindlm.matching import ABSENT
from kindlm.reports.diff.phrases import FORMS, LOOKS, headline_of, status_text
from kindlm.reports.facts import Headline, verdict_of
from kindlm.reports.figures import p_value, percent, points_between, score
from kindlm.reports.figures import points as points_of_100
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import json_shown, one_line, visible

SHOWN_KINDS = tuple(
    kind for kind in Kind if kind not in (Kind.OTHER_WORDS, Kind.NOT_RUN, Kind.UNCHANGED)
)
"""The kinds of tests that changed, the most important first."""

EDITS = {
    CallEdit.SAME: ("=", "dim"),
    CallEdit.ADDED: ("+", "green"),
    CallEdit.REMOVED: ("-", "red"),
    CallEdit.ARGUMENTS: ("~", "yellow"),
    CallEdit.MOVED: ("↕", "yellow"),
}
"""The sign and the style of each change of a call."""

_CONTEXT = 60
"""How many characters are shown at each end of unchanged text."""

_MARKS = {Edit.KEPT: ("", ""), Edit.REMOVED: ("[-", "-]"), Edit.ADDED: ("{+", "+}")}
_VALUE = 100
_NOTABLE = 0.2
"""The change of a test's mean latency, tokens or cost from which it is shown, as a fraction."""


class Changes(NamedTuple):
    """A run compared with the previous one; `is_marked` says whether the verdict has a colour.

    A failed run that merely did not get worse is not marked as good.
    """

    diff: RunDiff
    headline: Headline
    is_marked: bool


def changes_since_before(view: RunView, options: ReportOptions) -> Changes | None:
    """Return the changes since the previous run, None if there is none to compare with."""
    if not isinstance(before := view.before, RunView):
        return None
    diff = RunDiff(before, view, DiffOptions(regression_threshold=options.regression_threshold))
    headline = headline_of(diff)
    return Changes(diff, headline, not headline.good or bool(verdict_of(view).good))


def changed_tests(diff: RunDiff) -> list[TestDiff]:
    """Return the tests that changed, the worst first."""
    return [test for kind in SHOWN_KINDS for test in diff.kinds.get(kind, ())]


def what_changed(test: TestDiff) -> str:
    """Return how a test changed, and what else did: `regressed, confirmed: tools, checks`."""
    changed = {
        "tools": test.behaviour.tools,
        "arguments": test.behaviour.arguments,
        "checks": test.behaviour.failures or test.evidence.dropped_checks,
        "scores": test.evidence.dropped_scores,
    }
    others = [name for name, is_changed in changed.items() if is_changed]
    named = test.kind in (Kind.OTHER_BEHAVIOUR, Kind.OTHER_CHECKS)
    status = LOOKS[test.kind].title.lower() if named else status_text(test)
    return f"{status}: {', '.join(others)}" if others else status


def excerpt(words: WordDiff, limit: int) -> list[Segment]:
    """Return the changes in a text with some context, cut with an ellipsis at `limit`."""
    shown: list[Segment] = []
    room = limit
    for edit, whole in words.segments:
        text = whole
        if edit is Edit.KEPT and len(words.segments) > 1 and len(whole) > 2 * _CONTEXT:
            text = f"{whole[:_CONTEXT]} … {whole[-_CONTEXT:]}"
        if len(text) > room:
            return [*shown, (edit, text[:room] + "…")]
        shown.append((edit, text))
        room -= len(text)
    return shown


def marked(edit: Edit, text: str) -> str:
    """Return a part of a text with its change marked: `[-removed-]`, `{+added+}`."""
    start, end = _MARKS[edit]
    return f"{start}{visible(text)}{end}"


def change_text(change: ChangedValue) -> str:
    """Return how an argument or a setting changed: `49.99 → 60.0`, `added "now"`, `removed 3`.

    Of a long text, list or mapping, only the changes are shown, with some context.
    """
    if change.before is ABSENT:
        return f"added {json_shown(change.after, _VALUE)}"
    before = json_shown(change.before, _VALUE)
    if change.after is ABSENT:
        return f"removed {before}"
    both = [change.before, change.after]
    if not any(isinstance(value, str) for value in both):
        both = [json.dumps(value, ensure_ascii=False) for value in both]
    if all(isinstance(value, str) for value in both) and max(map(len, both)) > _VALUE:
        # Of long values, such as prompts, the beginnings are mostly the same.
        words = diff_words(*both)
        if any(edit is not Edit.KEPT for edit, _ in words.segments):
            parts = (marked(*segment) for segment in excerpt(words, 3 * _VALUE))
            return "".join(parts).replace("\n", "\\n")
    return f"{before} → {json_shown(change.after, _VALUE)}"


def config_texts(config: SuiteConfig, most: int) -> tuple[list[tuple[str, str]], str | None]:
    """Return at most `most` changes of a configuration as path and text, and a note on the rest.

    The note has both hashes if the configuration cannot be compared.
    """
    shown = [(one_line(change.path), change_text(change)) for change in config.changes[:most]]
    more = len(config.changes) - most + config.left_out
    if more > 0:
        return shown, f"… and {more:,} more"
    return shown, None if shown else f"{one_line(config.before)} → {one_line(config.after)}"


def call_aside(change: CallChange) -> str:
    """Return the arguments of an added or removed call, or how a call moved.

    Of a call on both sides whose arguments are gone, return that they were not compared.
    """
    before, after = change.before, change.after
    if before is None or after is None:
        return json_shown(change.made.arguments, _VALUE)
    if change.edit is not CallEdit.MOVED:
        return NOT_COMPARED if is_gone(before) or is_gone(after) else ""
    if before.turn != after.turn:
        return f"was in turn {before.turn}, is in turn {after.turn}"
    return f"was call {before.position + 1}, is call {after.position + 1}"


def check_name(check: CheckChange) -> str:
    """Return the kind and the label of a check."""
    if check.label in ("", check.kind):
        return one_line(check.kind)
    return f"{one_line(check.kind)} {one_line(check.label)}"


def check_text(check: CheckChange) -> str:
    """Return the result of a check, with its mean scores: `5/5 → 0/5, p = 0.00049, confirmed`."""
    before = f"{check.before.passed}/{check.before.of}" if check.before.of else "not checked"
    after = f"{check.after.passed}/{check.after.of}" if check.after.of else "not checked"
    text = before if before == after else f"{before} → {after}"
    old, new = check.before.score, check.after.score
    is_scored = check.kind in (*SCORED, "drift") or check.score_dropped
    if is_scored and old is not None and new is not None:
        form = points_of_100 if check.kind in ("score", "weighted_score") else score
        text += f", mean score {form(old)} → {form(new)}"
    found = check.evidence
    if found is None:
        return text
    if found.added or found.added_before:
        sides = (f"{side.passed}/{side.n}" for side in (found.all_before, found.all_after))
        text += f", {' → '.join(sides)} with added repeats"
    elif found.p_value is not None and found.strength is not Strength.ONE_SAMPLE:
        text += f", {p_value(found.p_value)}"
    return f"{text}, {found.strength}"


def changed_checks(checks: Sequence[CheckChange]) -> list[CheckChange]:
    """Return the checks whose results changed, or that only one side has; confirmed drops first."""
    changed = [
        check
        for check in checks
        if check.direction
        or bool(check.before.of) != bool(check.after.of)
        or check.score_dropped
        or check.evidence is not None
    ]
    return sorted(
        changed,
        key=lambda check: not check.evidence or check.evidence.strength is not Strength.CONFIRMED,
    )


def sequence_text(tools: Sequence[str]) -> str:
    """Return tools in the order of their calls: `lookup_order → issue_refund`."""
    return " → ".join(one_line(tool, 60) for tool in tools) or "no tool"


def measures(test: TestDiff) -> Iterator[tuple[str, str]]:
    """Yield the numbers of a test that changed notably, as name and text."""
    old, new = test.before, test.after
    if old is None or new is None:
        return
    rates, pair = test.pass_rates, test.pair.rate
    repeated = min(old.counts.n, new.counts.n) > 1
    if rates and rates[0] != rates[1] and pair and pair.interval and repeated:
        has_added = pair.added or pair.added_before
        without = " without the added repeats" if has_added else ""
        sure = "" if pair.p_value is None else f", {p_value(pair.p_value)}{without}"
        yield "pass rate", f"{percent(rates[0])} → {percent(rates[1])}{sure}"
        included = " with the added repeats" if has_added else ""
        yield "change", f"{points_between(pair.interval)} (95 % interval{included})"
    for text in () if old.broken_limits else new.broken_limits:
        yield "limit", text
    for name in ("latency", "tokens", "cost", "drift"):
        form, before, after = FORMS[name], old.means.get(name), new.means.get(name)
        if before is None or after is None or form(before) == form(after):
            continue
        if abs(after - before) > _NOTABLE * max(abs(before), abs(after)):
            percentage = f" ({(after - before) / before * 100:+,.0f} %)" if before else ""
            yield name, f"{form(before)} → {form(after)}{percentage}"
    if old.models != new.models and old.models and new.models:
        sides = (", ".join(one_line(model, 60) for model in side.models) for side in (old, new))
        yield "model", " → ".join(sides)
