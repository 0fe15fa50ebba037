"""Validation of JSON: as exact as the library, with every pattern bounded in time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kindlm.json_schema import schema_issues
from kindlm.json_schema_keywords import UndecidableSchemaError

# Needs exponential time on a string of a's that ends in something else.
HANGS = "^(a|a)*$"
VICTIM = "a" * 60 + "!"

NUMBERS = {"patternProperties": {"^n": {"type": "integer"}}}
CLOSED = {"unevaluatedProperties": False}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
VALUES = [{}, {"a": 1}, {"a": 2, "n": 1}, {"n": 1}, {"n": "x"}, {"b": 1}, {"a": 1, "b": 1}, 1, [{}]]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {}}, **NUMBERS, **CLOSED},
        {"properties": {"a": {"type": "integer"}}, "items": {**NUMBERS, **CLOSED}, **CLOSED},
        {"anyOf": [NUMBERS, {"properties": {"a": {"const": 1}}, "required": ["a"]}], **CLOSED},
        {"oneOf": [{**NUMBERS, "required": ["n"]}, {"properties": {"b": {}}}], **CLOSED},
        {"if": {"required": ["a"]}, "then": NUMBERS, "else": {"properties": {"b": {}}}, **CLOSED},
        {"dependentSchemas": {"a": NUMBERS}, "properties": {"a": {}}, **CLOSED},
        {"$defs": {"n": NUMBERS}, "$ref": "#/$defs/n", **CLOSED},
        {"allOf": [{**NUMBERS, "additionalProperties": {"type": "string"}}], **CLOSED},
        {"allOf": [{**NUMBERS, **CLOSED}], **CLOSED},
        {**NUMBERS, "unevaluatedProperties": {"type": "boolean"}},
        {"allOf": [True, False], **CLOSED},
    ],
)
def test_what_is_unevaluated_is_what_the_library_says(schema: Any) -> None:
    for value in VALUES:
        assert (not schema_issues(schema, value)) == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"properties": {"a": {**NUMBERS, **CLOSED}}}, {"a": {"n": 1}}, True),
        ({"properties": {"a": {**NUMBERS, **CLOSED}}}, {"a": {"m": 1}}, False),
        ({**DRAFT_2019, "properties": {"a": {}}, **CLOSED}, {"a": 1}, True),
        ({**DRAFT_2019, "properties": {"a": {}}, **CLOSED}, {"b": 1}, False),
        ({**DRAFT_2019, "items": {}, "unevaluatedItems": False}, [1], True),
        ({**DRAFT_2019, "items": [{}], "unevaluatedItems": False}, [1, 2], False),
        # Dependent schemas are about the names of an object, not about the items of a list.
        ({"dependentSchemas": {"a": {"items": True}}, "unevaluatedItems": False}, ["a"], False),
    ],
)
def test_what_is_unevaluated_is_decided(schema: Any, value: Any, fits: bool) -> None:
    assert (schema_issues(schema, value) == []) is fits


def test_a_rule_that_the_library_cannot_apply_decides_nothing() -> None:
    schema = {**DRAFT_2019, "items": True, "unevaluatedItems": False}
    with pytest.raises(UndecidableSchemaError, match="cannot be applied"):
        schema_issues(schema, [1])


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": 5},
        {"$id": 5},
        {"$ref": 5},
        {"properties": []},
        {"properties": {"a": 5}},
        {"patternProperties": []},
        {"dependentRequired": []},
        {"additionalProperties": 5},
        {"type": "text"},
        {"allOf": 5},
        {"$defs": 5},
        "object",
        None,
    ],
)
def test_an_invalid_schema_such_as_of_a_server_decides_nothing(schema: Any) -> None:
    with pytest.raises(UndecidableSchemaError, match="cannot be applied"):
        schema_issues(schema, {"a": 1})


def test_every_unevaluated_property_is_reported() -> None:
    issues = schema_issues({**NUMBERS, **CLOSED}, {"n": 1, "x": 1, "y": 2})

    assert [issue.message for issue in issues] == [
        '"x" is not an allowed property',
        '"y" is not an allowed property',
    ]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": HANGS}, VICTIM),
        ({"patternProperties": {HANGS: True}}, {VICTIM: 1}),
        ({"patternProperties": {HANGS: True}, "additionalProperties": False}, {VICTIM: 1}),
        ({"allOf": [{"patternProperties": {HANGS: True}}], **CLOSED}, {VICTIM: 1}),
        ({"properties": {"a": {"$ref": "#"}}, "pattern": HANGS}, {"a": VICTIM}),
    ],
)
@pytest.mark.usefixtures("impatient_patterns")
def test_a_pattern_that_takes_too_long_decides_nothing(schema: Any, value: Any) -> None:
    with pytest.raises(UndecidableSchemaError, match="too long"):
        schema_issues(schema, value)


def test_the_list_is_bounded() -> None:
    assert len(schema_issues({"items": {"type": "string"}}, list(range(10_000)))) == 50


def test_a_draft_that_does_not_know_a_keyword_ignores_it() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **CLOSED}

    assert schema_issues(schema, {"a": 1}) == []


def test_a_value_too_deep_for_its_schema_is_undecided() -> None:
    value: list[Any] = []
    for _ in range(3000):
        value = [value]
    with pytest.raises(UndecidableSchemaError, match="nested too deeply"):
        schema_issues({"type": "array", "items": {"$ref": "#"}}, value)


def test_what_only_iris_need_is_loaded_with_the_first_one() -> None:
    code = """
import sys
from types import SimpleNamespace
from kindlm.config.json_schemas import schema_fault
from kindlm.json_schema import schema_issues

schemas = [{"type": "string", "format": name} for name in ("iri", "iri-reference")]
assert not any(map(schema_fault, schemas))
assert not schema_issues({"format": "uri"}, "https://example.org/a")
assert schema_issues({"format": "uri"}, "no uri")
assert "lark" not in sys.modules
# The real one makes a parser of a grammar for seconds.
parser = SimpleNamespace(is_valid_syntax=lambda term, value: (term, value) == ("iri", "é:é"))
sys.modules["rfc3987_syntax"] = parser
assert not schema_issues(schemas[0], "é:é")
assert schema_issues(schemas[0], "not an iri")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"pattern": "^A[0-9]$"}, "A1\n", False),
        ({"pattern": "(?m)^A[0-9]$"}, "A1\nB", True),
        ({"pattern": "(?i-m:^A[0-9]$)"}, "A1\nB", False),
        ({"pattern": "^A[0-9]$|^B"}, "A1", True),
        ({"pattern": r"^[$\]$]\$$"}, "$$", True),
        ({"patternProperties": {"^a$": False}}, {"a\n": 1}, True),
        ({"additionalProperties": False, "patternProperties": {"^a$": {}}}, {"a\n": 1}, False),
    ],
)
def test_a_dollar_in_a_pattern_is_the_very_end(schema: Any, value: Any, fits: bool) -> None:
    assert (schema_issues(schema, value) == []) is fits


@pytest.mark.parametrize(
    ("address", "fits"),
    [
        ("jane@example.com", True),
        ("jane.doe+a@localhost", True),
        ('"jane @ doe"@example.com', True),
        ("jane@[127.0.0.1]", True),
        ("jané@exämple.com", True),
        ("@", False),
        ("jane@", False),
        ("jane doe@example.com", False),
        ("jane@example.com, joe@example.com", False),
        ("Jane <jane@example.com>", False),
        ("jane@@example.com", False),
        ("jane.@example.com", False),
        ("jane@example.com.", False),
        ("jane@example.com\n", False),
    ],
)
def test_an_email_is_more_than_a_text_with_an_at_sign(address: str, fits: bool) -> None:
    for name in ("email", "idn-email"):
        assert (schema_issues({"format": name}, address) == []) is fits


def test_formats_are_checked_in_every_draft() -> None:
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert schema_issues({**draft_7, "format": "uuid"}, "A1")
    assert schema_issues({**draft_7, "format": "duration"}, "a day")
    assert schema_issues({"format": "ip-address"}, "localhost")


@pytest.mark.parametrize("color", ["#ff8800", "rebeccapurple", "rgb(255, 136, 0)"])
def test_a_color_may_be_any_of_today(color: str) -> None:
    """The format is of draft 3, which knows only the 17 names of CSS 2.1 and hexadecimal ones."""
    assert not schema_issues({"format": "color"}, color)
