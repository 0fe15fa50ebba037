"""Which JSON object a model means, whatever it puts around it."""

from __future__ import annotations

import pytest

from kindlm.model_answers import object_in, why_unread
from kindlm.transcript import FinishReason

OBJECT = '{"score": 1, "reasoning": "as {it} should"}'


@pytest.mark.parametrize(
    "text",
    [
        OBJECT,
        f" \n{OBJECT}\n ",
        f"```json\n{OBJECT}\n```",
        f"~~~\n{OBJECT}\n~~~\n",
        f"Sure!\n```json\n{OBJECT}\n```\nAnything else?",
        f"Here it is: {OBJECT}",
        f"{OBJECT}\nI hope that helps [1].",
        f"<think>The user wants {{}}.</think>\n{OBJECT}",
        f"<thinking>Hm.</thinking>```json\n{OBJECT}\n```",
        f'It may be {{"score": 0}}, or not.</think>{OBJECT}',
    ],
)
def test_an_object_is_found_among_words(text: str) -> None:
    assert object_in(text) == {"score": 1, "reasoning": "as {it} should"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("I can not say", "Expecting value"),
        ("null", "not a JSON object"),
        (f"[{OBJECT}]", "not a JSON object"),
        (f"Here: [{OBJECT}]", "Expecting value"),
        (f"{OBJECT}\n{OBJECT}", "Extra data"),
        (f"First I had {OBJECT}, now it is {OBJECT}", "Expecting value"),
        (f'{OBJECT} No, it is {{"score": 0', "Extra data"),
        (f"By {{it}} I mean {OBJECT}", "Expecting value"),
        (f"Answer: {OBJECT[:-2]}", "Expecting value"),
        ('{"plan": {"score": 1}', "Expecting ',' delimiter"),
        ('{"score": 0, "score": 1}', "a key occurs twice"),
        ('Score: {"score": 0, "score": 1}', "Expecting value"),
        ('{"score": NaN}', "NaN is not a JSON number"),
        (f"<think>{OBJECT}", "Expecting value"),
        ('{"reasoning": "</think>', "Unterminated string starting at"),
        ("[" * 100_000, "nested too deeply"),
        ("{" * 100_000, "enclosed in double quotes"),
    ],
)
def test_what_leaves_a_doubt_does_not_count(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        object_in(text)


@pytest.mark.parametrize("ending", [FinishReason.MAX_TOKENS, FinishReason.CONTENT_FILTER])
@pytest.mark.parametrize("text", [f"{OBJECT} But on reflection", f"My draft: {OBJECT}"])
def test_of_an_answer_that_was_cut_off_no_object_among_words_counts(
    text: str, ending: FinishReason
) -> None:
    assert object_in(text, FinishReason.STOP) == object_in(OBJECT)
    with pytest.raises(ValueError, match=r"Extra data|Expecting value"):
        object_in(text, ending)


def test_an_object_that_came_whole_counts_where_the_answer_was_cut_off_behind_it() -> None:
    assert object_in(f"{OBJECT}\n\n\n", FinishReason.MAX_TOKENS) == object_in(OBJECT)


@pytest.mark.parametrize("mark", ["`", "~"])
def test_a_fence_of_a_million_characters_holds_nothing(mark: str) -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        object_in(f"{mark * 1_000_000}\n{mark * 999_999}")


def test_an_answer_that_was_ended_early_is_reported_as_such() -> None:
    error = ValueError("Unterminated string")
    assert why_unread(error, FinishReason.STOP) == why_unread(error, None) == "Unterminated string"
    assert "cut off" in why_unread(error, FinishReason.MAX_TOKENS)
    assert "refused" in why_unread(error, FinishReason.CONTENT_FILTER)
