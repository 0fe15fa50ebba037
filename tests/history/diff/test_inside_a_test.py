"""What the details of a test show: its calls, errors, sequences of tools, and checks."""

from __future__ import annotations

from typing import Any

import pytest
from compared_runs import compared, passes, record_run
from recorded_history import History, Make

from kindlm.history.diff.details import TestDetails, ToolSequence


def details_of(history: History, before: Any, after: Any) -> TestDetails:
    record_run(history, "before", {"it": before})
    record_run(history, "after", {"it": after})
    diff = compared(history)
    (test,) = diff.tests
    return diff.details(test)


def calling(tools: str) -> dict[str, Any]:
    """Return a repeat that calls tools of one letter."""
    return {"tools": tuple((tool, {}, {}) for tool in tools), "assertions": (Make.passed(),)}


def test_a_new_test_has_no_changed_calls(history: History) -> None:
    record_run(history, "before", {"other": "+"})
    record_run(history, "after", {"it": [calling("ab")], "other": "+"})
    diff = compared(history)
    (it, _) = diff.tests
    assert diff.details(it).calls == ()


def test_the_error_of_each_side_is_shown(history: History) -> None:
    error = "ENGINE_MAX_TURNS: 10 model calls"
    assert details_of(history, "!", "+").errors == (error, None)


def test_the_last_answer_of_a_conversation_is_its_output_alone(history: History) -> None:
    talk = {"earlier": ("Hi.",), "assertions": (Make.passed(),)}
    before, after = ([talk | {"output": text}] for text in ("It is late.", "It is early."))
    assert list(details_of(history, before, after).words) == ["output"]


def test_sequences_are_shown_the_most_common_first(history: History) -> None:
    before = [calling("b"), calling("b"), calling("a")]
    after = [calling("a"), calling("a"), calling("a"), calling("")]
    assert details_of(history, before, after).sequences == (
        ToolSequence(("a",), 1, 3),
        ToolSequence(("b",), 2, 0),
        ToolSequence((), 0, 1),
    )


def test_repeats_that_all_call_the_same_tools_have_no_sequences(history: History) -> None:
    assert details_of(history, [calling("ab")] * 3, [calling("ab")] * 3).sequences == ()


def test_at_most_six_sequences_are_shown(history: History) -> None:
    found = details_of(history, [calling("a")] * 2, [calling(tool) for tool in "abcdefgh"])
    assert [sequence.tools for sequence in found.sequences] == [(tool,) for tool in "abcdef"]


@pytest.mark.parametrize(
    ("before", "after", "direction"), [("+++", "--+", -1), ("--+", "+++", 1), ("+-", "-+", 0)]
)
def test_a_check_passes_more_or_less_often(
    history: History, before: str, after: str, direction: int
) -> None:
    (check,) = details_of(history, passes(before), passes(after)).checks
    assert check.direction == direction


def test_the_message_is_that_of_the_check_that_failed(history: History) -> None:
    both = {"assertions": (Make.passed(), Make.failed(message="No hi in turn 2."))}
    (check,) = details_of(history, "+", [both]).checks
    assert (check.failure_code, check.message) == ("CONTAINS_FAILED", "No hi in turn 2.")
