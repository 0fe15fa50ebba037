"""Checks of tool calls that nobody saw, or whose names differ in what a reader may not notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from evaluated import demand, evaluated

from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import UNNAMED, UNREAD_LINES, Step, ToolCall, ToolUse, Transcript, Turn

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


UP_TO_ONE: list[tuple[str, dict[str, Any]]] = [
    ("tool_called", {"tool": "refund", "count": {"min": 0, "max": 1}}),
    (
        "trajectory",
        {"mode": "superset", "calls": [{"tool": "refund", "count": {"min": 0, "max": 1}}]},
    ),
]


@pytest.mark.parametrize(("kind", "params"), NOTHING_CALLED)
def test_a_check_passes_for_want_of_calls_only_where_calls_would_be_seen(
    evaluate: Evaluate, kind: str, params: dict[str, Any]
) -> None:
    assert evaluate(kind, params, SHOWN).outcome is Outcome.PASSED

    result = evaluate(kind, params, SILENT)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.failure_code == "ASSERTION_EVAL_ERROR"
    ways = "reportsTools: true", "tool_calls", "gateway: true", '{"kindlm": "tool_call", "name"'
    for way_out in (*ways, "see-your-agent"):
        assert way_out in result.message


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


Said = Callable[..., Transcript]

LOOK_ALIKES = [
    "Refund",
    " refund ",
    "refund\n",
    "refu\u200bnd",
    "re\u00adfund",
    "refund\ufe0f",
    "\u202erefund\u202c",
    "refund\u0007",
    "re-fund",
    "\uff52\uff45\uff46\uff55\uff4e\uff44",
    "\U0001d42b\U0001d41e\U0001d41f\U0001d42e\U0001d427\U0001d41d",
]


@pytest.mark.parametrize("name", LOOK_ALIKES)
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("tool_not_called", {"tool": "refund"}),
        ("tool_not_called", {"tool": "refund", "argsMatch": {"id": "A1"}}),
        ("tool_called", {"tool": "refund", "count": {"max": 0}}),
        ("tool_called", {"tool": "refund", "count": {"min": 0, "max": 0}}),
        ("tool_called", {"tool": "lookup", "before": "refund"}),
        (
            "trajectory",
            {"mode": "superset", "calls": [{"tool": "refund", "count": {"min": 0, "max": 0}}]},
        ),
    ],
)
def test_a_ban_that_holds_only_by_a_look_alike_name_is_undecided(
    evaluate: Evaluate, said: Said, used: Used, name: str, kind: str, params: dict[str, Any]
) -> None:
    calls = [used(name, {"id": "A1"}), used("lookup")]

    result = evaluate(kind, params, said("done", *calls))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.failure_code == "ASSERTION_EVAL_ERROR"
    assert '"refund"' in result.message
    assert result.message.isascii()


@pytest.mark.parametrize(("kind", "params"), UP_TO_ONE)
def test_unread_lines_may_be_any_number_of_calls(
    evaluate: Evaluate, said: Said, kind: str, params: dict[str, Any]
) -> None:
    unread = ToolUse(ToolCall(UNREAD_LINES, UNNAMED, {}), None, "agent")
    assert evaluate(kind, params, said("done", unread)).outcome is Outcome.INCONCLUSIVE


def test_a_call_without_a_name_may_be_the_demanded_one(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    result = evaluate("tool_called", {"tool": "refund"}, said("done", used(UNNAMED)))
    assert result.outcome is Outcome.INCONCLUSIVE
    assert "has no name" in result.message


@pytest.mark.parametrize("more", [{}, {"count": {"max": 1}}])
def test_a_look_alike_after_the_call_is_not_before_it(
    evaluate: Evaluate, said: Said, used: Used, more: dict[str, Any]
) -> None:
    params = {"tool": "lookup", "before": "refund"} | more
    transcript = said("done", used("lookup"), used("Refund"))
    assert evaluate("tool_called", params, transcript).outcome is Outcome.PASSED


def test_a_look_alike_before_a_further_call_is_not_before_the_first(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    transcript = said("done", used("lookup"), used("Refund"), used("lookup"))
    params = {"tool": "lookup", "before": "refund"}
    assert evaluate("tool_called", params, transcript).outcome is Outcome.PASSED


def test_a_look_alike_with_other_arguments_is_not_counted(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    params = {"tool": "refund", "argsMatch": {"id": "A1"}, "count": {"max": 1}}
    calls = [used("refund", {"id": "A1"}), used("Refund", {"id": "B2"})]
    assert evaluate("tool_called", params, said("done", *calls)).outcome is Outcome.PASSED


@pytest.mark.parametrize(("kind", "params"), UP_TO_ONE)
def test_a_look_alike_within_the_bounds_is_no_doubt(
    evaluate: Evaluate, said: Said, used: Used, kind: str, params: dict[str, Any]
) -> None:
    outcomes = [
        evaluate(kind, params, said("done", *map(used, names))).outcome
        for names in (["Refund"], ["Refund", "refund"])
    ]
    assert outcomes == [Outcome.PASSED, Outcome.INCONCLUSIVE]


def test_the_message_shows_invisible_characters(evaluate: Evaluate, said: Said, used: Used) -> None:
    result = evaluate("tool_not_called", {"tool": "refund"}, said("done", used("refu\u200bnd")))
    assert 'Call 0 is named "refu\\u200bnd", which differs from "refund" only' in result.message


@pytest.mark.parametrize(
    ("tool", "name", "is_alike"),
    [
        ("refund", "mcp__shop__refund", True),
        ("mcp__shop__refund", "refund", True),
        ("shop/refund", "Re-Fund", True),
        ("shop/refund", "mcp__shop__refund", True),
        ("shop/refund", "billing/refund", False),
        ("shop/refund", "shop", False),
    ],
)
def test_a_prefix_of_either_name_does_not_count(
    evaluate: Evaluate, said: Said, used: Used, tool: str, name: str, is_alike: bool
) -> None:
    result = evaluate("tool_not_called", {"tool": tool}, said("done", used(name)))
    assert result.outcome is (Outcome.INCONCLUSIVE if is_alike else Outcome.PASSED)


@pytest.mark.parametrize("name", ["re fund", "refunds", "r\u0435fund"])  # a Cyrillic letter
def test_other_names_are_no_doubt(evaluate: Evaluate, said: Said, used: Used, name: str) -> None:
    result = evaluate("tool_not_called", {"tool": "refund"}, said("done", used(name)))
    assert result.outcome is Outcome.PASSED


def test_a_call_by_its_exact_name_breaks_a_ban_whatever_else_was_called(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    result = evaluate(
        "tool_not_called", {"tool": "refund"}, said("", used("Refund"), used("refund"))
    )
    assert result.failure_code == "TOOL_CALL_UNEXPECTED"


def test_a_look_alike_with_other_arguments_breaks_no_ban_of_arguments(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    params = {"tool": "refund", "argsMatch": {"id": "A1"}}
    other = evaluate("tool_not_called", params, said("done", used("Refund", {"id": "B2"})))
    broken = evaluate("tool_not_called", params, said("done", used("Refund", malformed="{id")))
    assert (other.outcome, broken.outcome) == (Outcome.PASSED, Outcome.INCONCLUSIVE)


def test_arguments_that_cannot_be_compared_leave_a_maximum_undecided(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    talk = said("done", used("refund", malformed="[1"))
    outcomes = []
    for bounds in ({"max": 0}, {"min": 0, "max": 1}):
        call = {"tool": "refund", "argsMatch": {"id": "A1"}, "count": bounds}
        outcomes.append(evaluate("tool_called", call, talk).outcome)
        for mode in ("in-order", "superset"):
            trajectory = {"mode": mode, "calls": [call]}
            outcomes.append(evaluate("trajectory", trajectory, talk).outcome)
    assert outcomes == [Outcome.INCONCLUSIVE] * 3 + [Outcome.PASSED] * 3


@pytest.mark.parametrize("when", [{"after": "log_in"}, {"before": "log_in"}, {"order": 1}])
@pytest.mark.parametrize("bounds", [{"min": 0}, {"min": 0, "max": 1}])
def test_a_call_that_need_not_be_made_may_be_a_look_alike_at_the_wrong_time(
    evaluate: Evaluate, said: Said, used: Used, when: dict[str, Any], bounds: dict[str, int]
) -> None:
    params = {"tool": "refund", "count": bounds, **when}
    for name in ("Refund", UNNAMED):
        result = evaluate("tool_called", params, said("done", used(name)))
        assert result.outcome is Outcome.INCONCLUSIVE
    assert evaluate("tool_called", params, said("done", used("lookup"))).outcome is Outcome.PASSED


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_demand_takes_the_exact_name_alone(
    evaluate: Evaluate, said: Said, used: Used, name: str
) -> None:
    transcript = said("done", used(name))
    assert evaluate("tool_called", {"tool": "refund"}, transcript).outcome is Outcome.FAILED
    calls = [{"tool": "refund"}]
    for mode in ("strict", "in-order", "unordered", "subset", "superset"):
        result = evaluate("trajectory", {"mode": mode, "calls": calls}, transcript)
        assert result.outcome is Outcome.FAILED


def test_a_forbidden_tool_is_known_by_its_usual_spellings_and_doubted_beyond(
    evaluate: Evaluate, said: Said, used: Used
) -> None:
    outcomes = [
        evaluate("forbidden_tool", {"tool": "issue_refund"}, said("done", used(name))).outcome
        for name in (
            "Issue-Refund",
            "issue\u200b_refund",
            " issueRefund",
            "\uff49ssue-refund",
            "issue",
        )
    ]
    undecided = Outcome.INCONCLUSIVE
    assert outcomes == [Outcome.FAILED, undecided, undecided, undecided, Outcome.PASSED]
