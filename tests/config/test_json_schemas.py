"""JSON Schemas of users: what is none is refused at load, what never ends is undecided."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.config.json_schemas import schema_fault
from kindlm.json_schema import schema_issues
from kindlm.json_schema_keywords import UndecidableSchemaError

META = "https://json-schema.org/draft"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {
            "properties": {"x": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}},
        },
        {"anyOf": [{"type": "string"}, {"not": {"$ref": "#"}}]},
        {"type": "array", "if": {"minItems": 1}, "then": {"$ref": "#"}},
        {"dependentSchemas": {"x": {"$ref": "#"}}},
        {"$dynamicAnchor": "a", "$dynamicRef": "#a"},
        {"$schema": f"{META}/2019-09/schema", "$recursiveRef": "#"},
        {"$schema": "http://json-schema.org/draft-03/schema#", "extends": [{"$ref": "#"}]},
    ],
)
def test_a_reference_in_a_circle_leaves_a_value_undecided(schema: Any) -> None:
    value = [1] if schema.get("type") == "array" else {"x": 1}

    def deep(frames: int) -> None:
        if frames:
            deep(frames - 1)
        else:
            schema_issues(schema, value)

    # Where the stack ends, decides what fails: Python's code, or that of the library in Rust.
    for frames in range(40):
        with pytest.raises(UndecidableSchemaError, match="refers to itself"):
            deep(frames)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"type": "array", "items": {"anyOf": [{"type": "string"}, {"$ref": "#"}]}},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {}}},
        {"$recursiveRef": "#"},
        {"$ref": f"{META}/2020-12/schema"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}},
        {"const": {"$ref": "#"}},
    ],
)
def test_a_reference_for_parts_of_a_value_is_no_fault(schema: Any) -> None:
    assert schema_fault(schema) is None


def test_a_reference_to_what_is_no_schema_is_a_fault() -> None:
    assert schema_fault({"$ref": "#/words", "words": {"allOf": 5}}) is not None


@pytest.mark.parametrize(
    "schema", [{"pattern": "(?:(?:a{100}){100}){100}"}, {"items": {"pattern": "a{1000000}"}}]
)
def test_a_pattern_whose_repeats_are_too_many_to_compile_is_a_fault(schema: Any) -> None:
    fault = "it cannot be checked: a pattern has more than 100,000 parts, counting repeats"
    assert schema_fault(schema) == fault


@pytest.mark.parametrize(
    "schema", [{"pattern": "a" * 20_000}, {"patternProperties": {"a" * 20_000: {}}}]
)
def test_a_pattern_that_is_too_long_to_compile_is_a_fault(schema: Any) -> None:
    assert schema_fault(schema) == "it cannot be checked: a pattern has more than 10,000 characters"
