"""Checks of the final text: what it contains, what it matches, its length.

Substrings and keywords are compared lower-cased and nothing more: `ß` is not `ss`, an accent is not
its plain letter. What a text must not hold is looked for in its normal form, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kindlm.checks.base import Check, failed, passed, undecided
from kindlm.normal_form import normal_form
from kindlm.outcome import CheckResult, Evidence, FailureCode
from kindlm.patterns import Dialect, PatternError, searches
from kindlm.ports import CheckContext
from kindlm.transcript import Transcript
from kindlm.wording import count, excerpt, shown

_MAX_EVIDENCE = 20
_CONTEXT = 30
_SEARCHED = 100_000
_PATTERN_S = 1.0

_HIDDEN = (
    " It is written there with characters that Unicode treats as the same, or with invisible ones"
    " (compared as NFKC)."
)
"""Says of a match that only the normal form has it."""


@dataclass(frozen=True, slots=True)
class Contains(Check):
    """The text contains `text`, whatever its case."""

    kind = "contains"

    text: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        wanted, text = self.text, transcript.text
        if occurs(wanted, text):
            return passed()
        message = f"Expected the output to contain {shown(wanted)}, got {shown(text)}."
        code = FailureCode.CONTAINS_FAILED
        return failed(code, message, expected=wanted, actual=excerpt(text))


@dataclass(frozen=True, slots=True)
class KeywordsAllow(Check):
    """The text, or its normal form, contains at least one of `words`, whatever its case."""

    kind = "keywords_allow"

    words: Sequence[str]

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        words, text = list(self.words), transcript.text
        if any(occurs(word, text) or _find_hidden(word, text, 1) for word in words):
            return passed()
        message = (
            f"Expected the output to contain at least one of {shown(words)}, got {shown(text)}."
        )
        code = FailureCode.KEYWORD_MISSING
        return failed(code, message, expected=words, actual=excerpt(text))


@dataclass(frozen=True, slots=True)
class NotContains(Check):
    """The text does not contain `text`, whatever its case; nor does its normal form."""

    kind = "not_contains"

    text: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        found, how = _occurrences(self.text, transcript.text)
        if not found:
            return passed()
        start, end = found[0].start, found[0].end
        around = transcript.text[max(start - _CONTEXT, 0) : end + _CONTEXT]
        message = (
            f"Expected the output not to contain {shown(self.text)}, found it at character {start}:"
            f" {shown(around)}.{how}"
        )
        code = FailureCode.NOT_CONTAINS_FAILED
        return failed(code, message, expected=self.text, evidence=found)


@dataclass(frozen=True, slots=True)
class KeywordsDeny(Check):
    """The text does not contain `word`, whatever its case, also not inside another word.

    Nor does its normal form.
    """

    kind = "keywords_deny"

    word: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        found, how = _occurrences(self.word, transcript.text)
        if not found:
            return passed()
        start = found[0].start
        message = f"The output contains the denied {shown(self.word)}, at character {start}.{how}"
        return failed(FailureCode.KEYWORD_DENIED, message, expected=self.word, evidence=found)


def occurs(needle: str, text: str) -> bool:
    """Return whether `text` contains `needle`, whatever its case."""
    return needle.lower() in text.lower()


def _occurrences(unwanted: str, text: str) -> tuple[list[Evidence], str]:
    """Return where a text has a substring, and what to say if only its normal form has it."""
    ranges, how = _find(unwanted, text, _MAX_EVIDENCE), ""
    if not ranges:
        ranges, how = _find_hidden(unwanted, text, _MAX_EVIDENCE), _HIDDEN
    return [Evidence("output", *found) for found in ranges], how


def _find(needle: str, text: str, limit: int) -> list[tuple[int, int]]:
    """Return where `needle` occurs, as character ranges of `text`; at most `limit` of them."""
    lowered, wanted = text.lower(), needle.lower()
    found: list[tuple[int, int]] = []
    start = lowered.find(wanted)
    while start >= 0 and len(found) < limit:
        found.append((start, start + len(wanted)))
        start = lowered.find(wanted, start + max(len(wanted), 1))
    if not found or len(lowered) == len(text):
        return found
    # A few characters become two when lower-cased: the ranges are those of the text itself.
    origin = [index for index, char in enumerate(text) for _ in char.lower()]
    origin.append(len(text))
    return [
        (origin[start], origin[end - 1] + 1 if end > start else origin[start])
        for start, end in found
    ]


def _find_hidden(needle: str, text: str, limit: int) -> list[tuple[int, int]]:
    """Return where `needle` occurs in the normal form of `text`, as `_find` does.

    It is compared with the normal form of `needle`; one of invisible characters alone has none.
    """
    form, wanted = normal_form(text), normal_form(needle)
    if not (form or wanted) or not needle:
        return []
    sought = needle if wanted is None else wanted.text
    found = _find(sought, text if form is None else form.text, limit)
    return found if form is None else [form.written(*place) for place in found]


@dataclass(frozen=True, slots=True)
class MaxLength(Check):
    """The text has at most `max` characters (code points)."""

    kind = "max_length"

    max: int

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        limit, length = self.max, len(transcript.text)
        if length <= limit:
            return passed(threshold=limit)
        return failed(
            FailureCode.MAX_LENGTH_EXCEEDED,
            f"Expected at most {count(limit, 'character')}, got {length:,}.",
            expected=limit,
            actual=length,
            threshold=limit,
        )


@dataclass(frozen=True, slots=True)
class Matches(Check):
    """The pattern matches somewhere in the text; `flags` are letters such as `i`.

    The first 100,000 characters are searched, for a second at most. It is undecided whether a
    pattern matches that cannot be used.
    """

    kind = "matches"

    pattern: str
    flags: str = ""

    def is_slow(self, transcript: Transcript) -> bool:
        return True

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        text = transcript.text
        try:
            if self.finds(text):
                return passed()
        except PatternError as error:
            message = f"The pattern {shown(self.pattern)} cannot be used: {error}."
            return undecided(message, FailureCode.INVALID_PATTERN)
        message = f"Expected the output to match {shown(self.pattern)}, got {shown(text)}."
        code = FailureCode.PATTERN_NOT_MATCHED
        return failed(code, message, expected=self.pattern, actual=excerpt(text))

    def finds(self, text: str) -> bool:
        """Return whether it matches; raise `PatternError` if the pattern cannot be used."""
        pattern = f"(?{self.flags}){self.pattern}" if self.flags else self.pattern
        return searches(pattern, text[:_SEARCHED], time.monotonic() + _PATTERN_S)


@dataclass(frozen=True, slots=True)
class Regex(Matches):
    """As `Matches`, but case is ignored and `.` matches line breaks."""

    kind = "regex"

    def finds(self, text: str) -> bool:
        deadline = time.monotonic() + _PATTERN_S
        return searches(self.pattern, text[:_SEARCHED], deadline, Dialect.OUTPUT)


def count_unmatched(patterns: Iterable[str], text: str) -> int:
    """Return how many patterns do not match, as `Regex` does; one that cannot be used does not."""

    def unmatched(pattern: str) -> bool:
        try:
            return not Regex(pattern).finds(text)
        except PatternError:
            return True

    return sum(map(unmatched, patterns))
