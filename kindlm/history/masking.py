"""Evidence of assertions: which text a range is of, and personal data that must not be repeated.

An assertion that looks for personal data records where it found it, and how a match may be shown.
The recorded transcript keeps the text; a report of the execution shows the redacted form wherever
the match occurs in it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from kindlm.history.json_text import read_json
from kindlm.history.rows import AssertionView, ExecutionView, ToolCallView
from kindlm.projections.views import ERASED

__all__ = ["Mask", "mask_of", "masked", "source_text"]

_ARGUMENTS = re.compile(r"tool\[(\d+)\]\.arguments")


def source_text(
    source: str, execution: ExecutionView, tool_calls: Sequence[ToolCallView]
) -> str | None:
    """Return the text that a range of evidence is of, None if it is not there any more."""
    if source == "output":
        return None if execution.output == ERASED else execution.output
    match = _ARGUMENTS.fullmatch(source)
    index = int(match[1]) if match else len(tool_calls)
    if index >= len(tool_calls) or tool_calls[index].arguments is None:
        return None
    if tool_calls[index].arguments == ERASED:
        return None
    return _as_recorded(tool_calls[index].arguments)


class Mask:
    """Replaces what must not be shown by what may be shown instead, of the same length.

    So positions in a text stay what they were.
    """

    def __init__(self, replacements: Mapping[str, str]) -> None:
        self._replacements = dict(replacements)
        # Longest first: a match may be a part of another one.
        ordered = sorted(self._replacements, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def joined(self, other: Mask) -> Mask:
        """Return a mask that replaces what either of two does."""
        return Mask(self._replacements | other._replacements)

    @overload
    def text(self, text: str) -> str: ...

    @overload
    def text(self, text: str | None) -> str | None: ...

    def text(self, text: str | None) -> str | None:
        """Return a text with everything replaced."""
        if text is None or self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._replacements[match[0]], text)

    def value(self, value: Any) -> Any:
        """Return a JSON value with everything replaced, in keys, strings and numbers."""
        if self._pattern is None or value is None:
            return value
        written = json.dumps(value, ensure_ascii=False)
        masked = self.text(written)
        if masked == written:
            return value
        # Where a number lost its digits, what is left is no JSON, and stays a text.
        return read_json(masked)


def masked(assertion: AssertionView, mask: Mask) -> AssertionView:
    """Return an assertion as it may be shown."""
    return replace(
        assertion,
        label=mask.text(assertion.label),
        message=mask.text(assertion.message),
        expected=mask.value(assertion.expected),
        actual=mask.value(assertion.actual),
        reasoning=mask.text(assertion.reasoning),
        trace=mask.text(assertion.trace),
    )


def mask_of(
    execution: ExecutionView,
    assertions: Iterable[AssertionView],
    tool_calls: Sequence[ToolCallView],
) -> Mask:
    """Return the mask for all texts of an execution."""
    replacements: dict[str, str] = {}
    for evidence in (e for assertion in assertions for e in assertion.evidence):
        text = source_text(evidence["source"], execution, tool_calls)
        if evidence.get("excerpt") is None or text is None:
            continue
        found = text[evidence["start"] : evidence["end"]]
        for form in _forms(found):
            replacements[form] = _fitted(evidence["excerpt"], len(form))
    return Mask(replacements)


def _forms(found: str) -> set[str]:
    """Return how a text can stand in a transcript: as it is, and inside JSON."""
    forms = {found, json.dumps(found, ensure_ascii=False)[1:-1]}
    with contextlib.suppress(ValueError):
        forms.add(str(json.loads(f'"{found}"')))
    return forms - {""}


def _fitted(excerpt: str, length: int) -> str:
    """Return an excerpt at the length of what it stands for."""
    if len(excerpt) == length:
        return excerpt
    if len(excerpt) > length:
        return "*" * length
    middle = len(excerpt) // 2
    return excerpt[:middle] + "*" * (length - len(excerpt)) + excerpt[middle:]


def _as_recorded(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
