"""The checks of a regular expression that the final text has to match."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.outcome import CheckResult, FailureCode
from kindlm.patterns import PatternError, found_in, searches
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import excerpt, shown

__all__ = ["count_unmatched", "matches", "matches_output", "regex"]

_SEARCHED = 100_000
_PATTERN_S = 1.0


def _always(_expectation: Expectation, _transcript: Transcript) -> bool:
    return True


@check("regex", slow=_always)
def regex(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The pattern `pattern` matches somewhere in the text.

    Case is ignored and `.` matches line breaks. The first 100,000 characters are searched, for a
    second at most. Where the pattern cannot be used, nobody knows.
    """
    pattern: str = expectation.params["pattern"]
    try:
        found = matches_output(pattern, transcript.text)
    except PatternError as error:
        return [_unusable(expectation, pattern, error)]
    return [passed(expectation) if found else _unmatched(expectation, pattern, transcript.text)]


@check("matches", slow=_always)
def matches(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The pattern `pattern` matches somewhere in the text; `flags` are letters such as `i`.

    The first 100,000 characters are searched, for a second at most. Where the pattern cannot be
    used, nobody knows.
    """
    pattern, flags = expectation.params["pattern"], expectation.params.get("flags")
    written = f"(?{flags}){pattern}" if flags else pattern
    deadline = time.monotonic() + _PATTERN_S
    try:
        found = searches(written, transcript.text[:_SEARCHED], deadline)
    except PatternError as error:
        return [_unusable(expectation, pattern, error)]
    return [passed(expectation) if found else _unmatched(expectation, pattern, transcript.text)]


def _unusable(expectation: Expectation, pattern: str, error: PatternError) -> CheckResult:
    message = f"The pattern {shown(pattern)} cannot be used: {error}."
    return undecided(expectation, FailureCode.INVALID_PATTERN, message)


def _unmatched(expectation: Expectation, pattern: str, text: str) -> CheckResult:
    message = f"Expected the output to match {shown(pattern)}, got {shown(text)}."
    code = FailureCode.PATTERN_NOT_MATCHED
    return failed(expectation, code, message, expected=pattern, actual=excerpt(text))


def matches_output(pattern: str, text: str) -> bool:
    """Tell whether a pattern matches in a text, as `regex` does; raise `PatternError`."""
    return found_in(pattern, text[:_SEARCHED], time.monotonic() + _PATTERN_S)


def count_unmatched(patterns: Iterable[str], text: str) -> int:
    """Return how many patterns do not match in a text; one that cannot be used does not."""
    return sum(not _matches(pattern, text) for pattern in patterns)


def _matches(pattern: str, text: str) -> bool:
    try:
        return matches_output(pattern, text)
    except PatternError:
        return False
