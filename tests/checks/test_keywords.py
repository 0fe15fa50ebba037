"""Checks of keyword lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kindlm.outcome import CheckResult, Evidence, Outcome
from kindlm.transcript import Transcript

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]


@pytest.mark.parametrize(
    ("word", "output", "denied"),
    [
        ("SECRET", "this is a secret", True),
        ("not my problem", "That is NOT MY PROBLEM.", True),
        ("not my problem", "Not\u00a0my problem!", True),
        ("cat", "concatenate", True),
        ("straße", "STRASSE", False),
        ("secret", "", False),
        ("Acme Corp", "We bought acme\n  corp.", True),
        ("Acme\tCorp", "We bought Acme Corp.", True),
        ("Acme Corp", "We bought AcmeCorp.", False),
        ("a.c Corp", "abc\nCorp", False),
        ("\n- no", "It - no\n", False),
        (" art or ", "party\nor not", False),
    ],
)
def test_a_denied_word_must_not_occur(
    evaluate: Evaluate, said: Said, word: str, output: str, denied: bool
) -> None:
    result = evaluate("keywords_deny", {"text": word}, said(output))

    assert result.outcome is (Outcome.FAILED if denied else Outcome.PASSED)
    assert result.failure_code is ("KEYWORD_DENIED" if denied else None)


def test_every_occurrence_is_pointed_at(evaluate: Evaluate, said: Said) -> None:
    result = evaluate("keywords_deny", {"text": "bad"}, said("Bad, bad!"))

    assert result.evidence == (Evidence("output", 0, 3), Evidence("output", 5, 8))
    assert result.expected == "bad"


@pytest.mark.parametrize(
    ("output", "outcome"),
    [("Hello there!", Outcome.PASSED), ("A WORLD", Outcome.PASSED), ("Bye", Outcome.FAILED)],
)
def test_one_allowed_word_is_enough(
    evaluate: Evaluate, said: Said, output: str, outcome: Outcome
) -> None:
    result = evaluate("keywords_allow", {"texts": ["hello", "world"]}, said(output))

    assert result.outcome is outcome
    if outcome is Outcome.FAILED:
        assert result.failure_code == "KEYWORD_MISSING"
        assert (result.expected, result.actual) == (["hello", "world"], "Bye")


@pytest.mark.parametrize(
    ("word", "output", "place"),
    [
        ("secret", "the se\u200bcret", (4, 11)),
        ("caf\u00e9", "Cafe\u0301 bar", (0, 5)),
        ("cafe\u0301", "at the caf\u00e9", (7, 11)),
        ("top secret", "TOP\u2003\uff33ECRET", (0, 10)),
        ("\u200bsecret", "secret", (0, 6)),
    ],
)
def test_a_denied_word_is_found_behind_look_alike_characters(
    evaluate: Evaluate, said: Said, word: str, output: str, place: tuple[int, int]
) -> None:
    result = evaluate("keywords_deny", {"text": word}, said(output))

    assert result.failure_code == "KEYWORD_DENIED"
    assert result.evidence == (Evidence("output", *place),)
    assert "characters that Unicode treats as the same" in result.message
    banned = evaluate("not_contains", {"text": word}, said(output))
    assert banned.failure_code == "NOT_CONTAINS_FAILED"
    assert banned.evidence == result.evidence


@pytest.mark.parametrize(("word", "output"), [("\u200b", "hidden"), ("\u00ad", "caf\u00e9")])
def test_invisible_characters_alone_are_looked_for_as_they_are(
    evaluate: Evaluate, said: Said, word: str, output: str
) -> None:
    assert evaluate("keywords_deny", {"text": word}, said(output)).outcome is Outcome.PASSED
    found = evaluate("keywords_deny", {"text": word}, said(output + word))
    assert found.outcome is Outcome.FAILED


def test_an_allowed_word_is_found_behind_them_too_and_a_demanded_text_is_not(
    evaluate: Evaluate, said: Said
) -> None:
    output = said("caf\u00e9")
    allowed = evaluate("keywords_allow", {"texts": ["cafe\u0301"]}, output)
    demanded = evaluate("contains", {"text": "cafe\u0301"}, output)
    assert (allowed.outcome, demanded.outcome) == (Outcome.PASSED, Outcome.FAILED)
