"""Sequences of tool calls, brought in line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.diff.call_changes import Call, CallEdit, compare_arguments, diff_calls
from kindlm.matching import ABSENT


def calls(*made: str | tuple[str, Any]) -> list[Call]:
    named = (call if isinstance(call, tuple) else (call, {}) for call in made)
    return [Call(*call, position=position) for position, call in enumerate(named)]


def edits(before: list[Call], after: list[Call]) -> list[str]:
    return [f"{change.edit} {change.made.tool}" for change in diff_calls(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("ab", "ab", ["same a", "same b"]),
        ("ab", "a", ["same a", "removed b"]),
        ("ab", "ba", ["same b", "moved a"]),
        ("abc", "axc", ["same a", "removed b", "added x", "same c"]),
        ("aab", "ab", ["same a", "removed a", "same b"]),
        ("", "", []),
    ],
)
def test_tools_by_name(before: str, after: str, expected: list[str]) -> None:
    found = edits(calls(*before), calls(*after))
    assert sorted(found) == sorted(expected)


def test_calls_with_the_same_arguments_belong_together() -> None:
    before = calls(("find", {"q": "a"}), ("find", {"q": "b"}))
    after = calls(("find", {"q": "b"}))
    assert edits(before, after) == ["removed find", "same find"]
    assert diff_calls(before, after)[0].made.arguments == {"q": "a"}


def test_a_call_that_moved_may_have_changed_too() -> None:
    before = calls(("a", {"x": 1}), "b")
    after = calls("b", ("a", {"x": 2}))
    (_, moved) = diff_calls(before, after)
    assert moved.edit is CallEdit.MOVED
    assert (moved.before, moved.after) == (before[0], after[1])
    assert [(found.path, found.before, found.after) for found in moved.arguments] == [("x", 1, 2)]


def test_arguments_are_compared_key_by_key() -> None:
    found = compare_arguments(
        {"id": "A1", "amount": 49.99, "gone": None, "deep": {"list": [1, 2]}},
        {"amount": 60, "id": "A1", "new": None, "deep": {"list": [1, 3]}},
    )
    assert [(argument.path, argument.before, argument.after) for argument in found] == [
        ("amount", 49.99, 60),
        ("gone", None, ABSENT),
        ("deep.list[1]", 2, 3),
        ("new", ABSENT, None),
    ]


def test_arguments_that_mean_the_same_are_the_same() -> None:
    assert compare_arguments({"a": 1, "b": [1.0]}, {"b": [1], "a": 1.0}) == ()
    assert compare_arguments({"a": 1}, {"a": True})[0].after is True


def test_arguments_that_are_no_json_are_shown_as_they_were_written() -> None:
    (change,) = diff_calls(calls(("a", {"x": 1})), calls(("a", '{"x": ')))
    assert change.arguments[0].after == '{"x": '


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=12),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=12),
)
def test_every_call_is_reported_exactly_once(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    changes = diff_calls(calls(*before), calls(*after))
    told = (change.before.position for change in changes if change.before)
    assert sorted(told) == list(range(len(before)))
    # The newer run is read from top to bottom.
    assert [c.after.position for c in changes if c.after] == list(range(len(after)))


def test_very_long_sequences_are_bounded() -> None:
    changes = diff_calls(calls(*["a"] * 5_000), calls(*["b"] * 5_000))
    assert len(changes) == 600
