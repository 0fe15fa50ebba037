"""Strict JSON: what is read can be written again."""

from __future__ import annotations

import json

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
