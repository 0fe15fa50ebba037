"""The check that asks a model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from evaluated import demand, evaluated
from hypothesis import given
from hypothesis import strategies as st
from scripted_judge import Judge

from kindlm.checks.judge import READY, judgement
from kindlm.checks.judge import Judge as Section
from kindlm.checks.judging import Choice, described_form
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import Purpose, Question
from kindlm.transcript import FinishReason, Step, ToolCall, ToolUse, Transcript, Turn

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]

PARAMS = {"criteria": "Is helpful", "minScore": 0.7, "model": None, "rubric": None}
GOOD = '{"score": 0.9, "reasoning": "clear"}'
UNAVAILABLE = Err(KindlmError(ErrorCode.PROVIDER_RATE_LIMIT, "rate limited", "Wait a minute"))

any_text = st.text(st.characters(exclude_categories=()))
hostile_text = st.lists(
    any_text
    | st.sampled_from(
        ["<<<KINDLM-DATA-", "0a1b2c3d", ">>>", "\n", "<", "\u2028", "\u200b", "\U000e0041", "\\"]
    ),
).map("".join)


def data_of(question: Question) -> Any:
    """Read a question the way its system text says."""
    opening, body, closing = question.user.splitlines()
    token = opening.removeprefix("<<<KINDLM-DATA-")
    assert closing == f"KINDLM-DATA-{token}>>>"
    return json.loads(body)


def ask_about(transcript: Transcript, **params: Any) -> Question:
    judge = Judge(GOOD)
    expectation = demand("judge", "label", PARAMS | params)
    evaluated(expectation, transcript, judge)
    return judge.asked[0]


def judgement_in(text: str) -> dict[str, Any]:
    return judgement().read(text)


def joined(text: str) -> str:
    """Join halves of surrogate pairs: as code points they are the character they make up."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class TestOutcome:
    def test_a_score_at_the_threshold_passes(self, evaluate: Evaluate, said: Said) -> None:
        judge = Judge('{"score": 0.7, "reasoning": "just so"}')

        result = evaluate("judge", PARAMS, said("Hi"), judge)

        assert result.outcome is Outcome.PASSED
        assert (result.score, result.threshold) == (0.7, 0.7)
        assert result.reasoning == "just so"
        assert len(judge.asked) == 1

    def test_a_lower_score_fails_with_the_judges_reason(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        judge = Judge('{"score": 0.25, "reasoning": "It\\u001b[31m insults."}')

        result = evaluate("judge", PARAMS, said("Hi"), judge)

        assert result.failure_code == "JUDGE_BELOW_THRESHOLD"
        assert result.score == 0.25
        assert result.reasoning == "It\x1b[31m insults."
        assert "insults" in result.message
        assert result.message.isprintable()

    def test_a_draft_in_an_answer_that_was_cut_off_is_no_judgement(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        judge = Judge(
            *[f"{GOOD} Wait. Looking at it again, the"] * 2, ending=FinishReason.MAX_TOKENS
        )

        result = evaluate("judge", PARAMS, said("Hi"), judge)

        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert "it was cut off at the limit of its tokens" in result.message

    @pytest.mark.parametrize("first", ["I cannot say", "", UNAVAILABLE])
    def test_an_invalid_answer_is_asked_for_once_more(
        self, evaluate: Evaluate, said: Said, first: str | Err
    ) -> None:
        judge = Judge(first, GOOD)

        result = evaluate("judge", PARAMS, said("Hi"), judge)

        assert result.outcome is Outcome.PASSED
        assert judge.asked[0].user != judge.asked[1].user

    @pytest.mark.parametrize(
        ("second", "reason"),
        [("no idea", "no judgement"), (UNAVAILABLE, "rate limited. Wait a minute")],
    )
    def test_after_the_second_one_it_is_unknown(
        self, evaluate: Evaluate, said: Said, second: str | Err, reason: str
    ) -> None:
        judge = Judge("hm", second, GOOD)

        result = evaluate("judge", PARAMS, said("Hi"), judge)

        assert result.outcome is Outcome.INCONCLUSIVE
        assert result.failure_code == "JUDGE_EVAL_ERROR"
        assert result.score is None
        assert result.threshold == 0.7
        assert reason in result.message
        assert len(judge.asked) == 2


def says(score: float, reasoning: str = "r") -> str:
    return json.dumps({"score": score, "reasoning": reasoning})


class TestPasses:
    PARAMS: ClassVar[dict[str, Any]] = PARAMS | {"passes": 3}

    @pytest.mark.parametrize(
        ("scores", "median"),
        [
            ([0.2], 0.2),
            ([0.9, 0.1, 0.7], 0.7),
            ([0.9, 0.5], 0.7),
            ([0.1, 0.2], 0.15),
            ([1, 0.6, 0.8, 0], 0.7),
        ],
    )
    def test_the_score_is_the_median(
        self, evaluate: Evaluate, said: Said, scores: list[float], median: float
    ) -> None:
        judge = Judge(*[says(score) for score in scores])

        result = evaluate("judge", PARAMS | {"passes": len(scores)}, said("Hi"), judge)

        assert result.score == median
        assert (result.outcome is Outcome.PASSED) == (median >= 0.7)
        assert len(judge.asked) == len(scores)

    def test_every_pass_is_a_call_of_its_own_and_is_reported(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        judge = Judge(says(0.2, "rude"), says(0.9, "kind"), says(0.5, "curt"))

        result = evaluate("judge", self.PARAMS, said("Hi"), judge)

        assert len({question.user for question in judge.asked}) == 3
        assert result.failure_code == "JUDGE_BELOW_THRESHOLD"
        assert "curt" in result.message
        assert "0.2, 0.9, 0.5" in result.message
        assert result.reasoning is not None
        assert result.reasoning.splitlines() == [
            "Pass 1: 0.2. rude",
            "Pass 2: 0.9. kind",
            "Pass 3: 0.5. curt",
        ]

    def test_a_pass_without_a_judgement_is_asked_for_once_more(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        judge = Judge(says(0.9), "hm", says(0.8), UNAVAILABLE, says(0.1))

        result = evaluate("judge", self.PARAMS, said("Hi"), judge)

        assert result.score == 0.8
        assert len(judge.asked) == 5

    def test_a_majority_of_passes_decides(self, evaluate: Evaluate, said: Said) -> None:
        judge = Judge(says(0.9), "hm", "hm", says(0.7))

        result = evaluate("judge", self.PARAMS, said("Hi"), judge)

        assert result.outcome is Outcome.PASSED
        assert result.score == 0.8
        assert result.reasoning is not None
        first, lost, last = result.reasoning.splitlines()
        assert (first, last) == ("Pass 1: 0.9. r", "Pass 3: 0.7. r")
        assert lost.startswith("Pass 2: no score. The judge gave no judgement: ")

    @pytest.mark.parametrize(
        ("passes", "answers"),
        [(3, [says(0.9), *["hm"] * 4]), (2, [says(0.9), "hm", "hm"]), (2, ["hm"] * 4)],
    )
    def test_half_of_them_or_less_decides_nothing(
        self, evaluate: Evaluate, said: Said, passes: int, answers: list[str]
    ) -> None:
        result = evaluate("judge", PARAMS | {"passes": passes}, said("Hi"), Judge(*answers))

        assert result.outcome is Outcome.INCONCLUSIVE
        assert result.failure_code == "JUDGE_EVAL_ERROR"
        assert result.score is None
        assert f"of {passes} passes" in result.message


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "score"),
        [
            ('{"score": 0, "reasoning": ""}', 0.0),
            ('{"score": 1, "reasoning": "r"}', 1.0),
            (' \n{"reasoning": "r", "score": 5e-1}\n', 0.5),
            ('```json\n{"score": 0.85, "reasoning": "r"}\n```', 0.85),
            ('{"score": 0.85, "reasoning": "r", "confidence": 0.1}', 0.85),
            ('Sure! {"score": 0.8, "reasoning": "r"} Hope it helps!', 0.8),
            ('<think>Not {"score": 1}.</think>{"score": 0.8, "reasoning": "r"}', 0.8),
        ],
    )
    def test_a_judgement_is_one_json_object(self, text: str, score: float) -> None:
        assert judgement_in(text)["score"] == score

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "0.9",
            "[0.9]",
            "null",
            '{"score": 0.9, "reasoning": "a"} {"score": 0.1, "reasoning": "b"}',
            '{"score": 0.1, "score": 0.9, "reasoning": "r"}',
            '{"score": "0.9", "reasoning": "r"}',
            '{"score": true, "reasoning": "r"}',
            '{"score": null, "reasoning": "r"}',
            '{"score": NaN, "reasoning": "r"}',
            '{"score": 1e999, "reasoning": "r"}',
            '{"score": 1.0000001, "reasoning": "r"}',
            '{"score": -0.1, "reasoning": "r"}',
            '{"score": 85, "reasoning": "r"}',
            '{"score": 0.9}',
            '{"score": 0.9, "reasoning": ["r"]}',
            '{"reasoning": "r"}',
            '{"score": 1' + "0" * 400 + ', "reasoning": "r"}',
            '{"score": 1' + "0" * 10_000 + ', "reasoning": "r"}',
            '{"score": ' + "[" * 100_000,
        ],
    )
    def test_anything_else_is_not_one(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            judgement_in(text)


class TestQuestion:
    def test_it_shows_the_whole_conversation(self, used: Used) -> None:
        first = Turn("Where is it?", (Step("", (used("lookup", {"id": 1}, {"at": "sea"}),)),))
        second = Turn("Again?", (Step("At sea.", ()), Step("", (used("x", malformed="{"),))))

        data = data_of(ask_about(Transcript("secret rules", (first, second)), criteria="Is kind"))

        assert data["criteria"] == "Is kind"
        assert data["rubric"]
        call = {"name": "lookup", "arguments": {"id": 1}, "response": {"at": "sea"}}
        malformed = {"name": "x", "arguments": "{", "response": None}
        assert data["transcript"] == {
            "messages": [
                {"role": "user", "text": "Where is it?"},
                {"role": "assistant", "text": "", "toolCalls": [call]},
                {"role": "user", "text": "Again?"},
                {"role": "assistant", "text": "At sea."},
                {"role": "assistant", "text": "", "toolCalls": [malformed]},
            ],
            "finalText": "",
        }

    def test_it_asks_the_model_for_structured_output(self) -> None:
        question = ask_about(Transcript(), rubric="strict", model="gpt")

        assert (question.purpose, question.model) == (Purpose.JUDGE, "gpt")
        assert data_of(question)["rubric"] == "strict"
        assert question.response_schema.name == "kindlm_judgement"
        assert question.response_schema.schema["required"] == ["score", "reasoning"]
        assert question.response_schema.schema["additionalProperties"] is False

    @pytest.mark.parametrize(
        ("words", "shown"),
        [("a", '"<a>"'), ("ab", '"<a or b>"'), ("abc", '"<a, b or c>"')],
    )
    def test_it_names_the_words_to_choose_from(self, words: str, shown: str) -> None:
        example, schema = described_form(Choice(tuple(words)))

        assert (example, schema["enum"]) == (shown, list(words))

    def test_it_never_shows_the_threshold(self, evaluate: Evaluate, said: Said) -> None:
        judge = Judge(GOOD)

        evaluate("judge", PARAMS | {"minScore": 0.637}, said("Hi"), judge)

        assert "637" not in judge.told()

    def test_only_the_boundary_differs_between_two_questions(self) -> None:
        first, second = (ask_about(Transcript()) for _ in range(2))

        boundary = re.compile(r"KINDLM-DATA-[0-9a-f]{8}")
        assert first.user != second.user
        assert boundary.sub("", first.user) == boundary.sub("", second.user)
        assert first.system == second.system

    @given(hostile_text, hostile_text, hostile_text)
    def test_data_comes_back_as_it_was_and_forges_no_boundary(
        self, text: str, argument: str, response: str
    ) -> None:
        use = ToolUse(ToolCall("1", text, {argument: argument}), [response], "x")
        transcript = Transcript(turns=(Turn(text, (Step(argument, (use,)),)),))

        question = ask_about(transcript, criteria=text)

        question.user.encode("utf-8")
        assert question.user.count("KINDLM-DATA") == 2
        assert question.user.count("<<<") == question.user.count(">>>") == 1
        assert data_of(question) == {
            "criteria": joined(text),
            "rubric": data_of(ask_about(Transcript()))["rubric"],
            "transcript": {
                "messages": [
                    {"role": "user", "text": joined(text)},
                    {
                        "role": "assistant",
                        "text": joined(argument),
                        "toolCalls": [
                            {
                                "name": joined(text),
                                "arguments": {joined(argument): joined(argument)},
                                "response": [joined(response)],
                            }
                        ],
                    },
                ],
                "finalText": joined(argument),
            },
        }


class TestReadyCriteria:
    @pytest.mark.parametrize("name", READY)
    def test_the_judge_sees_the_criterion_and_what_the_agent_knew(
        self, name: str, used: Used
    ) -> None:
        use = used("lookup", {"id": "A1"}, {"status": "lost"})
        seen = Transcript("Sell shoes.", (Turn("Where is A1?", (Step("", (use,)), Step("Lost."))),))
        question = ask_about(seen, criteria=None, ready=name, context="Refunds take 5 days.")
        data = data_of(question)

        assert (data["criteria"], data["rubric"]) == READY[name][:2]
        assert data["instructions"] == "Sell shoes."
        assert data["context"] == "Refunds take 5 days."
        assert '{"status": "lost"}' in json.dumps(data["transcript"])
        assert all(f'- "{member}"' in question.system for member in data)

    @pytest.mark.parametrize("text", ["", " \n"])
    def test_an_empty_answer_meets_none(self, evaluate: Evaluate, said: Said, text: str) -> None:
        for name in READY:
            result = evaluate("judge", {"ready": name, "minScore": 0.1}, said(text))
            assert (result.outcome, result.score) == (Outcome.FAILED, 0.0)

    def test_a_claim_is_not_judged_without_its_sources(self, evaluate: Evaluate) -> None:
        step = Step("It was lost.", reports_tools=False)
        seen = Transcript(turns=(Turn("Where is A1?", (step,)),))

        unknown = evaluate("judge", {"ready": "faithful"}, seen, Judge(GOOD))
        given = evaluate("judge", {"ready": "faithful", "context": "A1: lost"}, seen, Judge(GOOD))

        assert unknown.outcome is Outcome.INCONCLUSIVE
        assert given.outcome is Outcome.PASSED
        assert evaluate("judge", {"ready": "onTopic"}, seen, Judge(GOOD)).outcome is Outcome.PASSED

    @pytest.mark.parametrize(
        ("written", "means"),
        [("safe", "safe"), ("onTopic", "onTopic"), ("on-topik", ""), ("回答は丁寧である", None)],
    )
    def test_a_word_names_one_and_a_sentence_does_not(
        self, written: str, means: str | None
    ) -> None:
        assert Section.main_key(written) == ("criteria" if means is None else "ready")
        if means:
            assert Section.model_validate({"ready": written}).ready == means

    def test_a_criterion_of_ones_own_is_asked_as_ever(self, said: Said) -> None:
        assert data_of(ask_about(said("Hi"))).keys() == {"criteria", "rubric", "transcript"}
