"""What failed checks of tool calls say: the words that a person acts on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kindlm.checks.call_matching import CallCount
from kindlm.matching import Bounds
from kindlm.outcome import CheckResult
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]


def talk(*calls: str) -> Transcript:
    """Return a conversation of one turn with these calls, without arguments."""
    uses = (ToolUse(ToolCall(f"{n}", name, {}), None, "x") for n, name in enumerate(calls))
    return Transcript(turns=(Turn("a", (Step("", tuple(uses)),)),))


def test_a_range_may_be_a_single_number() -> None:
    assert CallCount(min=2, max=2).bounds == Bounds(2, 2)


@pytest.mark.parametrize(
    ("order", "calls", "message"),
    [
        (1, ["lookup"], "lookup was call 0, expected to be call 1"),
        (1, ["lookup", "mail"], "lookup was called before mail"),
        (0, ["mail", "lookup"], "mail was called before lookup"),
    ],
)
def test_what_was_called_at_the_wrong_time(
    evaluate: Evaluate, order: int, calls: list[str], message: str
) -> None:
    result = evaluate("tool_called", {"tool": "lookup", "order": order}, talk(*calls))
    assert message in result.message
    assert result.failure_code == "TOOL_CALL_ORDER_WRONG"


@pytest.mark.parametrize(
    ("wanted", "expected", "said"),
    [
        ({}, {"tool": "refund", "shouldNotCall": True}, "no call to refund; the agent made 1 call"),
        (
            {"argsMatch": {}},
            {"tool": "refund", "shouldNotCall": True, "argsMatch": {}},
            "no call to refund with arguments matching {};",
        ),
    ],
)
def test_a_forbidden_call_is_told_with_what_was_forbidden(
    evaluate: Evaluate, wanted: dict[str, Any], expected: dict[str, Any], said: str
) -> None:
    result = evaluate("tool_not_called", {"tool": "refund", **wanted}, talk("refund"))
    assert result.expected == expected
    assert said in result.message


@pytest.mark.parametrize(
    ("calls", "made", "said"),
    [
        (["a", "b", "c"], ["a", "c", "b"], 'call 2, "b" with {}, comes too late'),
        (["a", "b", "c"], ["b", "c", "a"], 'call 2, "a" with {}, comes too late'),
        (["a", "b", "c"], ["c", "a", "b"], 'call 0, "c" with {}, comes too early'),
    ],
)
def test_a_call_out_of_order_is_told_with_the_call_it_belongs_to(
    evaluate: Evaluate, calls: list[str], made: list[str], said: str
) -> None:
    demand = {"mode": "strict", "calls": [{"tool": name} for name in calls]}
    assert said in evaluate("trajectory", demand, talk(*made)).message
