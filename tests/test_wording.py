"""Words for messages."""

from __future__ import annotations

import pytest

from kindlm.wording import count, excerpt, listed, measured


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


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [
        (0.83096, 0.15, "0.831"),
        (0.15, 0.15, "0.15"),
        # Rounding must not take a number to its limit, or over it.
        (0.15004, 0.15, "0.15004"),
        (0.79972, 0.8, "0.79972"),
        (0.79951, 0.7999, "0.79951"),
        (1, 0.99999, "1"),
    ],
)
def test_a_measured_number_is_on_its_side_of_the_limit(
    value: float, limit: float, text: str
) -> None:
    assert measured(value, limit) == text
