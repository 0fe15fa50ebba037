"""Words for messages."""

from __future__ import annotations

from kindlm.wording import count, excerpt, listed


def test_the_beginning_of_a_text_is_not_written_out() -> None:
    # It becomes a value, and what shows values would write out what was written out before.
    assert excerpt("he\u202ello \x1b[31m") == "he\u202ello \x1b[31m"
    assert excerpt("x" * 1_000) == "x" * 159 + "…"


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert count(1, "test") == "1 test"
    assert count(1200, "match", "matches") == "1,200 matches"


def test_a_list_says_how_much_it_leaves_out() -> None:
    assert listed(["a", "b"], 2) == "a; b"
    assert listed([1, 2, 3, 4, 5], 2) == "1; 2; and 3 more"
