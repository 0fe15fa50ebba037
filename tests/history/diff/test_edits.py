"""What became of words and of tool calls: nothing is lost, and nothing takes long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.diff.call_changes import Call, CallEdit, compare_arguments, diff_calls
from kindlm.history.diff.details import Edit, diff_words
from kindlm.matching import ABSENT

TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(["a", "b", " ", "c.", "\n", "été"]), max_size=120).map("".join),
)


def side(before: str, after: str, *edits: Edit) -> str:
    return "".join(text for edit, text in diff_words(before, after).segments if edit in edits)


@given(TEXTS, TEXTS)
def test_both_texts_can_be_read_from_the_pieces(before: str, after: str) -> None:
    assert side(before, after, Edit.KEPT, Edit.REMOVED) == before
    assert side(before, after, Edit.KEPT, Edit.ADDED) == after


@given(TEXTS)
def test_the_same_text_has_no_changes(text: str) -> None:
    assert all(edit is Edit.KEPT for edit, _ in diff_words(text, text).segments)


def test_what_was_removed_comes_before_what_took_its_place() -> None:
    found = diff_words("It costs 10 dollars now.", "It costs 12 euros now.")
    assert found.segments == (
        (Edit.KEPT, "It costs"),
        (Edit.REMOVED, " 10 dollars"),
        (Edit.ADDED, " 12 euros"),
        (Edit.KEPT, " now."),
    )


def test_one_word_that_stays_inside_a_change_belongs_to_the_change() -> None:
    found = diff_words("start red and blue end", "start green and brown end")
    assert [edit for edit, _ in found.segments] == [
        Edit.KEPT,
        Edit.REMOVED,
        Edit.ADDED,
        Edit.KEPT,
    ]


def test_texts_with_nothing_in_common_are_replaced_as_a_whole() -> None:
    old = " ".join(f"old{n}" for n in range(3_000))
    new = " ".join(f"new{n}" for n in range(3_000))
    found = diff_words(old, new)
    assert [edit for edit, _ in found.segments] == [Edit.REMOVED, Edit.ADDED]


def test_long_texts_are_compared_from_their_beginning_and_say_so() -> None:
    found = diff_words("a " * 50_000, "a " * 50_000 + "b")
    assert {edit for edit, _ in found.segments} == {Edit.KEPT}
    assert found.left_out == 80_001


def test_what_has_too_many_words_is_replaced_between_what_stays() -> None:
    found = diff_words(f"start {'!?' * 3_000} end", f"start {';?' * 3_000} end")
    assert [edit for edit, _ in found.segments] == [
        Edit.KEPT,
        Edit.REMOVED,
        Edit.ADDED,
        Edit.KEPT,
    ]


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
        ("new", ABSENT, None),
        ("amount", 49.99, 60),
        ("gone", None, ABSENT),
        ("deep.list[1]", 2, 3),
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


def test_very_long_sequences_are_compared_to_their_end() -> None:
    before, after = (calls(*"a" * 5_000, last) for last in "ab")
    changed = [found for found in diff_calls(before, after) if found.edit is not CallEdit.SAME]
    assert [(found.edit, found.made.position) for found in changed] == [
        (CallEdit.REMOVED, 5_000),
        (CallEdit.ADDED, 5_000),
    ]
    assert len(diff_calls(before, after[:400])) == 5_001


def test_all_arguments_that_changed_are_reported() -> None:
    names = [f"a{number}" for number in range(300)]
    assert len(compare_arguments(dict.fromkeys(names, 1), dict.fromkeys(names, 2))) == 300
