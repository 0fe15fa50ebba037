"""Checks of tool calls, also that simulated tools met an answer and kept their schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import (
    UNNAMED,
    Step,
    ToolCall,
    ToolProblem,
    ToolProblemKind,
    ToolUse,
    Transcript,
    Turn,
)

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
    broken = used("lookup", malformed="{id: A1", response={"error": "not JSON"})
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
        ({"argsMatch": {"id": "C3"}}, "TOOL_CALL_ARGS_MISMATCH", 0),
        ({"argsMatch": {"id": "A1"}, "order": 1}, "TOOL_CALL_ORDER_WRONG", 0),
        ({"argsMatch": {"id": "B2"}, "order": 0}, "TOOL_CALL_ORDER_WRONG", 1),
        ({"order": 9}, "TOOL_CALL_ORDER_WRONG", 0),
        (
            {"argsMatch": {"id": "B2"}, "argsSchema": SCHEMA},
            "TOOL_CALL_ARGS_SCHEMA_INVALID",
            1,
        ),
        (
            {"argsMatch": {"id": "A1"}, "responseContains": "late"},
            "TOOL_RESPONSE_MISMATCH",
            0,
        ),
        ({"responseContains": "DELIVERED"}, "TOOL_RESPONSE_MISMATCH", 0),
        ({"argsMatch": {}, "order": 3}, "TOOL_CALL_ORDER_WRONG", 0),
    ],
)
def test_the_code_names_the_part_and_the_message_the_closest_call(
    evaluate: Evaluate,
    transcript: Transcript,
    params: dict[str, Any],
    code: str,
    closest: int,
) -> None:
    result = evaluate("tool_called", {"tool": "lookup"} | params, transcript)

    assert result.outcome is Outcome.FAILED
    assert result.failure_code is code
    assert result.actual["index"] == closest
    assert f"call {closest}" in result.message


@pytest.mark.parametrize(
    ("params", "outcome"),
    [
        ({"tool": "lookup", "before": "refund"}, Outcome.PASSED),
        ({"tool": "lookup", "argsMatch": {"id": "B2"}, "before": "refund"}, Outcome.PASSED),
        ({"tool": "lookup", "after": "refund"}, Outcome.PASSED),
        ({"tool": "lookup", "argsMatch": {"id": "A1"}, "after": "refund"}, Outcome.FAILED),
        ({"tool": "refund", "before": "lookup"}, Outcome.FAILED),
        ({"tool": "refund", "after": "lookup"}, Outcome.PASSED),
        ({"tool": "lookup", "after": "lookup"}, Outcome.PASSED),
        ({"tool": "refund", "after": "refund"}, Outcome.FAILED),
        # Before a tool that is never called there is all the time; after it, none.
        ({"tool": "refund", "before": "escalate"}, Outcome.PASSED),
        ({"tool": "refund", "after": "escalate"}, Outcome.FAILED),
        ({"tool": "lookup", "before": "refund", "after": "lookup"}, Outcome.PASSED),
        ({"tool": "lookup", "before": "refund", "order": 2}, Outcome.FAILED),
    ],
)
def test_a_call_comes_before_or_after_the_first_call_of_another_tool(
    evaluate: Evaluate, transcript: Transcript, params: dict[str, Any], outcome: Outcome
) -> None:
    result = evaluate("tool_called", params, transcript)

    assert result.outcome is outcome
    if outcome is Outcome.FAILED:
        assert result.failure_code == "TOOL_CALL_ORDER_WRONG"
        assert result.expected == params | {"shouldNotCall": False}


@pytest.mark.parametrize(
    ("params", "outcome"),
    [
        ({"count": {"min": 3, "max": 3}}, Outcome.PASSED),
        ({"count": {"min": 3}}, Outcome.PASSED),
        ({"count": {"max": 3}}, Outcome.PASSED),
        ({"count": {}}, Outcome.PASSED),
        ({"count": {"max": 2}}, Outcome.FAILED),
        ({"count": {"min": 4}}, Outcome.FAILED),
        ({"count": {"max": 0}}, Outcome.FAILED),
        # The broken arguments may be what is counted.
        ({"argsMatch": {"id": "A1"}, "count": {"min": 1, "max": 1}}, Outcome.INCONCLUSIVE),
        ({"argsMatch": {"id": "A1"}, "count": {"min": 1, "max": 2}}, Outcome.PASSED),
        ({"argsMatch": {"id": "A1"}, "count": {"min": 2}}, Outcome.FAILED),
        ({"argsMatch": {"id": "C3"}, "count": {"min": 0}}, Outcome.PASSED),
        ({"argsMatch": {"id": "C3"}, "count": {"max": 0}}, Outcome.INCONCLUSIVE),
        ({"responseContains": "late", "count": {"max": 1}}, Outcome.PASSED),
        # What happens after the refund counts too: only one call has to be in time.
        ({"before": "refund", "count": {"max": 3}}, Outcome.PASSED),
        ({"before": "refund", "count": {"max": 2}}, Outcome.FAILED),
        ({"order": 0, "count": {"min": 3}}, Outcome.PASSED),
    ],
)
def test_calls_that_are_what_is_asked_for_are_counted(
    evaluate: Evaluate, transcript: Transcript, params: dict[str, Any], outcome: Outcome
) -> None:
    result = evaluate("tool_called", {"tool": "lookup"} | params, transcript)

    assert result.outcome is outcome
    if outcome is Outcome.FAILED:
        assert result.failure_code == "TOOL_CALL_COUNT_WRONG"
        assert "count" in result.expected


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"tool": "escalate", "count": {"min": 1}}, "TOOL_CALL_MISSING"),
        ({"tool": "escalate", "count": {"max": 2}}, "TOOL_CALL_MISSING"),
        (
            {"tool": "lookup", "argsMatch": {"id": "C3"}, "count": {"min": 1}},
            "TOOL_CALL_ARGS_MISMATCH",
        ),
        (
            {"tool": "lookup", "argsMatch": {"id": "A1"}, "order": 1, "count": {"min": 0}},
            "TOOL_CALL_ORDER_WRONG",
        ),
    ],
)
def test_a_count_hides_no_other_part_that_failed(
    evaluate: Evaluate, transcript: Transcript, params: dict[str, Any], code: str
) -> None:
    assert evaluate("tool_called", params, transcript).failure_code is code


def test_a_result_with_numbers_is_searched_for_a_text(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    transcript = said("done", used("look", response={"ok": True, "items": [1, None]}))

    result = evaluate("tool_called", {"tool": "look", "responseContains": "late"}, transcript)

    assert result.failure_code == "TOOL_RESPONSE_MISMATCH"


def test_too_few_calls_are_reported_with_the_closest_other_one(
    evaluate: Evaluate, transcript: Transcript
) -> None:
    params = {"tool": "lookup", "argsMatch": {"id": "A1"}, "count": {"min": 2, "max": 4}}

    result = evaluate("tool_called", params, transcript)

    assert "2 to 4 calls" in result.message
    assert 'call 1: id: expected "A1", got "B2"' in result.message
    assert result.actual == {"count": 1}


@pytest.mark.parametrize(
    ("count", "often"),
    [
        ({"min": 4}, "at least 4 calls"),
        ({"max": 0}, "0 calls"),
        ({"max": 1}, "1 call"),
        ({"min": 5, "max": 5}, "5 calls"),
        ({"min": 0, "max": 1}, "0 to 1 call"),
    ],
)
def test_the_expected_number_of_calls_is_said_in_words(
    evaluate: Evaluate, transcript: Transcript, count: dict[str, int], often: str
) -> None:
    result = evaluate("tool_called", {"tool": "lookup", "count": count}, transcript)

    assert f"Expected {often} to lookup as described, got 3" in result.message


def test_different_calls_cannot_satisfy_one_expectation_together(
    evaluate: Evaluate, transcript: Transcript
) -> None:
    params = {"tool": "lookup", "argsMatch": {"id": "A1"}, "responseContains": "late", "order": 1}

    assert evaluate("tool_called", params, transcript).outcome is Outcome.FAILED


def test_every_argument_that_differs_is_reported(
    evaluate: Evaluate, transcript: Transcript
) -> None:
    params = {"tool": "refund", "argsMatch": {"id": "B2", "amount": "49.99", "note": None}}

    result = evaluate("tool_called", params, transcript)

    assert 'id: expected "B2", got "A1"' in result.message
    assert 'amount: expected "49.99", got 49.99' in result.message
    assert "note: expected null, it is missing" in result.message
    assert result.expected == params | {"shouldNotCall": False}
    assert result.actual["arguments"] == {"id": "A1", "amount": 49.99}


def test_a_tool_that_was_not_called_is_reported_with_those_that_were(
    evaluate: Evaluate, transcript: Transcript
) -> None:
    result = evaluate("tool_called", {"tool": "Lookup"}, transcript)

    assert result.failure_code == "TOOL_CALL_MISSING"
    assert result.actual == ["lookup", "refund"]
    assert "called only lookup, refund. lookup is not Lookup: the names" in result.message


def test_malformed_arguments_match_nothing(evaluate: Evaluate, said: Said, used: Used) -> None:
    talk = said("done", used("t", malformed="[1"))

    for part in ("argsMatch", "argsSchema"):
        result = evaluate("tool_called", {"tool": "t", part: {}}, talk)
        assert result.outcome is Outcome.FAILED
        assert "not a JSON object" in result.message


def test_whether_malformed_arguments_are_the_forbidden_ones_is_unknown(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    talk = said("done", used("t", malformed="[1"), used("t", {"id": "A2"}))

    result = evaluate("tool_not_called", {"tool": "t", "argsMatch": {"id": "A1"}}, talk)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert '"[1"' in result.message
    for params in ({"tool": "t"}, {"tool": "t", "argsMatch": {"id": "A2"}}):
        assert evaluate("tool_not_called", params, talk).outcome is Outcome.FAILED


def test_a_schema_that_cannot_decide_is_inconclusive(
    evaluate: Evaluate, transcript: Transcript
) -> None:
    params = {"tool": "lookup", "argsSchema": {"$ref": "#/$defs/nowhere"}}

    result = evaluate("tool_called", params, transcript)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.failure_code == "ASSERTION_EVAL_ERROR"


@pytest.mark.parametrize(
    ("params", "outcome"),
    [
        ({"tool": "escalate"}, Outcome.PASSED),
        ({"tool": "Refund"}, Outcome.INCONCLUSIVE),
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
        assert result.failure_code == "TOOL_CALL_UNEXPECTED"
        assert [call["index"] for call in result.actual] == [2]


def test_huge_arguments_do_not_make_a_huge_result(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    talk = said("", used("t", {"a": "\x1b" * 1_000_000}, "\x1b" * 1_000_000))

    result = evaluate("tool_called", {"tool": "t", "argsMatch": {"a": "b"}}, talk)

    assert len(repr(result.actual)) < 40_000
    assert len(result.message) <= 1_000
    assert result.message.isprintable()


@pytest.mark.parametrize(
    ("kind", "params", "outcome"),
    [
        ("tool_not_called", {"tool": "refund"}, Outcome.INCONCLUSIVE),
        ("tool_not_called", {"tool": "lookup"}, Outcome.FAILED),
        ("forbidden_tool", {"tool": "refund"}, Outcome.INCONCLUSIVE),
        ("forbidden_tool", {"tool": "Look-up"}, Outcome.FAILED),
        ("tool_called", {"tool": "lookup"}, Outcome.PASSED),
        ("tool_called", {"tool": "lookup", "before": "refund"}, Outcome.INCONCLUSIVE),
        ("tool_called", {"tool": "lookup", "count": {"max": 2}}, Outcome.PASSED),
        ("tool_called", {"tool": "lookup", "count": {"max": 1}}, Outcome.INCONCLUSIVE),
        (
            "tool_called",
            {"tool": "lookup", "before": "refund", "count": {"max": 2}},
            Outcome.INCONCLUSIVE,
        ),
        ("tool_called", {"tool": "refund", "count": {"max": 0}}, Outcome.INCONCLUSIVE),
        (
            "trajectory",
            {"mode": "superset", "calls": [{"tool": "lookup", "count": {"max": 1}}]},
            Outcome.INCONCLUSIVE,
        ),
        ("trajectory", {"mode": "superset", "calls": [{"tool": "lookup"}]}, Outcome.PASSED),
        ("trajectory", {"mode": "subset", "calls": [{"tool": "lookup"}]}, Outcome.FAILED),
    ],
)
def test_a_call_without_a_name_may_be_the_one_that_is_forbidden(
    evaluate: Evaluate,
    said: Said,
    used: Used,
    kind: str,
    params: dict[str, Any],
    outcome: Outcome,
) -> None:
    result = evaluate(kind, params, said("done", used(UNNAMED), used("lookup")))
    assert result.outcome is outcome
    if outcome is Outcome.INCONCLUSIVE:
        assert "Call 0 has no name" in result.message
        assert "`toolCallsPath` in kindlm.yaml" in result.message


@pytest.mark.parametrize(
    "params",
    [
        {"tool": "lookup", "argsMatch": {"id": "B2"}, "order": 2},
        {"tool": "refund", "before": "lookup"},
        {"tool": "refund", "order": 0},
        {"tool": "lookup", "argsMatch": {"id": "A1"}, "after": "refund"},
    ],
)
def test_the_wrong_order_is_said_by_naming_both_tools(
    evaluate: Evaluate, transcript: Transcript, params: dict[str, Any]
) -> None:
    result = evaluate("tool_called", params, transcript)
    assert result.message == "lookup was called before refund."


UNMATCHED = ToolProblem(ToolProblemKind.UNMATCHED, "'t' has no response for these arguments.")
ARGUMENTS = ToolProblem(ToolProblemKind.ARGUMENTS, "The arguments do not fit: $.id: \x1b[31m.")
RESULT = ToolProblem(ToolProblemKind.RESULT, "The simulated answer breaks its resultSchema.")


def use(*problems: ToolProblem) -> ToolUse:
    return ToolUse(ToolCall("c", "t", {}), None, "defaultResponse", problems)


@pytest.mark.parametrize(
    ("uses", "outcome", "code"),
    [
        ((), Outcome.PASSED, None),
        ((use(), use()), Outcome.PASSED, None),
        ((use(), use(UNMATCHED)), Outcome.FAILED, "TOOL_CALL_UNMATCHED"),
        ((use(ARGUMENTS),), Outcome.FAILED, "TOOL_CALL_ARGS_SCHEMA_INVALID"),
        (
            (use(ARGUMENTS, UNMATCHED),),
            Outcome.FAILED,
            "TOOL_CALL_ARGS_SCHEMA_INVALID",
        ),
        ((use(UNMATCHED), use(ARGUMENTS)), Outcome.FAILED, "TOOL_CALL_UNMATCHED"),
        ((use(RESULT), use(UNMATCHED)), Outcome.FAILED, "TOOL_CALL_UNMATCHED"),
        ((use(RESULT),), Outcome.INCONCLUSIVE, "ASSERTION_EVAL_ERROR"),
    ],
)
def test_a_problem_of_any_call_decides(
    evaluate: Evaluate,
    said: Said,
    uses: tuple[ToolUse, ...],
    outcome: Outcome,
    code: str | None,
) -> None:
    result = evaluate("tool_strict", {}, said("done", *uses))

    assert result.outcome is outcome
    assert result.failure_code is code


def test_all_problems_are_listed_with_their_calls(evaluate: Evaluate, said: Said) -> None:
    result = evaluate("tool_strict", {}, said("", use(), use(ARGUMENTS, UNMATCHED), use(RESULT)))

    assert "3 problems" in result.message
    assert "Call 1:" in result.message
    assert "Call 2:" in result.message
    assert result.message.isprintable()
    assert [problem[:7] for problem in result.actual] == ["Call 1:", "Call 1:", "Call 2:"]


def test_a_thousand_problems_make_a_bounded_result(evaluate: Evaluate, said: Said) -> None:
    result = evaluate("tool_strict", {}, said("", *[use(UNMATCHED)] * 1_000))

    assert len(result.actual) == 5
    assert len(result.message) <= 1_000
