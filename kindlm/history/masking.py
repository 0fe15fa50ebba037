"""Hides personal data that assertions found, and finds the texts of evidence.

An assertion about personal data records where it found some, and an excerpt, which is its redacted
form. The transcript keeps the text; reports show the excerpt wherever the found text occurs. If the
found text was erased, or redacted before it was recorded, reports redact everything of the shape of
the excerpt. If it was erased, they hide notes of reviewers, which may repeat it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from kindlm.dataclass import replace
from kindlm.history.rows import AttemptView, ToolCallView
from kindlm.normal_form import meanings_of
from kindlm.projections import GONE
from kindlm.strict_json import read_json
from kindlm_store.redaction import occurrences

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T", bound="DataclassInstance")

_ARGUMENTS = re.compile(r"tool\[(\d+)\]\.arguments")
_EXCERPT = re.compile(r"([^*]+)\*+([^*]+)")
"""The visible beginning and end of a found text."""

_HEAD = 4
"""Where a text was cut inside a found text, 4 characters or more of its beginning are masked."""

_NOT_CLEAN = "[not shown: it holds personal data]"

_NOT_SHOWN = "[not shown: it may repeat personal data, and the text that would show it was erased]"


def source_text(source: str, attempt: AttemptView) -> str | None:
    """Return the text that a range of evidence refers to; None if it is gone."""
    if source == "output":
        return None if attempt.execution.output in GONE else attempt.execution.output
    match = _ARGUMENTS.fullmatch(source)
    if match is None or int(match[1]) >= len(attempt.tool_calls):
        return None
    arguments = attempt.tool_calls[int(match[1])].arguments
    if isinstance(arguments, str):
        return None if arguments in GONE else arguments
    return None if arguments is None else json.dumps(arguments, ensure_ascii=False)


class Mask:
    """Replaces personal data by excerpts of the same length, so that positions stay valid.

    Case is ignored. In a text that was cut, this also replaces the beginning of a found text before
    the "…". `lost` are excerpts whose texts were erased, each with the length of its text.
    `is_whole` is whether no text with personal data was erased.
    """

    def __init__(
        self,
        replacements: Mapping[str, str],
        lost: Iterable[tuple[str, int]] = (),
        *,
        is_whole: bool = True,
    ) -> None:
        self.is_whole = is_whole
        self.replacements = replacements
        self._known = [(_lower_same_length(found), shown) for found, shown in replacements.items()]
        self._lost: list[tuple[re.Pattern[str], str]] = []
        for excerpt, length in sorted(lost):
            seen = _EXCERPT.fullmatch(excerpt)
            hidden = length - len(seen[1]) - len(seen[2]) if seen else 0
            # An excerpt that shows nothing, or everything, has no shape to search for.
            if seen and hidden > 0:
                shape = f"(?={re.escape(seen[1])}.{{{hidden}}}{re.escape(seen[2])})"
                pattern = re.compile(shape, re.IGNORECASE | re.DOTALL)
                self._lost.append((pattern, _stretched(excerpt, length)))

    @overload
    def text(self, text: str) -> str: ...

    @overload
    def text(self, text: str | None) -> str | None: ...

    def text(self, text: str | None) -> str | None:
        """Return a text with all personal data replaced."""
        if not text or not self:
            return text
        masked = list(text)
        for start, shown in self._found_in(text):
            for place, char in enumerate(shown, start):
                # Overlapping excerpts have to agree to show a character.
                masked[place] = char if masked[place] in (text[place], char) else "*"
        return "".join(masked)

    def wire_text(self, text: str | None, *decoded: Any) -> str | None:
        """Return a text in any format, masked.

        It is a note if personal data is in pieces or escaped, or in a value decoded from the text.
        """
        shown = self.text(text)
        if not shown or not self:
            return shown
        is_clean = all(self.value(value) == value for value in decoded)
        is_clean = is_clean and all(self.text(each) == each for each in meanings_of(shown))
        return shown if is_clean else _NOT_CLEAN

    def __bool__(self) -> bool:
        return bool(self._known or self._lost)

    def _found_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the positions of personal data, with their replacements."""
        for pattern, shown in self._lost:
            for match in pattern.finditer(text):
                yield match.start(), shown
        text = _lower_same_length(text)
        is_cut = "…" in text
        for found, shown in self._known:
            for start, _ in occurrences(text, found):
                yield start, shown
            for start, _ in occurrences(text, found[:_HEAD]) if is_cut else ():
                cut = text.find("…", start, start + len(found))
                if cut >= start + _HEAD and found.startswith(text[start:cut]):
                    yield start, shown[: cut - start]

    def value(self, value: Any) -> Any:
        """Return a JSON value with all personal data replaced, in keys, strings and numbers."""
        if isinstance(value, str):
            return self.text(value)
        if not self or value is None:
            return value
        written = json.dumps(value, ensure_ascii=False)
        masked = self.text(written)
        if masked == written:
            return value
        # With a masked number, the result is no JSON, but a string.
        return read_json(masked)

    def fields(self, view: _T, *names: str) -> _T:
        """Return a value with some of its fields masked; a tuple holds texts."""
        found = {name: getattr(view, name) for name in names}
        for name, value in found.items():
            is_texts = isinstance(value, tuple)
            found[name] = tuple(map(self.text, value)) if is_texts else self.value(value)
        return replace(view, **found)


def as_shown(attempts: Sequence[AttemptView]) -> tuple[Sequence[AttemptView], Mask]:
    """Return the attempts at an execution for display, and the mask for all its texts."""
    mask = mask_of(attempts)
    return ([_masked(attempt, mask) for attempt in attempts] if mask else attempts), mask


def _masked(attempt: AttemptView, mask: Mask) -> AttemptView:
    shown = "label", "message", "reasoning", "trace", "expected", "actual"
    return AttemptView(
        mask.fields(attempt.execution, "output", "error", "trace", "warnings"),
        tuple(mask.fields(assertion, *shown) for assertion in attempt.assertions),
        tuple(masked_call(call, mask) for call in attempt.tool_calls),
    )


def masked_call(call: ToolCallView, mask: Mask) -> ToolCallView:
    """Return a tool call for display."""
    return mask.fields(call, "arguments", "response", "problems")


def shown_note(note: str, attempts: Iterable[AttemptView]) -> str:
    """Return a reviewer's note on an execution for display.

    The whole note is hidden if a text with personal data was erased, since the note may repeat it.
    """
    if note in GONE:
        return note
    mask = mask_of(attempts)
    return mask.text(note) if mask.is_whole else _NOT_SHOWN


def mask_of(attempts: Iterable[AttemptView]) -> Mask:
    """Return the mask for all texts of an execution; it hides what any attempt has to hide."""
    replacements: dict[str, str] = {}
    lost: set[tuple[str, int]] = set()
    is_whole = True
    found = (
        (attempt, evidence)
        for attempt in attempts
        for assertion in attempt.assertions
        for evidence in assertion.evidence
    )
    for attempt, evidence in found:
        excerpt, start, end = evidence.excerpt, evidence.start, evidence.end
        if excerpt is None:
            continue
        text = source_text(evidence.source, attempt)
        if text is None:
            # For an answer in an earlier turn, only the excerpt was recorded.
            is_whole = is_whole and evidence.source.startswith("turn[")
        # Redacted before it was recorded: only a note may have what was found.
        if text is None or text[start:end] == _stretched(excerpt, end - start):
            lost.add((excerpt, end - start))
        else:
            stored = text[start:end]
            replacements |= {form: _stretched(excerpt, len(form)) for form in _forms(stored)}
    return Mask(replacements, lost, is_whole=is_whole)


def _lower_same_length(text: str) -> str:
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    lowered = ((char, char.lower()) for char in text)
    return "".join(low if len(low) == 1 else char for char, low in lowered)


def _forms(found: str) -> set[str]:
    """Return the forms of a text in a transcript: as it is, escaped, and unescaped."""
    forms = {found, json.dumps(found, ensure_ascii=False)[1:-1]}
    with contextlib.suppress(ValueError):
        forms.add(str(json.loads(f'"{found}"')))
    return forms - {""}


def _stretched(excerpt: str, length: int) -> str:
    if len(excerpt) > length:
        return "*" * length
    middle = len(excerpt) // 2
    return excerpt[:middle] + "*" * (length - len(excerpt)) + excerpt[middle:]
