"""Names of tools that differ from a banned one only in what a reader may not notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import ToolUse, Transcript

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]
Used = Callable[..., ToolUse]

LOOK_ALIKES = [
    "Refund",
    " refund ",
    "refund\n",
    "refu\u200bnd",
    "re\u00adfund",
    "refund\ufe0f",
    "\u202erefund\u202c",
    "refund\u0007",
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


def test_the_message_shows_invisible_characters(evaluate: Evaluate, said: Said, used: Used) -> None:
    result = evaluate("tool_not_called", {"tool": "refund"}, said("done", used("refu\u200bnd")))
    assert 'Call 0 is named "refu\\u200bnd", which differs from "refund" only' in result.message


@pytest.mark.parametrize(
    "name", ["re-fund", "re fund", "refunds", "r\u0435fund"]
)  # a Cyrillic letter
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
