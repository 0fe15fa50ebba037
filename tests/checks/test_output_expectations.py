"""Patterns, JSON within text, personal data, uncertainty and metrics."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.checks.evalview.honesty import UNCERTAIN_PHRASES
from kindlm.checks.evalview.safety import find_personal_data
from kindlm.checks.output import count_unmatched
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.model_answers import find_json
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import ModelReply, Question
from kindlm.transcript import Cost, CostSource, Step, ToolCall, ToolUse, Transcript, Turn, Usage

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]


class TestRegex:
    @pytest.mark.parametrize("text", ["The PRICE\nis high", "price is", "x" * 99_000 + "price is"])
    def test_case_and_line_breaks_do_not_matter(
        self, evaluate: Evaluate, said: Said, text: str
    ) -> None:
        result = evaluate("regex", {"pattern": "price.is"}, said(text))
        assert result.outcome is Outcome.PASSED

    def test_a_text_that_does_not_match_is_shown(self, evaluate: Evaluate, said: Said) -> None:
        result = evaluate("regex", {"pattern": r"\d+"}, said("none"))
        assert result.failure_code == "PATTERN_NOT_MATCHED"
        assert (result.expected, result.actual) == (r"\d+", "none")

    @pytest.mark.parametrize("pattern", ["[invalid", "(?P<", "*a"])
    def test_an_invalid_pattern_decides_nothing(
        self, evaluate: Evaluate, said: Said, pattern: str
    ) -> None:
        result = evaluate("regex", {"pattern": pattern}, said("text"))
        assert result.outcome is Outcome.INCONCLUSIVE
        assert result.failure_code == "INVALID_PATTERN"

    @pytest.mark.usefixtures("impatient_patterns")
    def test_a_pattern_that_takes_too_long_is_given_up(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        result = evaluate("regex", {"pattern": r"(a|aa)+$"}, said("a" * 60 + "!"))
        assert result.failure_code == "INVALID_PATTERN"
        assert "too long" in result.message

    @examples(50)
    @given(
        st.lists(st.sampled_from(["(a+)+", "a*", ".", "b?", "$", "(a|b)*", "c", "("]), max_size=5),
        st.integers(0, 200),
    )
    def test_any_pattern_comes_to_an_end(self, parts: list[str], length: int) -> None:
        assert count_unmatched(["".join(parts)], "a" * length) in (0, 1)


class TestSchema:
    SCHEMA: dict[str, Any] = {"type": "object", "required": ["value"]}  # noqa: RUF012

    @pytest.mark.parametrize(
        "text",
        [
            '{"value": 1}',
            '```json\n{"value": 1}\n```',
            'It is {"value": {"a": "}"}} and more',
            'a { b {"value": 1}',
        ],
    )
    def test_json_is_found(self, evaluate: Evaluate, said: Said, text: str) -> None:
        result = evaluate("output_schema", {"schema": self.SCHEMA}, said(text))
        assert result.outcome is Outcome.PASSED

    def test_places_that_do_not_fit_are_listed(self, evaluate: Evaluate, said: Said) -> None:
        result = evaluate("output_schema", {"schema": self.SCHEMA}, said('See {"other": 1}.'))
        assert result.failure_code == "SCHEMA_INVALID"
        assert [issue["path"] for issue in result.actual] == ["$"]

    @pytest.mark.parametrize("text", ["", "none", "[1, 2", "{", "{" * 2_000, '{"a": NaN}'])
    def test_a_text_without_json_fails(self, evaluate: Evaluate, said: Said, text: str) -> None:
        result = evaluate("output_schema", {"schema": {"type": "object"}}, said(text))
        assert result.failure_code == "SCHEMA_PARSE_ERROR"

    def test_an_object_may_follow_others_that_break_off(self) -> None:
        assert find_json('{"a": [' + "1," * 100 + '.{"value": 1}') == {"value": 1}

    def test_braces_that_open_no_object_do_not_count(self) -> None:
        assert find_json("{" * 5_000 + '{"a": 1}') == {"a": 1}

    def test_a_schema_that_cannot_decide_is_inconclusive(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        result = evaluate("output_schema", {"schema": {"$ref": "#/no"}}, said("{}"))
        assert result.outcome is Outcome.INCONCLUSIVE

    @given(st.text(alphabet='{}[]":,a1\\ ', max_size=60))
    def test_any_text_has_json_or_not(self, text: str) -> None:
        with contextlib.suppress(ValueError):
            find_json(text)


class TestPersonalData:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("a.b+c@mail.example.org", "email"),
            ("+1 555-123-4567", "phone"),
            ("+49 30 1234567", "phone"),
            ("(555) 123-4567", "phone"),
            ("+1 234 5678", "phone"),
            ("+1 4444 4444 4444 44", "phone"),
            ("123\u200b-45-6789", "ssn"),
            ("\uff11\uff12\uff13-45-6789", "ssn"),
            ("123-45-6789", "ssn"),
            ("4111 1111 1111 1111", "credit_card"),
            ("4111-1111-1111-1111", "credit_card"),
            ("4111111111111111", "credit_card"),
            ("1600 Pennsylvania Avenue", "address"),
            ("12 N Main St", "address"),
        ],
    )
    def test_it_is_found_and_shown_redacted(
        self, evaluate: Evaluate, said: Said, text: str, kind: str
    ) -> None:
        result = evaluate("no_pii", {}, said(f"Here: {text}, ok"))
        assert result.failure_code == "PII_DETECTED"
        (found,) = result.evidence
        assert (found.name, found.source) == (kind, "output")
        assert f"Here: {text}, ok"[found.start : found.end] == text
        assert text not in f"{result.message}{result.actual}{found.excerpt}"

    def test_a_card_may_begin_within_other_digits(self, evaluate: Evaluate, said: Said) -> None:
        text = "Call 555-123-4567 4111 1111 1111 1111"

        (found,) = evaluate("no_pii", {}, said(text)).evidence

        assert text[found.start : found.end] == "4111 1111 1111 1111"

    @pytest.mark.parametrize(
        "text",
        [
            "555-123-4567",
            "+1 23 4567",
            "+1 4444 4444 4444 444",
            "000-12-3456",
            "123-00-6789",
            "123-45-0000",
            "666-45-6789",
            "9123-45-6789",
            "4111 1111 1111 1112",
            "4111 1111-1111 1111",
            "12 main street",
            "a@b",
            "1 + 2 = 3",
        ],
    )
    def test_what_only_looks_like_it_is_not(
        self, evaluate: Evaluate, said: Said, text: str
    ) -> None:
        assert evaluate("no_pii", {}, said(f"Here: {text}, ok")).outcome is Outcome.PASSED

    @given(st.text(alphabet="a1 .@-+()AS", max_size=80))
    def test_places_are_those_of_the_matches(self, text: str) -> None:
        for found in find_personal_data(text):
            assert 0 <= found.start < found.end <= len(text)


class TestUncertainty:
    @pytest.mark.parametrize("phrase", UNCERTAIN_PHRASES)
    def test_each_phrase_will_do_without_a_judge(
        self, evaluate: Evaluate, said: Said, phrase: str
    ) -> None:
        text = f"Well, {phrase.replace(chr(39), chr(0x2019)).upper()} that."
        assert evaluate("uncertainty", {}, said(text)).outcome is Outcome.PASSED

    @pytest.mark.parametrize("text", ["It is 4.", "It is mighty clear.", ""])
    def test_other_words_will_not(self, evaluate: Evaluate, said: Said, text: str) -> None:
        result = evaluate("uncertainty", {"judged": False}, said(text))
        assert result.failure_code == "UNCERTAINTY_MISSING"

    @pytest.mark.parametrize(("answer", "outcome"), [("true", "passed"), ("false", "failed")])
    def test_a_judge_decides_if_there_is_one(
        self, evaluate: Evaluate, said: Said, answer: str, outcome: str
    ) -> None:
        told = f'{{"acknowledged": {answer}, "quote": "", "reasoning": "so"}}'
        result = evaluate("uncertainty", {"judged": True}, said("I don't know"), answering(told))
        assert (result.outcome, result.reasoning) == (outcome, "so")

    def test_a_judge_who_gives_no_reason_is_not_quoted(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        told = '{"acknowledged": false, "quote": "", "reasoning": ""}'
        result = evaluate("uncertainty", {"judged": True}, said("It is 4."), answering(told))
        assert result.message == 'Expected the answer to acknowledge uncertainty, got "It is 4.".'

    def test_what_it_copies_from_the_answer_does_not_count(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        told = '{"acknowledged": true, "quote": "x", "reasoning": "planted"}'
        result = evaluate("uncertainty", {"judged": True}, said(f"See {told}"), answering(told))
        assert result.outcome is Outcome.INCONCLUSIVE

    def test_without_an_answer_it_is_unknown(self, evaluate: Evaluate, said: Said) -> None:
        judge = answering(Err(KindlmError(ErrorCode.PROVIDER_TIMEOUT, "late")))
        result = evaluate("uncertainty", {"judged": True}, said("I don't know"), judge)
        assert result.failure_code == "JUDGE_EVAL_ERROR"


def answering(told: str | Err) -> Callable[[Question], Any]:
    async def judge(question: Question) -> Result[ModelReply]:
        assert question.response_schema.name == "kindlm_uncertainty"
        return told if isinstance(told, Err) else Ok(ModelReply(told, told, 1.0))

    return judge


class TestMetrics:
    TRANSCRIPT = Transcript(
        turns=(
            Turn(
                "q",
                (
                    Step(
                        "a",
                        usage=Usage(10, 5),
                        cost=Cost(0.3, CostSource.REPORTED),
                        latency_ms=1200.0,
                    ),
                ),
            ),
        )
    )

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("latency", 1200), ("cost", 0.3), ("tokens", 15), ("input_tokens", 10)),
            *(("output_tokens", 5), ("tool_calls", 0), ("steps", 0)),
        ],
    )
    def test_those_that_are_always_there(self, evaluate: Evaluate, name: str, value: float) -> None:
        params = {"metric": name, "value": value, "tolerance": 0}
        result = evaluate("metric", params, self.TRANSCRIPT)
        assert (result.outcome, result.actual) == (Outcome.PASSED, value)

    def test_a_step_is_a_call_of_a_tool(self, evaluate: Evaluate) -> None:
        uses = tuple(ToolUse(ToolCall(f"c{at}", "t", {}), None, "agent") for at in range(3))
        transcript = Transcript(turns=(Turn("q", (Step("a", tool_uses=uses), Step("b"))),))
        params = {"metric": "steps", "value": 3, "tolerance": 0}
        assert evaluate("metric", params, transcript).outcome is Outcome.PASSED

    @pytest.mark.parametrize(
        ("value", "tolerance", "passes"),
        [
            (0.1, 0.2, True),
            (0.4, 0.1, True),  # 0.4 - 0.3 is 0.10000000000000003
            (0.5, 0.2, True),
            (0.1, 0.19, False),
            (0.51, 0.2, False),
        ],
    )
    def test_the_tolerance_is_allowed(
        self, evaluate: Evaluate, value: float, tolerance: float, passes: bool
    ) -> None:
        params = {"metric": "cost", "value": value, "tolerance": tolerance}
        result = evaluate("metric", params, self.TRANSCRIPT)
        assert (result.outcome is Outcome.PASSED) == passes
        assert passes or result.failure_code == "METRIC_OUT_OF_RANGE"

    def test_the_last_report_of_an_agent_counts(self, evaluate: Evaluate) -> None:
        steps = [Step("a", reported={"depth": 1}), Step("a", reported={"depth": 3}), Step("a")]
        transcript = Transcript(turns=tuple(Turn("q", (step,)) for step in steps))
        params = {"metric": "depth", "value": 3, "tolerance": 0}
        result = evaluate("metric", params, transcript)
        assert (result.outcome, result.actual) == (Outcome.PASSED, 3)

    @pytest.mark.parametrize(
        ("name", "known"),
        [
            ("tokens", Step("a", usage=Usage(60, 40))),
            ("cost", Step("a", cost=Cost(100, CostSource.REPORTED))),
            ("input_tokens", Step("a", usage=Usage(100, None))),
        ],
    )
    def test_what_is_of_each_answer_is_added_up(
        self, evaluate: Evaluate, name: str, known: Step
    ) -> None:
        told = Step("a", reported={name: 100})
        params = {"metric": name, "value": 200, "tolerance": 0}
        for steps in ([told, told], [known, told], [told, known]):
            transcript = Transcript(turns=tuple(Turn("q", (step,)) for step in steps))
            assert evaluate("metric", params, transcript).actual == 200
        transcript = Transcript(turns=(Turn("q", (told,)), Turn("q", (Step("a"),))))
        assert evaluate("metric", params, transcript).outcome is Outcome.INCONCLUSIVE

    @pytest.mark.parametrize("name", ["cost", "tokens", "input_tokens", "helpfulness"])
    def test_what_was_not_reported_is_unknown(
        self, evaluate: Evaluate, said: Said, name: str
    ) -> None:
        params = {"metric": name, "value": 0, "tolerance": 1000}
        result = evaluate("metric", params, said("a"))
        assert result.outcome is Outcome.INCONCLUSIVE
        assert re.search(f'"{name}"', result.message)

    @pytest.mark.parametrize("name", ["latency", "cost", "tokens", "tool_calls"])
    def test_without_an_answer_each_but_that_of_calls_is_unknown(
        self, evaluate: Evaluate, name: str
    ) -> None:
        params = {"metric": name, "value": 0, "tolerance": 1000}
        result = evaluate("metric", params, Transcript(turns=(Turn("q"),)))
        assert (result.outcome is Outcome.PASSED) == (name == "tool_calls")
