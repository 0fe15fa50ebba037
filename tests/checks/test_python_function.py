"""Functions of the user that check an execution: what they see, and what their results mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from evaluated import evaluated
from hypothesis import example, given
from hypothesis import strategies as st

from kindlm.checks.user_code import CheckedExecution, PythonFunction
from kindlm.outcome import CheckResult, Outcome
from kindlm.transcript import Cost, CostSource, Step, ToolCall, ToolUse, Transcript, Turn, Usage

REFUND = ToolUse(ToolCall("1", "refund", {"order": {"id": "A1"}}), {"ok": True})
PAID = Cost(0.25, CostSource.COMPUTED)
TALK = Transcript(
    turns=(
        Turn(
            "Refund A1", (Step("", (REFUND,), Usage(), PAID, 10), Step("Done.", (), Usage(), PAID))
        ),
        Turn("Thanks", (Step("You are welcome.", (), Usage(), PAID, 5),)),
    )
)


def checked(
    function: Callable[[CheckedExecution], Any], seen: Transcript = TALK, **options: Any
) -> CheckResult:
    check = PythonFunction(function="checks.py:f", **options).calling(function)
    return evaluated(check.expected("f"), seen)


def test_it_sees_what_was_said_done_and_spent() -> None:
    def sees(run: CheckedExecution) -> bool:
        first, second = run.conversation
        (call,) = run.tool_calls
        assert run.text == second.text == "You are welcome."
        assert (first.user, first.text) == ("Refund A1", "Done.")
        assert first.tool_calls == run.tool_calls
        assert second.tool_calls == ()
        assert (call.name, call.arguments) == ("refund", {"order": {"id": "A1"}})
        assert call.result == {"ok": True}
        assert (run.latency_ms, run.cost_usd) == (15, 0.75)
        return True

    assert checked(sees).outcome is Outcome.PASSED


def test_an_error_without_a_readable_message_is_named() -> None:
    class LostError(Exception):
        def __str__(self) -> str:
            raise AttributeError("order")

    def loses(run: CheckedExecution) -> bool:
        raise LostError

    result = checked(loses)
    assert result.outcome is Outcome.INCONCLUSIVE
    assert "LostError: <exception str() failed>" in (result.message or "")


def test_it_cannot_change_what_others_see() -> None:
    def changes(run: CheckedExecution) -> bool:
        run.tool_calls[0].arguments["order"].clear()
        run.tool_calls[0].result.clear()
        for value in (run, run.conversation[0], run.tool_calls[0]):
            for name in ("text", "name"):
                if hasattr(value, name):
                    with pytest.raises(AttributeError):
                        setattr(value, name, "refund")
        return True

    assert checked(changes).outcome is Outcome.PASSED
    assert REFUND.call.arguments == {"order": {"id": "A1"}}
    assert REFUND.response == {"ok": True}


@given(
    st.none()
    | st.booleans()
    | st.text()
    | st.integers()
    | st.floats()
    | st.binary()
    | st.lists(st.booleans(), min_size=1)
    | st.just(10**400)
    | st.builds(object)
)
@example(0)
@example(0.6)
@example(1)
@example(1.5)
def test_only_true_and_a_high_score_pass(returned: Any) -> None:
    result = checked(lambda _: returned, minScore=0.6)

    is_number = isinstance(returned, int | float) and not isinstance(returned, bool)
    passes = returned is True or (is_number and 0.6 <= returned <= 1)
    fails = returned is False or (isinstance(returned, str) and bool(returned.strip()))
    fails = fails or (is_number and 0 <= returned < 0.6)
    expected = Outcome.PASSED if passes else Outcome.FAILED if fails else Outcome.INCONCLUSIVE
    assert result.outcome is expected
    if is_number and result.outcome is not Outcome.INCONCLUSIVE:
        assert (result.score, result.threshold) == (returned, 0.6)


async def promises(run: CheckedExecution) -> bool:
    return "refund" in run.text


def yields(run: CheckedExecution) -> Any:
    yield True


def asserts(run: CheckedExecution) -> bool:
    assert run.text == "Refunded.", "says something else"
    return True


def looks_up(run: CheckedExecution) -> bool:
    return bool({}["order"])


def interrupts(run: CheckedExecution) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "outcome", "message"),
    [
        (promises, Outcome.FAILED, "returned False"),
        (yields, Outcome.INCONCLUSIVE, "returned <generator"),
        (asserts, Outcome.FAILED, "test_python_function.py:"),
        (asserts, Outcome.FAILED, "says something else"),
        (looks_up, Outcome.INCONCLUSIVE, "KeyError: 'order'"),
        (interrupts, Outcome.INCONCLUSIVE, "KeyboardInterrupt"),
    ],
)
def test_what_it_raises_is_no_pass(function: Any, outcome: Outcome, message: str) -> None:
    result = checked(function)

    assert result.outcome is outcome
    assert message in result.message
    assert (result.trace is not None) == (function in (looks_up, interrupts))


@pytest.mark.parametrize("name", ["tool_calls", "cost_usd", "latency_ms"])
def test_what_is_not_known_is_undecided_whatever_it_returns(name: str) -> None:
    def swallows(run: CheckedExecution) -> bool:
        try:
            return not getattr(run, name)
        except Exception:  # noqa: BLE001 - as a careless user would
            return True

    step = Step("Done.", latency_ms=1, reports_tools=False)
    unknown = replace(TALK, turns=(Turn("Hi", () if name == "latency_ms" else (step,)),))

    assert checked(swallows, unknown).outcome is Outcome.INCONCLUSIVE
    assert checked(lambda run: "Done." in run.text or True, unknown).outcome is Outcome.PASSED
