"""JSON that agents send: strict, so that what is read can be written again."""

from __future__ import annotations

import pytest

from kindlm.agents.json_values import compact_json, parse_json


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"x": 1e400}', "-1e999", "[" * 100_000, ""])
def test_what_could_not_be_written_again_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


@pytest.mark.parametrize("text", ["1e308", "123456789012345678901234567890", '{"x":[0.1,null]}'])
def test_what_can_be_is(text: str) -> None:
    assert parse_json(compact_json(parse_json(text))) == parse_json(text)
