"""An assertion for a person to read: its name, its place, and what it saw; safe to print."""

from __future__ import annotations

import json
from typing import Any

from kindlm.history.rows import AssertionView
from kindlm.reports.figures import score, score_of_limit
from kindlm.reports.untrusted import bounded, one_line, visible


def assertion_name(assertion: AssertionView) -> str:
    """Return the kind and the label of an assertion, and whether it only advises."""
    mark = " (advisory)" if assertion.advisory else ""
    if assertion.label in ("", assertion.kind):
        return f"{one_line(assertion.kind)}{mark}"
    return f"{one_line(assertion.kind)} {one_line(assertion.label)}{mark}"


def assertion_fields(assertion: AssertionView, *, limit: int = 300) -> list[tuple[str, str]]:
    """Return what an assertion saw, in rows of a name and a text."""
    fields = []
    if assertion.threshold is not None and assertion.score is not None and _is_scored(assertion):
        fields.append(("score", score_of_limit(assertion.score, assertion.threshold)))
    elif assertion.score is not None and assertion.kind == "score":  # a number of a scenario
        fields.append(("score", score(assertion.score)))
    if assertion.expected is not None:
        fields.append(("expected", json_shown(assertion.expected, limit)))
    if assertion.actual is not None:
        fields.append(("actual", json_shown(assertion.actual, limit)))
    if assertion.reasoning:
        fields.append(("judge", visible(bounded(assertion.reasoning, 3 * limit, lines=12))))
    return fields


def json_shown(value: Any, limit: int) -> str:
    """Return a JSON value on one line and bounded."""
    text = json.dumps(value, ensure_ascii=False)
    return visible(bounded(text, limit)).replace("\n", " ")


def place(path: str, assertion: AssertionView) -> str:
    """Return where an assertion was asked for, in the form that editors turn into a link."""
    return one_line(path if assertion.line is None else f"{path}:{assertion.line}")


def _is_scored(assertion: AssertionView) -> bool:
    # Limits such as a length or a time are thresholds too, but of `actual`, not of the score.
    return assertion.kind in ("judge", "drift")
