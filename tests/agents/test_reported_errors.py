"""What agents say of their own failure."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.agents.reply_parts import error_text


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["down"], "down"),
        ([{"error": "down"}], "down"),
        ([{"error": {"message": "down", "code": 1}}], "down"),
        ([{"error": "ValueError", "message": "down"}], "ValueError: down"),
        ([{"message": "down"}], "down"),
        ([{"error": {"code": 1}}], '{"code":1}'),
        ([{"error": True, "message": "down"}], "down"),
        ([{"error": True, "detail": "down"}], "down"),
        ([{"type": "error"}, {"message": "down"}], "down"),
        ([None, "the whole line"], "the whole line"),
        ([{"error": 7}, ""], "no explanation"),
    ],
)
def test_the_first_part_that_says_anything_is_heard(parts: list[Any], said: str) -> None:
    assert error_text(*parts) == said
