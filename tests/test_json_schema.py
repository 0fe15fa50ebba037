"""Validation of JSON: as exact as the library, with every pattern bounded in time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kindlm.json_schema import UndecidableSchemaError, schema_issues

# Needs exponential time on a string of a's that ends in something else.
HANGS = "^(a|a)*$"
VICTIM = "a" * 60 + "!"

CLOSED = {"unevaluatedProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {HANGS: True}, **CLOSED},
        {"allOf": [{"patternProperties": {HANGS: True}}], **CLOSED},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", **CLOSED},
    ],
)
def test_what_the_library_does_not_evaluate_reliably_is_undecided(schema: Any) -> None:
    with pytest.raises(UndecidableSchemaError, match="unevaluatedProperties"):
        schema_issues(schema, {"n": 1})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": HANGS}, VICTIM),
        ({"patternProperties": {HANGS: True}}, {VICTIM: 1}),
        ({"patternProperties": {HANGS: True}, "additionalProperties": False}, {VICTIM: 1}),
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
