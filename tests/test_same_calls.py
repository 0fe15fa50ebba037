"""Which reported calls are one call that is told again, and which are calls of their own."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.same_calls import KnownCalls, merged_uses, places_of_repeats
from kindlm.transcript import ToolCall, ToolUse


def call(name: str, arguments: Any = None, id: str = "") -> ToolCall:  # noqa: A002
    return ToolCall(id, name, arguments or {})


def use(name: str, arguments: Any = None, id: str = "", response: Any = None) -> ToolUse:  # noqa: A002
    return ToolUse(call(name, arguments, id), response=response)


KNOWN = call("lookup", {"id": 1}, id="c1")


@pytest.mark.parametrize(
    ("later", "is_known"),
    [
        (call("lookup", {"id": 1}), True),
        (call("lookup"), True),
        (call("lookup", {"id": 2}), False),
        (call("refund"), False),
        (call("lookup", {"id": 1}, id="c1"), True),
        (call("lookup", {"id": 2}, id="c1"), False),
        (call("lookup", id="c1"), True),
    ],
)
def test_a_call_is_known_by_what_it_says(later: ToolCall, is_known: bool) -> None:
    assert KnownCalls([KNOWN]).has(later) is is_known


def test_a_call_of_an_earlier_answer_is_known_by_its_id_alone() -> None:
    told = KnownCalls([], [KNOWN])
    assert told.has(call("lookup", {"id": 1}, id="c1"))
    assert not told.has(call("lookup", {"id": 1}))
    assert not told.has(call("lookup"))


def test_each_known_call_is_repeated_once() -> None:
    known = [call("lookup", {"id": 1}), call("lookup", {"id": 1})]
    later = [call("lookup", {"id": 1}) for _ in range(3)]
    assert places_of_repeats(known, later) == [0, 1, None]


def test_an_id_and_a_name_without_arguments_add_nothing_however_often() -> None:
    known = [call("lookup", {"id": 1}, id="c1")]
    later = [call("lookup", id="c1"), call("lookup", id="c1"), call("lookup", {"id": 2})]
    assert places_of_repeats(known, later) == [0, 0, None]


@pytest.mark.parametrize(("by_id", "answers"), [(True, ["old", "new"]), (False, ["old"])])
def test_ids_of_something_else_say_nothing(by_id: bool, answers: list[str]) -> None:
    known = [use("lookup", {"id": 1}, id="span-1", response="old")]
    later = [use("lookup", id="call-1", response="new")]
    joined = merged_uses(known, later, by_id=by_id)
    assert [each.response for each in joined] == answers


def test_the_same_id_with_other_arguments_is_another_call() -> None:
    known = [call("lookup", {"id": 1}, id="c1")]
    assert places_of_repeats(known, [call("lookup", {"id": 2}, id="c1")]) == [None]


def test_of_equal_calls_the_one_with_the_same_id_is_repeated() -> None:
    known = [call("lookup", {"id": 1}, id="c1"), call("lookup", {"id": 1}, id="c2")]
    assert places_of_repeats(known, [call("lookup", {"id": 1}, id="c2")]) == [1]
