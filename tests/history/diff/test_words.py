"""Word diffs: nothing is lost, and no text takes long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kindlm.history.diff.details import Edit, diff_words

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


def test_words_that_are_everywhere_in_a_text_hold_it_together_too() -> None:
    old = ["yes", "yes", "no"] * 120
    new = list(old)
    new[10] = new[350] = "maybe"
    found = diff_words(" ".join(old), " ".join(new))
    assert [text for edit, text in found.segments if edit is Edit.ADDED] == [" maybe", " maybe"]
