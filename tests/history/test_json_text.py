"""JSON that models and tools wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindlm.strict_json import read_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)  # fmt: skip


@settings(max_examples=30)
@given(values)
def test_json_is_read(value: Any) -> None:
    assert read_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    ["NaN", "-Infinity", "[1e999]", '"\\ud800"', "{", "", "plain", "[" * 100_000, "9" * 5_000],
)
def test_what_others_could_not_read_stays_a_text(text: str) -> None:
    assert read_json(text) == text


def test_deep_json_stays_a_text() -> None:
    deep = "[" * 300 + "]" * 300
    assert read_json(deep) == deep
    assert read_json("[" * 100 + "]" * 100) != "[" * 100 + "]" * 100


def test_no_text_is_no_value() -> None:
    assert read_json(None) is None
