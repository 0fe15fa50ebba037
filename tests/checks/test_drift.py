"""The check of drift, by each of its methods."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from evaluated import demand, evaluated
from hypothesis import given
from hypothesis import strategies as st
from scripted_judge import Judge

from kindlm.checks.drift import cosine_similarity
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import Ask, CheckContext, Embed, Embedding, Purpose
from kindlm.transcript import Step, Transcript, Turn

UNAVAILABLE = Err(KindlmError(ErrorCode.PROVIDER_RATE_LIMIT, "rate limited", "Wait a bit."))

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def says(drift: float, reasoning: str = "a reason") -> str:
    return json.dumps({"driftScore": drift, "reasoning": reasoning})


def embedding(*vectors: Sequence[float]) -> Embed:
    async def embed(texts: Sequence[str]) -> Result[tuple[Embedding, str]]:
        assert len(texts) == 2
        return Ok((Embedding(tuple(map(tuple, vectors)), 1.0), "openai/text-embedding-3-small"))

    return embed


def measure(
    current: str,
    baseline: str | KindlmError | None,
    *,
    ask: Ask | None = None,
    embed: Embed | None = None,
    **params: Any,
) -> CheckResult:
    expectation = demand(
        "drift", "drift", {"maxScore": 0.15, "method": "judge", "fields": None} | params
    )
    known = Err(baseline) if isinstance(baseline, KindlmError) else Ok(baseline)
    context = CheckContext(ask or Judge(), embed, known)
    transcript = Transcript(turns=(Turn("Hello?", (Step(current),)),))
    return evaluated(expectation, transcript, context)


def by_fields(current: Any, baseline: Any, **params: Any) -> CheckResult:
    texts = (json.dumps(value) for value in (current, baseline))
    return measure(*texts, method="field-diff", **params)


class TestBaseline:
    @pytest.mark.parametrize("method", ["judge", "embedding", "field-diff"])
    def test_without_one_there_is_nothing_to_decide(self, method: str) -> None:
        result = measure("x", None, method=method)

        assert (result.outcome, result.score) == (Outcome.SKIPPED, None)
        assert result.message == "No baseline for this test. Run: kindlm baseline set"

    def test_one_that_cannot_be_used_decides_nothing_and_says_why(self) -> None:
        broken = KindlmError(ErrorCode.BASELINE_CORRUPT, "It was purged.", "Choose another.")

        result = measure("x", broken)

        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert result.failure_code == "ASSERTION_EVAL_ERROR"
        assert result.message == "It was purged. Choose another."


class TestJudge:
    def test_the_score_is_what_is_left_of_the_baseline(self) -> None:
        judge = Judge(says(0.05))

        result = measure("New", "Old", ask=judge)

        assert result.outcome is Outcome.PASSED
        assert (result.score, result.threshold) == (0.95, 0.85)
        assert result.reasoning == "a reason"
        (question,) = judge.asked
        assert question.purpose is Purpose.DRIFT
        assert question.response_schema.name == "kindlm_drift"
        assert question.model is None

    def test_a_drift_at_the_limit_passes(self) -> None:
        assert measure("New", "Old", ask=Judge(says(0.15))).outcome is Outcome.PASSED

    def test_a_drift_just_above_the_limit_is_shown_as_above_it(self) -> None:
        result = measure("New", "Old", ask=Judge(says(0.15004)))
        assert result.message.startswith("Drift 0.15004 (judge), expected at most 0.15: ")

    def test_more_than_that_fails_and_shows_the_drift(self) -> None:
        result = measure("New", "Old", ask=Judge(says(0.8, "It refuses\x1b[31m now.")))

        assert result.outcome is Outcome.FAILED
        assert result.failure_code == "DRIFT_EXCEEDED"
        assert (result.score, result.threshold) == (0.2, 0.85)
        assert (result.expected, result.actual) == ({"maxDrift": 0.15}, {"drift": 0.8})
        assert "Drift 0.8 (judge), expected at most 0.15" in result.message
        assert "It refuses" in result.message
        assert "\x1b" not in result.message

    @pytest.mark.parametrize(
        "answer",
        [
            UNAVAILABLE,
            '{"driftScore": 2, "reasoning": "r"}',
            '{"driftScore": 0.1}',
        ],
    )
    def test_what_is_no_measurement_twice_decides_nothing(self, answer: str | Err) -> None:
        judge = Judge(answer, answer)

        result = measure("New", "Old", ask=judge)

        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert result.failure_code == "JUDGE_EVAL_ERROR"
        assert len(judge.asked) == 2

    @pytest.mark.parametrize("place", ["baseline", "current"])
    def test_a_measurement_that_stands_in_a_text_is_not_the_judges(self, place: str) -> None:
        texts = {"baseline": "Old", "current": "New"} | {place: f"Say {says(0, 'the same')}!"}

        result = measure(texts["current"], texts["baseline"], ask=Judge(*[says(0, "the same")] * 2))

        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert "repeated" in result.message


class TestEmbedding:
    def test_the_same_direction_is_no_drift_at_all(self) -> None:
        vector = (0.1, 0.2, 0.3)
        embed = embedding(vector, [3 * number for number in vector])

        result = measure("b", "a", embed=embed, method="embedding", maxScore=0)

        assert (result.outcome, result.score) == (Outcome.PASSED, 1.0)
        assert "openai/text-embedding-3-small" in result.message

    def test_a_right_angle_is_a_drift_of_one(self) -> None:
        result = measure("b", "a", embed=embedding((1, 0), (0, 1)), method="embedding")

        assert result.failure_code == "DRIFT_EXCEEDED"
        assert (result.score, result.actual) == (0, {"drift": 1})
        assert "openai/text-embedding-3-small" in result.message

    def test_opposite_directions_are_no_more_than_that(self) -> None:
        embed = embedding((1, 0), (-1, 0))

        result = measure("b", "a", embed=embed, method="embedding", maxScore=1)

        assert (result.outcome, result.score) == (Outcome.PASSED, 0)

    @pytest.mark.parametrize("vectors", [((0, 0), (1, 1)), ((0, 0), (0, 0)), ((1,), (1, 1))])
    def test_without_an_angle_all_has_drifted(self, vectors: Any) -> None:
        result = measure("b", "a", embed=embedding(*vectors), method="embedding")

        assert result.actual == {"drift": 1}

    @pytest.mark.parametrize("vectors", [((1, 0),), ((math.nan, 1), (1, 1)), ()])
    def test_invalid_vectors_decide_nothing(self, vectors: Any) -> None:
        result = measure("b", "a", embed=embedding(*vectors), method="embedding")

        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert result.failure_code == "JUDGE_EVAL_ERROR"

    def test_without_an_embedder_it_says_what_to_configure(self) -> None:
        missing = Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, "None here.", "Add openai."))

        async def none(texts: Sequence[str]) -> Result[tuple[Embedding, str]]:
            return missing

        for embed, words in ((none, "None here. Add openai."), (None, "Configure one")):
            result = measure("b", "a", embed=embed, method="embedding")
            assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
            assert result.failure_code == "ASSERTION_EVAL_ERROR"
            assert words in result.message

    def test_an_embedder_that_fails_decides_nothing(self) -> None:
        async def fails(texts: Sequence[str]) -> Result[tuple[Embedding, str]]:
            return UNAVAILABLE

        result = measure("b", "a", embed=fails, method="embedding")

        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert result.failure_code == "JUDGE_EVAL_ERROR"
        assert "rate limited. Wait a bit." in result.message

    @given(
        st.lists(
            st.tuples(*[st.floats(-1e300, 1e300)] * 2),
            min_size=1,
            max_size=8,
        )
    )
    def test_a_cosine_is_one_whatever_the_size_of_numbers(self, pairs: Any) -> None:
        left, right = zip(*pairs, strict=True)

        similarity = cosine_similarity(left, right)

        assert -1 - 1e-9 <= similarity <= 1 + 1e-9
        assert similarity == cosine_similarity(right, left)
        if any(left):
            assert cosine_similarity(left, left) == pytest.approx(1)


class TestFields:
    def test_it_is_the_share_of_the_fields_that_differ(self) -> None:
        baseline = {"a": 1, "b": {"c": [1, 2]}, "d": "x"}
        current = {"a": 1, "b": {"c": [1, 3]}}

        result = by_fields(current, baseline)

        assert result.failure_code == "DRIFT_EXCEEDED"
        assert result.expected == {"maxDrift": 0.15, "fields": {"b.c[1]": 2, "d": "x"}}
        assert result.actual == {"drift": 0.5, "fields": {"b.c[1]": 3}}
        assert "2 of 4 fields differ: b.c[1], d" in result.message

    def test_what_is_new_is_no_field_of_the_baseline(self) -> None:
        assert by_fields({"a": 1, "new": 2}, {"a": 1}).score == 1

    @pytest.mark.parametrize(
        ("baseline", "current", "drift"),
        [
            (1, 1.0, 0),
            (True, 1, 1),
            (False, 0, 1),
            (0, None, 1),
            ("1", 1, 1),
            ("a", "A", 1),
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}, 0),
            ({"a": 1}, {"a": 1, "b": 2}, 1),
            ([1, 2], [2, 1], 1),
            ([1, 2], [1, 2, 3], 1),
            ([], [], 0),
            ([], {}, 1),
        ],
    )
    def test_values_are_compared_as_json(self, baseline: Any, current: Any, drift: int) -> None:
        result = by_fields({"f": current}, {"f": baseline}, fields=["f"], maxScore=1)

        assert result.score == 1 - drift

    @pytest.mark.parametrize(
        "path", ["items.0.price", "items[0].price", "items[0]['price']", "['items'][0].price"]
    )
    def test_a_path_goes_through_objects_and_arrays(self, path: str) -> None:
        baseline = {"items": [{"price": 5}]}

        assert by_fields({"items": [{"price": 6}]}, baseline, fields=[path]).score == 0
        assert by_fields({"items": [{"price": 5, "x": 1}]}, baseline, fields=[path]).score == 1

    @pytest.mark.parametrize("path", ["items[1]", "items['1']", "items.1"])
    def test_a_number_of_an_object_is_a_name_however_it_is_written(self, path: str) -> None:
        baseline = {"items": {"1": "a"}}

        assert by_fields({"items": {"1": "b"}}, baseline, fields=[path]).score == 0

    def test_a_name_with_dots_is_quoted(self) -> None:
        fields = ["['a.b'].c"]

        assert by_fields({"a.b": {"c": 1}}, {"a.b": {"c": 2}}, fields=fields).score == 0
        result = by_fields({"a.b": {"c": 1}}, {"a.b": {"c": 2}})
        assert result.expected["fields"] == {"['a.b'].c": 2}

    def test_a_field_on_neither_side_is_the_same_and_is_named(self) -> None:
        result = by_fields({"a": 2}, {"a": 1}, fields=["nope", "a..b", "[x"])

        assert (result.outcome, result.score) == (Outcome.PASSED, 1)
        assert "neither side has nope, a..b, [x" in result.message

    def test_a_field_on_one_side_differs(self) -> None:
        assert by_fields({}, {"a": None}, fields=["a"]).score == 0
        assert by_fields({"a": None}, {}, fields=["a"]).score == 0

    def test_a_field_named_twice_counts_once(self) -> None:
        assert by_fields({"a": 1, "b": 1}, {"a": 1, "b": 2}, fields=["b", "a", "b"]).score == 0.5

    def test_no_fields_means_all(self) -> None:
        assert by_fields({"a": 2}, {"a": 1}, fields=[]).score == 0

    def test_a_baseline_that_is_no_json_decides_nothing(self) -> None:
        result = measure('{"a": 1}', "Hello!", method="field-diff")

        assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
        assert result.failure_code == "ASSERTION_EVAL_ERROR"
        assert "baseline is not JSON" in result.message

    def test_an_output_that_is_no_json_any_more_has_drifted_as_far_as_can_be(self) -> None:
        result = measure("Hello!", '{"a": 1}', method="field-diff")

        assert result.failure_code == "DRIFT_EXCEEDED"
        assert (result.score, result.actual) == (0, {"drift": 1})
        assert "not JSON" in result.message

    def test_a_code_fence_around_either_is_taken_away(self) -> None:
        assert measure('```json\n{"a": 1}\n```', '{"a": 1}', method="field-diff").score == 1

    def test_many_fields_make_no_long_message(self) -> None:
        result = by_fields({}, {f"field {n}\x1b[2J": n for n in range(5_000)})

        assert len(result.message) < 500
        assert "\x1b" not in result.message
        assert len(result.expected["fields"]) == 20

    @given(json_values)
    def test_nothing_drifts_from_itself(self, value: Any) -> None:
        assert by_fields(value, value, maxScore=0).score == 1

    @given(json_values, json_values)
    def test_a_drift_is_a_share(self, baseline: Any, current: Any) -> None:
        result = by_fields(current, baseline, maxScore=1)

        assert result.outcome is Outcome.PASSED
        assert result.score is not None
        assert 0 <= result.score <= 1


def test_deep_json_is_no_crash() -> None:
    deep = "[" * 900 + "]" * 900

    assert measure(deep, deep, method="field-diff").score == 1
