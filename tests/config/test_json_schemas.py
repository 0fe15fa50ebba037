"""JSON Schemas of users: what would crash or never end when it is used is refused at load."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.config.json_schemas import schema_fault
from kindlm.json_schema import schema_issues

ENDLESS = "it refers to itself for the same value, without end"
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
        {"if": {"type": "string"}, "then": {"$ref": "#"}},
        {"dependentSchemas": {"x": {"$ref": "#"}}},
        {"$dynamicAnchor": "a", "$dynamicRef": "#a"},
        {"$schema": f"{META}/2019-09/schema", "$recursiveRef": "#"},
    ],
)
def test_a_reference_in_a_circle_is_a_fault(schema: Any) -> None:
    assert schema_fault(schema) == ENDLESS


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
def test_a_reference_for_parts_of_a_value_is_not_one(schema: Any) -> None:
    assert schema_fault(schema) is None


def test_a_reference_to_what_is_no_schema_is_a_fault() -> None:
    assert schema_fault({"$ref": "#/words", "words": {"allOf": 5}}) is not None


parts = st.sampled_from(["#", "#/$defs/a", "#/$defs/b"]).map(lambda name: {"$ref": name})
schemas = st.recursive(
    parts | st.just({"type": "object"}),
    lambda inner: (
        st.builds(lambda some: {"allOf": some}, st.lists(inner, min_size=1, max_size=2))
        | st.builds(lambda one: {"properties": {"x": one}}, inner)
        | st.builds(lambda one: {"items": one}, inner)
    ),
    max_leaves=4,
)


@given(schemas, schemas, schemas)
def test_what_has_no_fault_ends(root: Any, a: Any, b: Any) -> None:
    schema = {**root, "$defs": {"a": a, "b": b}}
    if schema_fault(schema) is None:
        schema_issues(schema, {"x": {"x": [{"x": 1}]}})


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
