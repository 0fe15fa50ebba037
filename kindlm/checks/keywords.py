"""Checks of keyword lists: words the output must not, or must, contain."""

from __future__ import annotations

from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed
from kindlm.checks.substrings import HIDDEN, find, find_hidden, occurs
from kindlm.outcome import CheckResult, Evidence, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import excerpt, shown

__all__ = ["keywords_allow", "keywords_deny"]

_MAX_EVIDENCE = 20


@check("keywords_deny")
def keywords_deny(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The text does not contain `word`, whatever its case, also not inside another word.

    Nor does its normal form.
    """
    word: str = expectation.params["word"]
    ranges, how = find(word, transcript.text, _MAX_EVIDENCE), ""
    if not ranges:
        ranges, how = find_hidden(word, transcript.text, _MAX_EVIDENCE), HIDDEN
    if not ranges:
        return [passed(expectation)]
    message = f"The output contains the denied {shown(word)}, at character {ranges[0][0]}.{how}"
    evidence = [Evidence("output", *found) for found in ranges]
    code = FailureCode.KEYWORD_DENIED
    return [failed(expectation, code, message, expected=word, evidence=evidence)]


@check("keywords_allow")
def keywords_allow(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The text, or its normal form, contains at least one of `words`, whatever its case."""
    words, text = list(expectation.params["words"]), transcript.text
    if any(occurs(word, text) or find_hidden(word, text, 1) for word in words):
        return [passed(expectation)]
    message = (
        f"Expected the output to contain at least one of {shown(words)}, "
        f"got {shown(transcript.text)}."
    )
    code = FailureCode.KEYWORD_MISSING
    return [failed(expectation, code, message, expected=words, actual=excerpt(transcript.text))]
