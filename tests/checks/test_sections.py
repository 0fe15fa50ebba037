"""What the class of a check must say, before any suite uses it."""

from __future__ import annotations

import pytest

from kindlm.checks.base import CheckSection, Key


def test_a_check_without_demands_is_refused() -> None:
    with pytest.raises(TypeError, match="Words must say what it `demands`"):

        class Words(CheckSection):
            key = Key("wordCount")
