"""Strict JSON: what is read can be written again."""

from __future__ import annotations

import json
import re

import pytest

from kindlm.strict_json import parse_json


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"x": 1e400}', "-1e999", "[" * 100_000, ""])
def test_what_could_not_be_written_again_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


@pytest.mark.parametrize("text", ["1e308", "123456789012345678901234567890", '{"x":[0.1,null]}'])
def test_what_can_be_is(text: str) -> None:
    assert parse_json(json.dumps(parse_json(text), allow_nan=False)) == parse_json(text)


def test_the_members_of_an_object_can_be_looked_at() -> None:
    assert parse_json('{"a": 1, "a": 2}', tuple) == (("a", 1), ("a", 2))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Expecting value (line 1, column 1)"),
        ("\ufeff{}", "Unexpected UTF-8 BOM (line 1, column 1)"),
        ("1" * 5_000, "an integer has more than 4,300 digits"),
        ('{"a": 1\n"b": 2}', "Expecting ',' delimiter (line 2, column 1)"),
        ('{"a" 1}', "Expecting ':' delimiter (line 1, column 6)"),
        ("{a: 1}", "Expecting property name enclosed in double quotes (line 1, column 2)"),
        ('["a', "Unterminated string starting at (line 1, column 2)"),
        ('["a\nb"]', "Invalid control character at"),
        ('["\\x"]', "Invalid \\"),
        ('["\\u12"]', "Invalid \\"),
        ("{} {}", "Extra data (line 1, column 4)"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_json(text)
