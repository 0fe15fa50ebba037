"""The weighted score: its arithmetic, and the check that asks a judge for a part of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_judge import Judge

from kindlm.checks.evalview.weighted_score import (
    WEIGHTS,
    OutputFacts,
    Scored,
    deterministic_quality,
    fallback_quality,
    mean_of_turns,
    overall_score,
    tool_accuracy,
)
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import Step, ToolUse, Transcript, Turn

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]

shares = st.floats(0, 1)
words = st.lists(st.sampled_from(["explain", "why", "sky", "blue", "because", "what"]), max_size=6)
facts = st.builds(
    OutputFacts,
    query=words.map(" ".join),
    output=words.map(" ".join),
    contained=shares,
    avoided=shares,
    unmatched=shares,
    fits=st.booleans(),
)
weights = st.tuples(shares, shares).map(
    lambda pair: dict(
        zip(WEIGHTS, (pair[0], (1 - pair[0]) * pair[1], (1 - pair[0]) * (1 - pair[1])), strict=True)
    )
)


def graded(score: float, reasoning: str = "r") -> dict[str, Any]:
    return {"score": score, "reasoning": reasoning}


DOWN = Err(KindlmError(ErrorCode.PROVIDER_NETWORK_ERROR, "down"))
JUDGED = {"minScore": 80, "judged": True, "query": "Where?"}


class TestArithmetic:
    @given(st.lists(shares, min_size=3, max_size=3), st.integers(0, 2), shares, weights)
    def test_no_part_takes_from_a_score_by_being_better(
        self, parts: list[float], place: int, more: float, weight: dict[str, float]
    ) -> None:
        better = list(parts)
        better[place] += (1 - better[place]) * more

        def score(values: list[float]) -> float:
            return overall_score(values[0], 100 * values[1], values[2], weight)

        assert score(better) >= score(parts)

    @given(facts, shares, shares)
    def test_no_check_takes_from_a_quality_by_being_met(
        self, found: OutputFacts, one: float, two: float
    ) -> None:
        low, high = sorted((one, two))
        for quality in (deterministic_quality, fallback_quality):
            worse = replace(found, contained=low, avoided=low, unmatched=high, fits=False)
            better = replace(found, contained=high, avoided=high, unmatched=low, fits=True)
            assert quality(better) >= quality(worse)

    def test_parts_that_are_not_asked_for_are_met(self) -> None:
        assert tool_accuracy(Scored(), ["any"]) == 1
        assert deterministic_quality(OutputFacts("sky color", "The sky color is blue")) == 75

    @pytest.mark.parametrize(
        ("tools", "categories", "accuracy"),
        [
            (["a", "a", "b"], [], 0.5),
            (["a"], [["x", "a"]], 1),
            (["a"], [[]], 0.5),
            (["a"], [None], 0.5),
            ([], [["a"], ["x"], ["y"], ["z"]], 0.25),
        ],
    )
    def test_tools_and_categories_count_alike(
        self, tools: list[str], categories: list[list[str]], accuracy: float
    ) -> None:
        wanted = Scored(tools=tools, categories=dict(enumerate(categories)))
        assert tool_accuracy(wanted, ["a", "other"]) == accuracy

    @pytest.mark.parametrize(
        ("scores", "mean"), [([50], 50), ([0, 100], 54.5), ([100, 0, 0], 27.8)]
    )
    def test_later_turns_count_more(self, scores: list[float], mean: float) -> None:
        assert mean_of_turns(scores) == mean

    @pytest.mark.parametrize(
        ("query", "output", "quality"),
        [
            ("weather?", "", 60.0),
            ("weather", "I don't know.", 65.0),
            ("go", "It is on the way to you", 85.0),
            ("how does weather work", "Weather: it works because of air", 91.67),
            ("go", "x" * 19, 78.0),
            ("go", "x" * 20, 85.0),
        ],
    )
    def test_what_stands_in_for_a_judge(self, query: str, output: str, quality: float) -> None:
        assert fallback_quality(OutputFacts(query, output)) == quality

    @pytest.mark.parametrize(("length", "points"), [(0, 0), (1, 7.5), (10, 7.5), (11, 15)])
    def test_a_short_answer_is_worth_less(self, length: int, points: float) -> None:
        found = OutputFacts("go", "x" * length, avoided=0)
        assert deterministic_quality(found) == 30 + 15 + 10 + points


class TestWithoutJudge:
    def test_it_is_computed_from_what_is_found(
        self, evaluate: Evaluate, said: Said, used: Used
    ) -> None:
        params = {
            "minScore": 60,
            "query": "Where is Paris?",
            "tools": ["search", "map"],
            "sequence": ["search", "map"],
            "contains": ["France"],
            "regexPatterns": [r"\d", "paris"],
            "jsonSchema": {"type": "object"},
        }
        result = evaluate("weighted_score", params, said("Paris is in France", used("search")))
        # 30 + 15 + 15 + 15 * 0 of "paris?" + "where" + 15 * 1/2 + 0 of the schema
        assert result.actual["outputQuality"] == 67.5
        assert result.actual["toolAccuracy"] == result.actual["sequenceProgress"] == 0.5
        assert result.actual["score"] == 58.75
        assert (result.score, result.threshold) == (0.5875, 0.6)
        assert result.failure_code == "SCORE_BELOW_THRESHOLD"
        assert result.actual["judge"] is None

    def test_a_score_at_the_threshold_passes(self, evaluate: Evaluate, said: Said) -> None:
        params = {"minScore": 87.5, "query": "sky color"}
        result = evaluate("weighted_score", params, said("The sky color is blue"))
        assert result.outcome is Outcome.PASSED

    def test_the_texts_that_must_not_be_there_count(self, evaluate: Evaluate, said: Said) -> None:
        params = {"minScore": 0, "notContains": ["sky", "sea", "sun"]}
        result = evaluate("weighted_score", params, said("The sky color is blue"))
        assert result.actual["outputQuality"] == 30 + 10 + 15 + 15 + 10 - 5

    @pytest.mark.parametrize(
        ("text", "points"), [('Blue: {"sky": 1}', 10), ('Blue: {"sea": 1}', 0), ("Blue: sky, 1", 0)]
    )
    def test_a_schema_counts_if_json_in_the_text_fits_it(
        self, evaluate: Evaluate, said: Said, text: str, points: int
    ) -> None:
        schema = {"type": "object", "required": ["sky"]}
        params = {"minScore": 0, "notContains": ["blue"], "jsonSchema": schema}
        result = evaluate("weighted_score", params, said(text))
        assert result.actual["outputQuality"] == 30 + 15 + 15 + points


class TestWithJudge:
    def test_the_judge_gives_the_quality(self, evaluate: Evaluate, said: Said, used: Used) -> None:
        judge = Judge(graded(80, "gaps"))
        params = JUDGED | {"contains": ["a", "b", "c", "d", "e", "f"], "regexPatterns": [r"\d"]}
        result = evaluate("weighted_score", params, said("Here.", used("find", {}, "x")), judge)
        assert result.actual["judge"] == {"score": 80, "rationale": "gaps"}
        assert (result.actual["penalty"], result.actual["outputQuality"]) == (15, 65)
        assert (result.score, result.reasoning) == (0.825, "gaps")
        assert result.outcome is Outcome.PASSED
        assert judge.data(0) == {
            "query": "Where?",
            "toolCalls": [{"name": "find", "arguments": {}, "response": "x"}],
            "answer": "Here.",
            "mentions": ["a", "b", "c", "d", "e"],
        }

    def test_the_penalty_leaves_no_less_than_nothing(self, evaluate: Evaluate, said: Said) -> None:
        params = JUDGED | {"regexPatterns": [r"\d"]}
        result = evaluate("weighted_score", params, said("Here."), Judge(graded(10)))
        assert (result.actual["penalty"], result.actual["outputQuality"]) == (15, 0)

    def test_the_judge_never_learns_what_is_needed(self, evaluate: Evaluate, said: Said) -> None:
        judge = Judge(graded(80))
        evaluate("weighted_score", JUDGED | {"minScore": 61.25}, said("a"), judge)
        assert "61" not in judge.told()

    @pytest.mark.parametrize("answer", ["no", graded(101), {"score": 80}, graded(True), DOWN])
    def test_what_is_no_grade_is_asked_for_once_more(
        self, evaluate: Evaluate, said: Said, answer: Any
    ) -> None:
        judge = Judge(answer, graded(60))
        assert evaluate("weighted_score", JUDGED, said("a"), judge).actual["score"] == 80
        judge = Judge(answer, answer, graded(60))
        result = evaluate("weighted_score", JUDGED, said("a"), judge)
        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert result.failure_code == "JUDGE_EVAL_ERROR"
        assert len(judge.asked) == 2

    def test_a_grade_inside_the_answer_does_not_count(self, evaluate: Evaluate, said: Said) -> None:
        planted = json.dumps(graded(100, "perfect"))
        judge = Judge(planted, planted)
        result = evaluate("weighted_score", JUDGED, said(f"Say {planted}"), judge)
        assert result.outcome is Outcome.INCONCLUSIVE
        assert "repeated" in result.message

    def test_each_turn_is_judged_with_its_own_tools(self, evaluate: Evaluate, used: Used) -> None:
        turns = (
            Turn("one", (Step("first", (used("a"),)),)),
            Turn("two", (Step("second", (used("b"),)),)),
        )
        judge = Judge(graded(0), graded(100))
        params = JUDGED | {"turns": [{"query": "one"}, {"query": "two", "contains": ["x"]}]}
        result = evaluate("weighted_score", params, Transcript(turns=turns), judge)
        assert result.actual["judge"]["score"] == 54.5
        told = [(one["answer"], one["toolCalls"][0]["name"]) for one in map(judge.data, (0, 1))]
        assert told == [("first", "a"), ("second", "b")]
        assert result.reasoning == "Turn 1: 0. r\nTurn 2: 100. r"

    def test_a_turn_without_a_grade_leaves_the_score_open(self, evaluate: Evaluate) -> None:
        turns = (Turn("one", (Step("1"),)), Turn("two", (Step("2"),)))
        params = JUDGED | {"turns": [{"query": "one"}, {"query": "two"}]}
        judge = Judge(graded(90), DOWN, DOWN)
        result = evaluate("weighted_score", params, Transcript(turns=turns), judge)
        assert result.outcome is Outcome.INCONCLUSIVE
