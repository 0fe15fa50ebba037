"""Hides personal data that assertions found, and places evidence in texts.

An assertion that looks for personal data records where it found some, and the redacted form of it.
The recorded transcript keeps the text; a report of the execution shows the redacted form wherever
the match occurs. If the text with the match was erased, everything that looks like the redacted
form is redacted, and notes of reviewers are hidden, since what they repeat cannot be found any
more.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from kindlm.dataclass import replace
from kindlm.history.rows import AttemptView, ToolCallView
from kindlm.normal_form import meanings_of
from kindlm.projections import GONE
from kindlm.strict_json import read_json

_ARGUMENTS = re.compile(r"tool\[(\d+)\]\.arguments")
_EXCERPT = re.compile(r"([^*]+)\*+([^*]+)")
"""The beginning and the end of a match, as checks let them be seen."""

_HEAD = 4
"""With so many characters, the beginning of a match is masked where a text was cut within it."""

_BODY_NOT_SHOWN = "[not shown: it holds personal data]"

_NOT_SHOWN = "[not shown: it may repeat personal data, and the text that would tell was erased]"


def source_text(source: str, attempt: AttemptView) -> str | None:
    """Return the text that a range of evidence refers to, None if it is gone."""
    if source == "output":
        return None if attempt.execution.output in GONE else attempt.execution.output
    match, calls = _ARGUMENTS.fullmatch(source), attempt.tool_calls
    index = int(match[1]) if match else len(calls)
    arguments = calls[index].arguments if index < len(calls) else None
    if arguments is None or isinstance(arguments, str):
        return None if arguments in GONE else arguments
    return json.dumps(arguments, ensure_ascii=False)


class Mask:
    """Replaces what must be hidden by a replacement of the same length.

    Positions in a text therefore stay valid. Case is ignored. Overlapping findings are all
    replaced, and so is the beginning of a finding before the "…" of a text that was cut.

    Args:
        replacements: Texts to hide, each with its replacement.
        lost: Excerpts whose texts are not known, each with the length of its text.
        is_whole: Whether no text with findings was erased.
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
        self._known = [(_lower(found), shown) for found, shown in replacements.items()]
        self._lost: list[tuple[re.Pattern[str], str]] = []
        for excerpt, length in sorted(lost):
            seen = _EXCERPT.fullmatch(excerpt)
            hidden = length - len(seen[1]) - len(seen[2]) if seen else 0
            # An excerpt that shows nothing of its text, or all of it, has no shape to look for.
            if seen and hidden > 0:
                shape = f"(?={re.escape(seen[1])}.{{{hidden}}}{re.escape(seen[2])})"
                pattern = re.compile(shape, re.IGNORECASE | re.DOTALL)
                self._lost.append((pattern, _fitted(excerpt, length)))

    @overload
    def text(self, text: str) -> str: ...

    @overload
    def text(self, text: str | None) -> str | None: ...

    def text(self, text: str | None) -> str | None:
        """Return a text with everything replaced."""
        if not text or not self:
            return text
        masked = list(text)
        for start, shown in self._found_in(text):
            for place, char in enumerate(shown, start):
                # Where findings overlap, a character is only shown if all of them allow it.
                masked[place] = char if masked[place] in (text[place], char) else "*"
        return "".join(masked)

    def wire_text(self, text: str | None) -> str | None:
        """Return a text that may be in a wire format: everything replaced, or a note in its place.

        The note is used if something to hide is in pieces, or escaped.
        """
        shown = self.text(text)
        if not shown or not self or self._says_no_more(shown):
            return shown
        return _BODY_NOT_SHOWN

    def body(self, body: str | None, *said: Any) -> str | None:
        """Return the body of an answer as it was received, or a note in its place.

        The body is shown if nothing has to be hidden, in it or in what was read from it (`said`).
        """
        if body is None or not self:
            return body
        is_fit = all(self.value(each) == each for each in said) and self._says_no_more(body)
        return body if is_fit else _BODY_NOT_SHOWN

    def _says_no_more(self, text: str) -> bool:
        """Return whether no reading of a text reveals more than may be shown."""
        return all(self.text(meaning) == meaning for meaning in meanings_of(text))

    def __bool__(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._known or self._lost)

    def _found_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield where something to hide occurs, with its replacement."""
        for pattern, shown in self._lost:
            for match in pattern.finditer(text):
                yield match.start(), shown
        text = _lower(text)
        is_cut = "…" in text
        for found, shown in self._known:
            for start in _starts(found, text):
                yield start, shown
            for start in _starts(found[:_HEAD], text) if is_cut else ():
                # A message may be cut within a finding.
                cut = text.find("…", start, start + len(found))
                if cut >= start + _HEAD and found.startswith(text[start:cut]):
                    yield start, shown[: cut - start]

    def value(self, value: Any) -> Any:
        """Return a JSON value with everything replaced, in keys, strings and numbers."""
        if not self or value is None:
            return value
        written = json.dumps(value, ensure_ascii=False)
        masked = self.text(written)
        if masked == written:
            return value
        # A number that lost its digits is not JSON, and stays a text.
        return read_json(masked)


def as_shown(attempts: Sequence[AttemptView]) -> tuple[Sequence[AttemptView], Mask]:
    """Return the attempts at an execution for display, and the mask of all its texts."""
    mask = mask_of(attempts)
    return ([_masked(attempt, mask) for attempt in attempts] if mask else attempts), mask


def _masked(attempt: AttemptView, mask: Mask) -> AttemptView:
    execution = attempt.execution
    return AttemptView(
        replace(
            execution,
            output=mask.text(execution.output),
            error=mask.text(execution.error),
            trace=mask.text(execution.trace),
            warnings=tuple(map(mask.text, execution.warnings)),
        ),
        tuple(
            replace(
                assertion,
                label=mask.text(assertion.label),
                message=mask.text(assertion.message),
                expected=mask.value(assertion.expected),
                actual=mask.value(assertion.actual),
                reasoning=mask.text(assertion.reasoning),
                trace=mask.text(assertion.trace),
            )
            for assertion in attempt.assertions
        ),
        tuple(masked_call(call, mask) for call in attempt.tool_calls),
    )


def masked_call(call: ToolCallView, mask: Mask) -> ToolCallView:
    """Return a tool call in its displayed form."""
    return replace(
        call,
        arguments=mask.value(call.arguments),
        response=mask.value(call.response),
        problems=tuple(map(mask.text, call.problems)),
    )


def shown_note(note: str, attempts: Iterable[AttemptView]) -> str:
    """Return a reviewer's note on an execution in its displayed form.

    The whole note is hidden if a text was erased in which a check had found personal data: a person
    may repeat that in ways that no redacted form shows.
    """
    if note in GONE:
        return note
    mask = mask_of(attempts)
    return mask.text(note) if mask.is_whole else _NOT_SHOWN


def mask_of(attempts: Iterable[AttemptView]) -> Mask:
    """Return the mask for all texts of an execution, across its attempts.

    What is hidden in one attempt is hidden in all.
    """
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
            lost.add((excerpt, end - start))
            # Of a text that ended an earlier turn, only the excerpt was recorded.
            is_whole = is_whole and evidence.source.startswith("turn[")
            continue
        for form in _forms(text[start:end]):
            replacements[form] = _fitted(excerpt, len(form))
    return Mask(replacements, lost, is_whole=is_whole)


def _starts(found: str, text: str) -> Iterator[int]:
    """Yield where a text occurs in another one, overlaps included."""
    start = text.find(found)
    while start >= 0:
        yield start
        start = text.find(found, start + 1)


def _lower(text: str) -> str:
    """Return a text in lower case at the same length."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _forms(found: str) -> set[str]:
    """Return the forms of a text in a transcript: as it is, and inside JSON."""
    forms = {found, json.dumps(found, ensure_ascii=False)[1:-1]}
    with contextlib.suppress(ValueError):
        forms.add(str(json.loads(f'"{found}"')))
    return forms - {""}


def _fitted(excerpt: str, length: int) -> str:
    """Return an excerpt, stretched to the length of the original."""
    if len(excerpt) > length:
        return "*" * length
    middle = len(excerpt) // 2
    return excerpt[:middle] + "*" * (length - len(excerpt)) + excerpt[middle:]
