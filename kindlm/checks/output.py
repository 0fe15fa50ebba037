"""Checks of the final text: what it contains, what it matches, its length.

Substrings and keywords are compared lower-cased and nothing more: `ß` is not `ss`, an accent is not
its plain letter. What a text must not hold is looked for in its normal form, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.normal_form import normal_form
from kindlm.outcome import CheckResult, Evidence, FailureCode
from kindlm.patterns import Dialect, PatternError, searches
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import count, excerpt, shown

__all__ = [
    "contains",
    "count_unmatched",
    "keywords_allow",
    "keywords_deny",
    "matches",
    "max_length",
    "not_contains",
    "occurs",
    "regex",
]

_MAX_EVIDENCE = 20
_CONTEXT = 30
_SEARCHED = 100_000
_PATTERN_S = 1.0

_HIDDEN = (
    " It is written there with characters that Unicode treats as the same, or with invisible ones"
    " (compared as NFKC)."
)
"""Says of a match that only the normal form has it."""


@check("contains")
def contains(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The text contains `text`, whatever its case."""
    wanted, text = expectation.params["text"], transcript.text
    if occurs(wanted, text):
        return passed(expectation)
    message = f"Expected the output to contain {shown(wanted)}, got {shown(text)}."
    code = FailureCode.CONTAINS_FAILED
    return failed(expectation, code, message, expected=wanted, actual=excerpt(text))


@check("keywords_allow")
def keywords_allow(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The text, or its normal form, contains at least one of `words`, whatever its case."""
    words, text = list(expectation.params["words"]), transcript.text
    if any(occurs(word, text) or _find_hidden(word, text, 1) for word in words):
        return passed(expectation)
    message = f"Expected the output to contain at least one of {shown(words)}, got {shown(text)}."
    code = FailureCode.KEYWORD_MISSING
    return failed(expectation, code, message, expected=words, actual=excerpt(text))


@check("not_contains")
def not_contains(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The text does not contain `text`, whatever its case; nor does its normal form."""
    unwanted, text = expectation.params["text"], transcript.text

    def told(start: int, end: int) -> str:
        around = text[max(start - _CONTEXT, 0) : end + _CONTEXT]
        return (
            f"Expected the output not to contain {shown(unwanted)}, found it at character {start}: "
            f"{shown(around)}."
        )

    return _without(expectation, unwanted, text, FailureCode.NOT_CONTAINS_FAILED, told)


@check("keywords_deny")
def keywords_deny(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The text does not contain `word`, whatever its case, also not inside another word.

    Nor does its normal form.
    """
    word = expectation.params["word"]

    def told(start: int, _end: int) -> str:
        return f"The output contains the denied {shown(word)}, at character {start}."

    return _without(expectation, word, transcript.text, FailureCode.KEYWORD_DENIED, told)


def _without(
    expectation: Expectation,
    unwanted: str,
    text: str,
    code: FailureCode,
    told: Callable[[int, int], str],
) -> CheckResult:
    """Return whether a text does without a substring; `told` says where the first one is."""
    ranges, how = _find(unwanted, text, _MAX_EVIDENCE), ""
    if not ranges:
        ranges, how = _find_hidden(unwanted, text, _MAX_EVIDENCE), _HIDDEN
    if not ranges:
        return passed(expectation)
    evidence = [Evidence("output", *found) for found in ranges]
    message = told(*ranges[0]) + how
    return failed(expectation, code, message, expected=unwanted, evidence=evidence)


def occurs(needle: str, text: str) -> bool:
    """Tell whether `text` contains `needle`, whatever its case."""
    return needle.lower() in text.lower()


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


@check("max_length")
def max_length(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The text has at most `max` characters (code points)."""
    limit: int = expectation.params["max"]
    length = len(transcript.text)
    if length <= limit:
        return passed(expectation, threshold=limit)
    return failed(
        expectation,
        FailureCode.MAX_LENGTH_EXCEEDED,
        f"Expected at most {count(limit, 'character')}, got {length:,}.",
        expected=limit,
        actual=length,
        threshold=limit,
    )


def _always(_expectation: Expectation, _transcript: Transcript) -> bool:
    return True


@check("regex", slow=_always)
def regex(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The pattern `pattern` matches somewhere in the text.

    Case is ignored and `.` matches line breaks. The first 100,000 characters are searched, for a
    second at most. Where the pattern cannot be used, nobody knows.
    """
    return _matching(expectation, transcript.text, _matches_output)


@check("matches", slow=_always)
def matches(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The pattern `pattern` matches somewhere in the text; `flags` are letters such as `i`.

    The first 100,000 characters are searched, for a second at most. Where the pattern cannot be
    used, nobody knows.
    """
    flags = expectation.params.get("flags")

    def found(pattern: str, text: str) -> bool:
        written = f"(?{flags}){pattern}" if flags else pattern
        return searches(written, text[:_SEARCHED], time.monotonic() + _PATTERN_S)

    return _matching(expectation, transcript.text, found)


def _matching(
    expectation: Expectation, text: str, found: Callable[[str, str], bool]
) -> CheckResult:
    pattern: str = expectation.params["pattern"]
    try:
        if found(pattern, text):
            return passed(expectation)
    except PatternError as error:
        message = f"The pattern {shown(pattern)} cannot be used: {error}."
        return undecided(expectation, FailureCode.INVALID_PATTERN, message)
    message = f"Expected the output to match {shown(pattern)}, got {shown(text)}."
    code = FailureCode.PATTERN_NOT_MATCHED
    return failed(expectation, code, message, expected=pattern, actual=excerpt(text))


def _matches_output(pattern: str, text: str) -> bool:
    deadline = time.monotonic() + _PATTERN_S
    return searches(pattern, text[:_SEARCHED], deadline, Dialect.OUTPUT)


def count_unmatched(patterns: Iterable[str], text: str) -> int:
    """Return how many patterns do not match, as `regex` does; one that cannot be used does not."""

    def unmatched(pattern: str) -> bool:
        try:
            return not _matches_output(pattern, text)
        except PatternError:
            return True

    return sum(map(unmatched, patterns))
