"""What the class of a check must say, before any suite uses it."""

from __future__ import annotations

import pytest

from kindlm.checks.base import CheckSection, Key
from kindlm.outcome import Demands


@pytest.mark.parametrize("name", ["word_count", "word-count", "words.count"])
def test_a_key_that_is_not_in_camel_case_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"The key '{name}' of Words must be in camelCase"):

        class Words(CheckSection):
            key = Key(name)
            demands = Demands.TASK


def test_a_check_without_demands_is_refused() -> None:
    with pytest.raises(TypeError, match="Words must say what it `demands`"):

        class Words(CheckSection):
            key = Key("wordCount")
