"""The check that every call of a simulated tool met an answer and kept its schema."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import ToolCall, ToolProblem, ToolProblemKind, ToolUse, Transcript

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]

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
    assert [(entry["index"], entry["problem"]) for entry in result.actual] == [
        (1, "arguments"),
        (1, "unmatched"),
        (2, "result"),
    ]


def test_a_thousand_problems_make_a_bounded_result(evaluate: Evaluate, said: Said) -> None:
    result = evaluate("tool_strict", {}, said("", *[use(UNMATCHED)] * 1_000))

    assert len(result.actual) == 20
    assert len(result.message) <= 1_000
