"""Checks of keyword lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kindlm.outcome import CheckResult, Evidence, FailureCode, Outcome
from kindlm.transcript import Transcript

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]


@pytest.mark.parametrize(
    ("word", "output", "denied"),
    [
        ("SECRET", "this is a secret", True),
        ("not my problem", "That is NOT MY PROBLEM.", True),
        ("cat", "concatenate", True),
        ("straße", "STRASSE", False),
        ("secret", "", False),
    ],
)
def test_a_denied_word_must_not_occur(
    evaluate: Evaluate, said: Said, word: str, output: str, denied: bool
) -> None:
    result = evaluate("keywords_deny", {"word": word}, said(output))

    assert result.outcome is (Outcome.FAILED if denied else Outcome.PASSED)
    assert result.failure_code is (FailureCode.KEYWORD_DENIED if denied else None)


def test_every_occurrence_is_pointed_at(evaluate: Evaluate, said: Said) -> None:
    result = evaluate("keywords_deny", {"word": "bad"}, said("Bad, bad!"))

    assert result.evidence == (Evidence("output", 0, 3), Evidence("output", 5, 8))
    assert result.expected == "bad"


@pytest.mark.parametrize(
    ("output", "outcome"),
    [("Hello there!", Outcome.PASSED), ("A WORLD", Outcome.PASSED), ("Bye", Outcome.FAILED)],
)
def test_one_allowed_word_is_enough(
    evaluate: Evaluate, said: Said, output: str, outcome: Outcome
) -> None:
    result = evaluate("keywords_allow", {"words": ["hello", "world"]}, said(output))

    assert result.outcome is outcome
    if outcome is Outcome.FAILED:
        assert result.failure_code is FailureCode.KEYWORD_MISSING
        assert (result.expected, result.actual) == (["hello", "world"], "Bye")
