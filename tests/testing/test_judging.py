"""The judge and the drift question: scores that follow from what was judged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.testing.player import answer_drift, answer_judge
from kindlm.testing.script import load_script

SCRIPT = load_script(
    {
        "judge": {
            "default": 0.25,
            "rules": [
                {
                    "criteria": "polite refund",
                    "checks": [
                        {"note": "apology", "weight": 2, "says": ["sorry", "apolog"]},
                        {"says": {"none": ["stupid"]}},
                        {"called": "refund", "arguments": {"order_id": "A1"}},
                        {"inOrder": ["lookup", "refund"]},
                        {"notCalled": "escalate"},
                    ],
                }
            ],
        }
    }
)
LOOKUP = {"name": "lookup", "arguments": {}, "response": {}}
REFUND = {"name": "refund", "arguments": {"order_id": "A1", "amount": 5}, "response": {}}
ESCALATE = {"name": "escalate", "arguments": {}, "response": {}}


@pytest.mark.parametrize(
    ("text", "calls", "score"),
    [
        ("I am sorry. Refunded.", [LOOKUP, REFUND], 1.0),
        ("Refunded.", [LOOKUP, REFUND], 0.6667),
        ("Sorry, stupid.", [LOOKUP, REFUND], 0.8333),
        ("Sorry.", [REFUND, LOOKUP], 0.8333),
        ("Sorry.", [LOOKUP, {**REFUND, "arguments": {"order_id": "B2"}}], 0.8333),
        ("Sorry.", [LOOKUP, {**REFUND, "arguments": None}], 0.8333),
        ("Sorry.", [LOOKUP, REFUND, ESCALATE], 0.8333),
        ("", [], 0.1667),
    ],
)
def test_the_score_follows_from_the_transcript(ask_judge, text, calls, score):
    judgement = answer_judge(SCRIPT, ask_judge("A Polite Refund", text, calls))
    assert judgement["score"] == score


def test_the_reasoning_names_what_was_found_and_what_was_not(ask_judge):
    reasoning = answer_judge(SCRIPT, ask_judge("polite refund", "No.", [ESCALATE]))["reasoning"]
    found, missing = reasoning.split("Missing:")
    assert "says {'none': ['stupid']}" in found
    assert "apology" in missing
    assert "calls refund" in missing


def test_an_unknown_criterion_gets_the_default_and_says_so(ask_judge):
    judgement = answer_judge(SCRIPT, ask_judge("is brief", "Yes."))
    assert judgement["score"] == 0.25
    assert "No rule" in judgement["reasoning"]


@pytest.mark.parametrize(
    "question",
    [
        "no data at all",
        "<<<KINDLM-DATA-1\n{broken\nKINDLM-DATA-1>>>",
        '<<<KINDLM-DATA-1\n{"criteria": "x"}\nKINDLM-DATA-2>>>',
        '<<<KINDLM-DATA-1\n{"criteria": "x"}\nKINDLM-DATA-1>>>',
        "<<<KINDLM-DATA-1\n[]\nKINDLM-DATA-1>>>",
    ],
)
def test_a_question_that_cannot_be_read_gets_no_score(question):
    assert "score" not in answer_judge(SCRIPT, question)


def test_a_rule_can_play_a_judge_that_answers_nonsense(asked):
    nonsense = {"score": "high", "reasoning": "x"}
    rule = {"when": {"asks": "judge"}, "reply": {"json": nonsense}}
    app = asked({"rules": [rule, {"reply": {"text": "agent"}}]})
    named = {"type": "json_schema", "json_schema": {"name": "kindlm_judgement", "schema": {}}}
    assert json.loads(app.message(response_format=named)["content"]) == nonsense
    assert app.message()["content"] == "agent"


def drift(baseline: Any, current: Any) -> float:
    data = json.dumps({"baseline": baseline, "current": current})
    return answer_drift(f"<<<KINDLM-DATA-1\n{data}\nKINDLM-DATA-1>>>")["driftScore"]


@given(st.text(), st.text())
def test_drift_is_a_distance(left, right):
    assert 0 <= drift(left, right) <= 1
    assert drift(left, right) == drift(right, left)
    assert drift(left, left) == 0


def test_drift_counts_words_that_differ():
    assert drift("Your refund is done", "your REFUND is late") == pytest.approx(0.4)
    assert drift("one", "two") == 1
