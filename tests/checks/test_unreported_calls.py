"""Checks of tool calls on agents that may have called tools that nobody saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from evaluated import demand, evaluated

from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import Step, ToolUse, Transcript, Turn

Evaluate = Callable[..., CheckResult]
Used = Callable[..., ToolUse]

SILENT = Transcript(turns=(Turn("Refund A1.", (Step("Done.", reports_tools=False),)),))
SHOWN = Transcript(turns=(Turn("Refund A1.", (Step("Done.", reports_tools=True),)),))

NOTHING_CALLED: list[tuple[str, dict[str, Any]]] = [
    ("tool_not_called", {"tool": "refund"}),
    ("tool_not_called", {"tool": "refund", "argsMatch": {"id": "A1"}}),
    ("tool_called", {"tool": "refund", "count": {"min": 0, "max": 1}}),
    ("tool_called", {"tool": "refund", "count": {"max": 0}}),
    ("trajectory", {"mode": "subset", "calls": [{"tool": "lookup"}]}),
    ("trajectory", {"mode": "unordered", "calls": []}),
    ("trajectory", {"mode": "strict", "calls": []}),
    ("trajectory", {"mode": "superset", "calls": [{"tool": "x", "count": {"min": 0, "max": 1}}]}),
    ("forbidden_tool", {"tool": "refund"}),
    ("tool_sequence", {"sequence": [], "mode": "exact"}),
    ("tool_strict", {}),
    ("metric", {"metric": "tool_calls", "value": 0, "tolerance": 0}),
    ("metric", {"metric": "steps", "value": 0, "tolerance": 0}),
]


@pytest.mark.parametrize(("kind", "params"), NOTHING_CALLED)
def test_a_check_passes_for_want_of_calls_only_where_calls_would_be_seen(
    evaluate: Evaluate, kind: str, params: dict[str, Any]
) -> None:
    assert evaluate(kind, params, SHOWN).outcome is Outcome.PASSED

    result = evaluate(kind, params, SILENT)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.failure_code == "ASSERTION_EVAL_ERROR"
    for way_out in ("reportsTools: true", "tool_calls", "gateway: true", "see-your-agent"):
        assert way_out in result.message


@pytest.mark.parametrize(("kind", "params"), NOTHING_CALLED)
def test_a_program_is_reported_the_line_that_it_prints(
    evaluate: Evaluate, kind: str, params: dict[str, Any]
) -> None:
    message = evaluate(kind, params, replace(SILENT, prints_calls=True)).message
    assert '{"kindlm": "tool_call", "name": "NAME"' in message
    assert "gateway" not in message


@pytest.mark.parametrize(("kind", "params"), NOTHING_CALLED)
def test_what_the_suite_says_of_the_agent_counts(
    evaluate: Evaluate, kind: str, params: dict[str, Any]
) -> None:
    declared = replace(SILENT, reports_tools=True)
    assert evaluate(kind, params, declared).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("kind", "params", "code"),
    [
        ("tool_called", {"tool": "refund"}, "TOOL_CALL_MISSING"),
        ("tool_sequence", {"sequence": ["refund"]}, "TOOL_SEQUENCE_WRONG"),
        ("tool_category", {"category": "money", "tools": ["refund"]}, "TOOL_CATEGORY_MISSING"),
    ],
)
def test_a_demanded_call_that_was_not_seen_is_undecided_too(
    evaluate: Evaluate, kind: str, params: dict[str, Any], code: str
) -> None:
    result = evaluate(kind, params, SILENT)
    assert (result.outcome, result.score) == (Outcome.INCONCLUSIVE, None)
    assert "reportsTools: true" in result.message
    assert evaluate(kind, params, SHOWN).failure_code == code


def test_one_answer_that_shows_it_is_enough_for_those_after_it(used: Used) -> None:
    silent = Step("Hello.", reports_tools=False)
    called = Step("Found.", (used("lookup"),))
    transcript = Transcript(
        turns=(Turn("Hi", (silent,)), Turn("A1?", (called,)), Turn("Bye", (silent,)))
    )
    outcomes = []
    for turn, since in ((1, 1), (2, 2), (3, 1), (3, 2), (3, 3)):
        expectation = demand(
            "tool_not_called", "refund", {"tool": "refund"}, turn=turn, since=since
        )
        outcomes.append(evaluated(expectation, transcript).outcome)
    # The first turn is looked at as if nothing came after it: so it is decided live, too.
    undecided, passed = Outcome.INCONCLUSIVE, Outcome.PASSED
    assert outcomes == [undecided, passed, passed, passed, passed]


async def _nobody(_question: object) -> Any:
    raise AssertionError("these checks ask nobody")
