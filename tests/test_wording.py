"""Words for messages."""

from __future__ import annotations

from kindlm.wording import count


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert count(1, "test") == "1 test"
    assert count(1200, "match", "matches") == "1,200 matches"
