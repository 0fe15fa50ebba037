"""Checks of tool calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kindlm.outcome import CheckResult, FailureCode, Outcome
from kindlm.transcript import Step, ToolUse, Transcript, Turn

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture
def transcript(used: Used) -> Transcript:
    """Two turns: look up A1 and B2 at once, then refund A1, then look up with broken arguments."""
    lookups = (
        used("lookup", {"id": "A1", "n": 1}, {"status": "delivered"}),
        used("lookup", {"id": "B2", "n": "x"}, "late"),
    )
    refund = used("refund", {"id": "A1", "amount": 49.99}, {"ok": True, "text": 'said "done"'})
    broken = used("lookup", malformed="{id: A1", response={"error": "no JSON"})
    return Transcript(
        turns=(
            Turn("first", (Step("", lookups), Step("found"))),
            Turn("second", (Step("", (refund,)), Step("", (broken,)), Step("done"))),
        )
    )


@pytest.mark.parametrize(
    "params",
    [
        {"tool": "lookup"},
        {"tool": "lookup", "argsMatch": {"id": "B2"}},
        {"tool": "lookup", "argsMatch": {"id": "B2"}, "order": 1},
        {"tool": "lookup", "argsSchema": SCHEMA},
        {"tool": "refund", "order": 2},
        {"tool": "refund", "argsMatch": {"amount": 49.99}, "responseContains": '"ok":true'},
        {"tool": "refund", "responseContains": '"ok": true'},
        {"tool": "refund", "responseContains": 'said "done"'},
        {"tool": "lookup", "responseContains": "late"},
        {"tool": "lookup", "responseContains": "deliver", "order": 0, "argsSchema": SCHEMA},
    ],
)
def test_one_call_that_satisfies_all_parts_passes(
    evaluate: Evaluate, transcript: Transcript, params: dict[str, Any]
) -> None:
    assert evaluate("tool_called", params, transcript).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("params", "code", "closest"),
    [
        ({"argsMatch": {"id": "C3"}}, FailureCode.TOOL_CALL_ARGS_MISMATCH, 0),
        ({"argsMatch": {"id": "A1"}, "order": 1}, FailureCode.TOOL_CALL_ORDER_WRONG, 0),
        ({"argsMatch": {"id": "B2"}, "order": 0}, FailureCode.TOOL_CALL_ORDER_WRONG, 1),
        ({"order": 9}, FailureCode.TOOL_CALL_ORDER_WRONG, 0),
        (
            {"argsMatch": {"id": "B2"}, "argsSchema": SCHEMA},
            FailureCode.TOOL_CALL_ARGS_SCHEMA_INVALID,
            1,
        ),
        (
            {"argsMatch": {"id": "A1"}, "responseContains": "late"},
            FailureCode.TOOL_RESPONSE_MISMATCH,
            0,
        ),
        ({"responseContains": "DELIVERED"}, FailureCode.TOOL_RESPONSE_MISMATCH, 0),
        ({"argsMatch": {}, "order": 3}, FailureCode.TOOL_CALL_ORDER_WRONG, 0),
    ],
)
def test_the_code_names_the_part_and_the_message_the_closest_call(
    evaluate: Evaluate,
    transcript: Transcript,
    params: dict[str, Any],
    code: FailureCode,
    closest: int,
) -> None:
    result = evaluate("tool_called", {"tool": "lookup"} | params, transcript)

    assert result.outcome is Outcome.FAILED
    assert result.failure_code is code
    assert result.actual["index"] == closest
    assert f"call {closest}:" in result.message


def test_different_calls_cannot_satisfy_one_expectation_together(
    evaluate: Evaluate, transcript: Transcript
) -> None:
    params = {"tool": "lookup", "argsMatch": {"id": "A1"}, "responseContains": "late", "order": 1}

    assert evaluate("tool_called", params, transcript).outcome is Outcome.FAILED


def test_every_argument_that_differs_is_told(evaluate: Evaluate, transcript: Transcript) -> None:
    params = {"tool": "refund", "argsMatch": {"id": "B2", "amount": "49.99", "note": None}}

    result = evaluate("tool_called", params, transcript)

    assert 'id: expected "B2", got "A1"' in result.message
    assert 'amount: expected "49.99", got 49.99' in result.message
    assert "note: expected null, it is missing" in result.message
    assert result.expected == params
    assert result.actual["arguments"] == {"id": "A1", "amount": 49.99}


def test_a_tool_that_was_not_called_is_told_with_those_that_were(
    evaluate: Evaluate, transcript: Transcript
) -> None:
    result = evaluate("tool_called", {"tool": "Lookup"}, transcript)

    assert result.failure_code is FailureCode.TOOL_CALL_MISSING
    assert result.actual == ["lookup", "refund"]
    assert '"refund"' in result.message


def test_malformed_arguments_match_nothing(evaluate: Evaluate, said: Said, used: Used) -> None:
    talk = said("done", used("t", malformed="[1"))

    for part in ("argsMatch", "argsSchema"):
        result = evaluate("tool_called", {"tool": "t", part: {}}, talk)
        assert result.outcome is Outcome.FAILED
        assert "no JSON object" in result.message


def test_a_schema_that_cannot_decide_is_inconclusive(
    evaluate: Evaluate, transcript: Transcript
) -> None:
    params = {"tool": "lookup", "argsSchema": {"$ref": "#/$defs/nowhere"}}

    result = evaluate("tool_called", params, transcript)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.failure_code is FailureCode.ASSERTION_EVAL_ERROR


@pytest.mark.parametrize(
    ("params", "outcome"),
    [
        ({"tool": "escalate"}, Outcome.PASSED),
        ({"tool": "Refund"}, Outcome.PASSED),
        ({"tool": "refund"}, Outcome.FAILED),
        ({"tool": "refund", "argsMatch": {"id": "B2"}}, Outcome.PASSED),
        ({"tool": "refund", "argsMatch": {"id": "A1"}}, Outcome.FAILED),
        ({"tool": "refund", "argsMatch": {}}, Outcome.FAILED),
    ],
)
def test_a_tool_that_must_not_be_called(
    evaluate: Evaluate, transcript: Transcript, params: dict[str, Any], outcome: Outcome
) -> None:
    result = evaluate("tool_not_called", params, transcript)

    assert result.outcome is outcome
    if outcome is Outcome.FAILED:
        assert result.failure_code is FailureCode.TOOL_CALL_UNEXPECTED
        assert [call["index"] for call in result.actual] == [2]


def test_huge_arguments_do_not_make_a_huge_result(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    talk = said("", used("t", {"a": "\x1b" * 1_000_000}, "\x1b" * 1_000_000))

    result = evaluate("tool_called", {"tool": "t", "argsMatch": {"a": "b"}}, talk)

    assert len(repr(result.actual)) < 40_000
    assert len(result.message) <= 1_000
    assert result.message.isprintable()
