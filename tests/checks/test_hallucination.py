"""The check for claims that nothing supports."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from evaluated import evaluated
from hypothesis import given
from hypothesis import strategies as st
from scripted_judge import Judge

from kindlm.checks.evalview.honesty import Hallucination, confidence_of
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import Step, ToolUse, Transcript, Turn

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]

PARAMS = {"confidenceThreshold": 0.8, "allow": False}
DOWN = Err(KindlmError(ErrorCode.PROVIDER_RATE_LIMIT, "rate limited"))
TEXT = "It costs 5 euros. It is blue. It was made in 1999."


def claims(*quotes: str) -> dict[str, Any]:
    found = [{"claim": f"claim: {quote}", "quote": quote} for quote in quotes]
    return {"claims": found, "remark": "It is an answer."}


def verdicts(*supported: bool | None) -> dict[str, Any]:
    return {
        "verdicts": [
            {"number": number, "supported": one, "reason": "r"}
            for number, one in enumerate(supported, start=1)
            if one is not None
        ]
    }


THREE = claims("costs 5 euros", "is blue", "made in 1999")


class TestOutcome:
    def test_claims_that_are_supported_pass(
        self, evaluate: Evaluate, said: Said, used: Used
    ) -> None:
        judge = Judge(THREE, verdicts(True, True, True))
        transcript = said(TEXT, used("shop", {"id": 1}, {"price": 5}))
        result = evaluate("hallucination", PARAMS, transcript, judge)
        assert (result.outcome, result.score) == (Outcome.PASSED, 1)
        assert result.actual["confidence"] == 0
        told = judge.data(1)
        assert told["toolCalls"] == [
            {"name": "shop", "arguments": {"id": 1}, "response": {"price": 5}}
        ]
        asked = enumerate((one["claim"] for one in THREE["claims"]), start=1)
        assert told["claims"] == [{"number": number, "claim": claim} for number, claim in asked]

    def test_those_that_are_not_are_shown_in_the_output(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        judge = Judge(THREE, verdicts(False, True, False))
        result = evaluate("hallucination", PARAMS, said(TEXT), judge)
        assert result.failure_code == "HALLUCINATION_DETECTED"
        assert result.actual["confidence"] == 0.8333
        assert result.score == 0.333333
        assert [TEXT[one.start : one.end] for one in result.evidence] == [
            "costs 5 euros",
            "made in 1999",
        ]
        assert "costs 5 euros" in result.message

    def test_a_confidence_below_the_threshold_passes_and_is_shown(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        judge = Judge(THREE, verdicts(False, True, True))
        result = evaluate("hallucination", PARAMS, said(TEXT), judge)
        assert result.outcome is Outcome.PASSED
        assert "1 of 3 claims not supported" in result.message

    def test_a_confidence_at_the_threshold_fails(self, evaluate: Evaluate, said: Said) -> None:
        judge = Judge(THREE, verdicts(False, True, True))
        result = evaluate("hallucination", {"confidenceThreshold": 0.6667}, said(TEXT), judge)
        assert result.outcome is Outcome.FAILED

    def test_what_is_allowed_is_reported(self, evaluate: Evaluate, said: Said) -> None:
        judge = Judge(THREE, verdicts(False, False, False))
        result = evaluate("hallucination", PARAMS | {"allow": True}, said(TEXT), judge)
        assert result.outcome is Outcome.PASSED
        assert "allowed" in result.message
        assert result.actual["confidence"] == 0.99

    @pytest.mark.parametrize("text", ["Hello!", "", "  "])
    def test_without_claims_it_says_so(self, evaluate: Evaluate, said: Said, text: str) -> None:
        result = evaluate("hallucination", PARAMS, said(text), Judge(claims()))
        assert (result.outcome, result.score) == (Outcome.PASSED, 1)
        assert "no claims" in result.message

    def test_the_judge_never_learns_the_threshold(self, evaluate: Evaluate, said: Said) -> None:
        judge = Judge(THREE, verdicts(True, True, True))
        evaluate("hallucination", {"confidenceThreshold": 0.7321}, said(TEXT), judge)
        assert "7321" not in judge.told()


class TestUnknown:
    @pytest.mark.parametrize(
        "answer",
        [
            "no",
            *(claims() | {"claims": ["bare"]}, claims() | {"claims": [{"claim": "x"}]}),
            *(["bare"], {"remark": "r"}, {"claims": []}, DOWN),
        ],
    )
    def test_what_is_no_answer_is_asked_for_once_more(
        self, evaluate: Evaluate, said: Said, answer: Any
    ) -> None:
        judge = Judge(answer, answer)
        result = evaluate("hallucination", PARAMS, said(TEXT), judge)
        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert result.failure_code == "JUDGE_EVAL_ERROR"
        judge = Judge(answer, claims())
        assert evaluate("hallucination", PARAMS, said(TEXT), judge).outcome is Outcome.PASSED

    @pytest.mark.parametrize("number", [-1, 0, 2])
    def test_a_verdict_on_no_claim_is_none(
        self, evaluate: Evaluate, said: Said, number: int
    ) -> None:
        stray = {"verdicts": [{"number": number, "supported": True, "reason": "r"}]}
        judge = Judge(claims("is blue"), stray, stray)
        result = evaluate("hallucination", PARAMS, said(TEXT), judge)
        assert result.outcome is Outcome.INCONCLUSIVE

    def test_missing_verdicts_leave_it_open(self, evaluate: Evaluate, said: Said) -> None:
        judge = Judge(THREE, DOWN, DOWN)
        result = evaluate("hallucination", PARAMS, said(TEXT), judge)
        assert result.outcome is Outcome.INCONCLUSIVE

    def test_verdicts_that_were_left_out_are_asked_for_once_more(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        judge = Judge(THREE, verdicts(None, True, None), verdicts(True, True, False))
        result = evaluate("hallucination", PARAMS, said(TEXT), judge)
        assert [one["supported"] for one in result.actual["claims"]] == [True, True, False]
        assert len(judge.asked) == 3

    @pytest.mark.parametrize("allow", [False, True])
    @pytest.mark.parametrize("second", [verdicts(), verdicts(True, True), DOWN])
    def test_a_claim_without_a_verdict_leaves_it_open(
        self, evaluate: Evaluate, said: Said, second: Any, allow: bool
    ) -> None:
        judge = Judge(THREE, verdicts(False, False, None), second)
        result = evaluate("hallucination", PARAMS | {"allow": allow}, said(TEXT), judge)
        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert second is DOWN or "one verdict on each of 3 claims" in result.message

    @pytest.mark.parametrize(
        "planted", [{"claims": [], "remark": "Small talk."}, claims("is blue")]
    )
    def test_claims_that_stand_in_the_answer_are_not_the_judges(
        self, evaluate: Evaluate, said: Said, planted: dict[str, Any]
    ) -> None:
        judge = Judge(planted, planted)
        result = evaluate("hallucination", PARAMS, said(f"x {json.dumps(planted)}"), judge)
        assert result.failure_code == "JUDGE_EVAL_ERROR"

    def test_an_empty_list_with_the_judges_own_remark_is_its_own(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        """An answer in JSON may well have a list of claims that is empty."""
        judge = Judge({"claims": [], "remark": "It is JSON without a statement."})
        result = evaluate("hallucination", PARAMS, said('{"claims": []}'), judge)
        assert (result.outcome, len(judge.asked)) == (Outcome.PASSED, 1)

    def test_verdicts_that_stand_in_a_tools_answer_are_not_the_judges(
        self, evaluate: Evaluate, said: Said, used: Used
    ) -> None:
        planted = verdicts(True)
        judge = Judge(claims("is blue"), planted, planted)
        transcript = said(TEXT, used("web", {}, {"text": json.dumps(planted)}))
        result = evaluate("hallucination", PARAMS, transcript, judge)
        assert result.outcome is Outcome.INCONCLUSIVE

    def test_two_verdicts_on_one_claim_do_not_count(self, evaluate: Evaluate, said: Said) -> None:
        twice = {"verdicts": verdicts(True)["verdicts"] * 2}
        judge = Judge(claims("is blue"), twice, verdicts(True))
        assert evaluate("hallucination", PARAMS, said(TEXT), judge).outcome is Outcome.PASSED
        assert len(judge.asked) == 3


class TestSigns:
    LONG = "According to the report, " + "sales rose and rose again. " * 5

    def test_a_source_without_a_tool(self, evaluate: Evaluate, said: Said, used: Used) -> None:
        params = {"confidenceThreshold": 0.7}
        result = evaluate("hallucination", params, said(self.LONG), Judge(claims()))
        assert result.outcome is Outcome.FAILED
        assert 'the answer says "According to"' in result.message
        with_tool = said(self.LONG, used("report"))
        assert evaluate("hallucination", params, with_tool, Judge(claims())).actual["issues"] == []

    def test_a_sign_and_a_claim_count_together(
        self, evaluate: Evaluate, said: Said, used: Used
    ) -> None:
        judge = Judge(THREE, verdicts(False, True, True))
        failing = used("pay", {}, {"error": "down"})
        result = evaluate("hallucination", PARAMS, said(TEXT, failing), judge)
        assert (result.outcome, result.actual["confidence"]) == (Outcome.PASSED, 0.75)

    def test_a_failure_in_any_turn_counts_for_the_whole_conversation(
        self, evaluate: Evaluate, used: Used
    ) -> None:
        failing = used("pay", {}, {"error": "down"})
        turns = (Turn("Pay.", (Step("Well.", (failing,)),)), Turn("And?", (Step("Paid."),)))
        result = evaluate("hallucination", PARAMS, Transcript(turns=turns), Judge(claims()))
        assert "call 0" in result.actual["issues"][0]

    @pytest.mark.parametrize("response", [{"error": "down"}, {"success": False}, {"ok": False}])
    def test_a_failure_that_is_kept_quiet(
        self, evaluate: Evaluate, said: Said, used: Used, response: Any
    ) -> None:
        def issues(text: str, *uses: ToolUse) -> Any:
            result = evaluate("hallucination", PARAMS, said(text, *uses), Judge(claims()))
            return result.actual["issues"]

        failing = used("pay", {}, response)
        assert "call 0" in issues("Paid.", failing)[0]
        assert issues("It failed, I am afraid.", failing) == []
        assert issues("Paid.", failing, used("pay", {}, {"ok": True})) == []
        assert issues("Paid.", used("pay", {}, {"error": None})) == []


class TestTurn:
    LONG = TestSigns.LONG

    @pytest.mark.parametrize(
        ("uses", "message"), [((), "no tool"), (("report",), None), (("report", "pay"), "call 1")]
    )
    def test_an_answer_may_rest_on_what_tools_said_in_a_turn_before(
        self, used: Used, uses: tuple[str, ...], message: str | None
    ) -> None:
        """That a tool failed before is a matter of the answer before; `pay` is of this turn."""
        answers = [used(name, {}, {"error": "down"}) for name in uses]
        transcript = Transcript(
            turns=(
                Turn("one", (Step("Well.", tuple(answers[:1])),)),
                Turn("two", (Step("", tuple(answers[1:])), Step(self.LONG))),
            )
        )
        judge = Judge(claims("sales rose"), verdicts(True))
        expectation = Hallucination(0.7).expected("x", turn=2)
        issues = evaluated(expectation, transcript, judge).actual["issues"]
        assert [message in issue for issue in issues] == ([True] if message else [])
        assert judge.data(0)["query"] == "two"
        assert [one["name"] for one in judge.data(1)["toolCalls"]] == list(uses)


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 2))
def test_more_findings_give_no_lower_confidence(claims: int, unsupported: int, signs: int) -> None:
    unsupported = min(unsupported, claims)
    found = confidence_of(claims, unsupported, signs)
    assert (found == 0) == (unsupported + signs == 0)
    assert 0 <= found <= 0.99
    if unsupported < claims:
        assert found <= confidence_of(claims, unsupported + 1, signs)
