"""Validation of JSON: as exact as the library, with every pattern bounded in time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft201909Validator, Draft202012Validator

from examples import examples
from kindlm.json_schema import UndecidableSchemaError, schema_issues

# Needs exponential time on a string of a's that ends in something else.
HANGS = "^(a|a)*$"
VICTIM = "a" * 60 + "!"

NUMBERS = {"patternProperties": {"^n": {"type": "integer"}}}
CLOSED = {"unevaluatedProperties": False}

SCHEMAS = [
    {**NUMBERS, **CLOSED},
    {"properties": {"a": {}}, **NUMBERS, **CLOSED},
    {"allOf": [NUMBERS, {"properties": {"a": {}}}], **CLOSED},
    {"anyOf": [NUMBERS, {"properties": {"a": {"const": 1}}, "required": ["a"]}], **CLOSED},
    {"oneOf": [{**NUMBERS, "required": ["n"]}, {"properties": {"b": {}}}], **CLOSED},
    {"if": {"required": ["a"], "properties": {"a": {}}}, "then": NUMBERS, **CLOSED},
    {"if": {"required": ["a"]}, "then": NUMBERS, "else": {"properties": {"b": {}}}, **CLOSED},
    {"dependentSchemas": {"a": NUMBERS}, "properties": {"a": {}}, **CLOSED},
    {"$defs": {"n": NUMBERS}, "$ref": "#/$defs/n", **CLOSED},
    {"allOf": [{**NUMBERS, "additionalProperties": {"type": "string"}}], **CLOSED},
    {"allOf": [{**NUMBERS, **CLOSED}], **CLOSED},
    {**NUMBERS, "unevaluatedProperties": {"type": "boolean"}},
    {**NUMBERS, "unevaluatedProperties": True},
    {"allOf": [True, False], **CLOSED},
]

objects = st.dictionaries(
    st.sampled_from(["a", "b", "n", "nn"]), st.sampled_from([1, 2, "x", True, None, 1.5])
)


@pytest.mark.parametrize("schema", SCHEMAS)
@examples(30)
@given(value=objects | st.integers() | st.lists(objects))
def test_what_is_unevaluated_is_what_the_library_says(schema: Any, value: Any) -> None:
    assert (not schema_issues(schema, value)) == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("value", [{"n": 1}, {"n": "x"}, {"z": 1}, {"child": {"z": 1}}])
def test_the_reference_of_the_older_draft_is_followed(value: Any) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": True,
        "properties": {"child": {"$recursiveRef": "#"}},
        **NUMBERS,
        **CLOSED,
    }

    assert (not schema_issues(schema, value)) == Draft201909Validator(schema).is_valid(value)


def test_a_draft_that_does_not_know_a_keyword_ignores_it() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **CLOSED}

    assert schema_issues(schema, {"a": 1}) == []


def test_every_unevaluated_property_is_reported() -> None:
    schema = {**NUMBERS, **CLOSED}

    issues = schema_issues(schema, {"n": 1, "x": 1, "y": 2})

    assert [issue.message for issue in issues] == [
        '"x" is not an allowed property',
        '"y" is not an allowed property',
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {HANGS: True}, **CLOSED},
        {"allOf": [{"patternProperties": {HANGS: True}}], **CLOSED},
        {"$defs": {"h": {"patternProperties": {HANGS: True}}}, "$ref": "#/$defs/h", **CLOSED},
    ],
)
@pytest.mark.usefixtures("impatient_patterns")
def test_a_pattern_beside_unevaluated_properties_is_bounded_in_time(schema: Any) -> None:
    with pytest.raises(UndecidableSchemaError, match="too long"):
        schema_issues(schema, {VICTIM: 1})


def test_a_value_too_deep_for_its_schema_is_undecided() -> None:
    value: list[Any] = []
    for _ in range(3000):
        value = [value]
    with pytest.raises(UndecidableSchemaError, match="nested too deeply"):
        schema_issues({"type": "array", "items": {"$ref": "#"}}, value)


def test_what_only_iris_need_is_loaded_with_the_first_one() -> None:
    code = """
import sys
from kindlm.config.json_schemas import schema_fault
from kindlm.json_schema import schema_issues

schemas = [{"type": "string", "format": name} for name in ("iri", "iri-reference")]
assert not any(map(schema_fault, schemas))
assert not schema_issues({"format": "uri"}, "https://example.org/a")
assert schema_issues({"format": "uri"}, "no uri")
assert "lark" not in sys.modules
for schema in schemas:
    assert not schema_issues(schema, "https://example.org/é")
    assert schema_issues(schema, "not an iri")
    assert "lark" in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
