"""Conversations of several turns: answers and calls are compared turn by turn."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from compared_runs import compared, record_run
from recorded_history import History, Make

from kindlm.history.diff.call_changes import CallEdit
from kindlm.history.diff.evidence_values import FailOn, Kind, TestDiff
from kindlm.history.diff.samples import turns_of
from kindlm.reports.diff.terminal import write_diff
from kindlm.reports.report_registry import ReportOptions


def diff_of(history: History, before: dict[str, Any], after: dict[str, Any]) -> TestDiff:
    usual = {"assertions": (Make.passed(),), "output": "Bye."}
    record_run(history, "before", {"it": [usual | before] * 3})
    record_run(history, "after", {"it": [usual | after] * 3})
    (test,) = compared(history).tests
    return test


def test_another_answer_of_an_earlier_turn_is_seen(history: History) -> None:
    test = diff_of(history, {"earlier": ("Hi.", "Sure.")}, {"earlier": ("Go away.", "Sure.")})
    assert (test.kind, test.behaviour.turns, test.behaviour.output) == (
        Kind.OTHER_WORDS,
        (1,),
        False,
    )
    words = compared(history).details(test).words
    assert list(words) == [1]
    assert "".join(text for _, text in words[1].segments).count("Go away") == 1
    out = StringIO()
    write_diff(compared(history), out, ReportOptions(color=False, width=100))
    assert "passed 3/3, other words in turn 1" in out.getvalue()


def test_the_same_answers_are_unchanged(history: History) -> None:
    test = diff_of(history, {"earlier": ("Hi.",)}, {"earlier": ("Hi.",)})
    assert (test.kind, test.behaviour.turns) == (Kind.UNCHANGED, ())
    assert compared(history).details(test).words == {}


def test_a_call_in_another_turn_is_other_behaviour(history: History) -> None:
    talk = {"earlier": ("Hi.",), "tools": (("refund", {"id": 1}, None),)}
    test = diff_of(history, talk | {"tool_turn": 2}, talk | {"tool_turn": 1})
    assert (test.kind, test.behaviour.tools) == (Kind.OTHER_BEHAVIOUR, True)
    (change,) = compared(history).details(test).calls
    assert change.edit is CallEdit.MOVED
    assert [call and call.turn for call in (change.before, change.after)] == [2, 1]
    assert compared(history, fail_on=FailOn.BEHAVIOUR).fails
    out = StringIO()
    write_diff(compared(history), out, ReportOptions(color=False, width=100))
    assert "refund  was in turn 2, is in turn 1" in out.getvalue()


def test_an_erased_answer_of_an_earlier_turn_cannot_be_compared(history: History) -> None:
    record_run(history, "before", {"it": [{"earlier": ("Secret.",), "assertions": ()}]})
    record_run(history, "after", {"it": [{"earlier": ("Hello.",), "assertions": ()}]})
    history.erase("run/before")
    (test,) = compared(history).tests
    assert (test.behaviour.erased, test.behaviour.turns) == (True, ())


@pytest.mark.parametrize(
    ("users", "turns"),
    [
        # The first message is that of the test, or comes with the first call.
        ([0, 0, 1, 0], [1, 1, 2, 2]),
        ([1, 0, 1, 1], [1, 1, 2, 3]),
        ([], []),
    ],
)
def test_a_turn_begins_with_a_message_of_the_user(users: list[int], turns: list[int]) -> None:
    assert list(turns_of(enumerate(users, start=1)).values()) == turns
