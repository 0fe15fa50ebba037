"""JSON that is printed: the same values, and nothing that a terminal obeys."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.reports.untrusted import printed_json

TRICKS = "\x1b[31m \x7f \x85 \x9b31m \u061c\u200b\u200e\u2028\u2029\u202e\u2066\ufeff \U000e0041"


def hidden(text: str) -> list[str]:
    """Return the characters of a printed text that change what is seen around them."""
    return [
        char
        for char in text
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Co")
        and char not in "\n\u200c\u200d"
    ]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("\x9b31m", r'"\u009b31m"'),
        ("\x85\x7f", r'"\u0085\u007f"'),
        ("evil\u202etxt", r'"evil\u202etxt"'),
        ("a\u2028b\u2029", r'"a\u2028b\u2029"'),
        ("tag\U000e0041", r'"tag\udb40\udc41"'),
        ("half\ud83d", r'"half\ud83d"'),
        ("Grüße 日本 👩\u200d🔬 \u00a0", '"Grüße 日本 👩\u200d🔬 \u00a0"'),
    ],
)
def test_what_is_not_meant_to_be_read_is_escaped(value: str, written: str) -> None:
    assert printed_json(value) == written


@given(
    st.recursive(
        st.text() | st.integers() | st.none() | st.text(alphabet=TRICKS),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from([None, 2]),
)
def test_the_value_stays_and_nothing_hides(value: Any, indent: int | None) -> None:
    written = printed_json(value, indent=indent)
    assert json.loads(written) == value
    assert not hidden(written)
