"""Validation of JSON is bounded in work, and finds what jsonschema by itself finds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Container
from itertools import islice
from random import Random
from typing import Any

import jsonschema
import pytest
from jsonschema.protocols import Validator
from referencing.exceptions import Unresolvable

from kindlm.config.json_schemas import schema_fault
from kindlm.json_schema import schema_issues
from kindlm.json_schema_keywords import Budget, UndecidableSchemaError, one_budget

DRAFTS: list[type[Validator]] = [
    jsonschema.Draft3Validator,
    jsonschema.Draft4Validator,
    jsonschema.Draft6Validator,
    jsonschema.Draft7Validator,
    jsonschema.Draft201909Validator,
    jsonschema.Draft202012Validator,
]
OWN_WORDS = {"pattern", "patternProperties", "additionalProperties", "unevaluatedProperties"}
"""Keywords with messages of ours."""

SEEDS = 60
SCALARS = [None, True, False, 0, 1, 2, 1.0, 0.5, 10**400, "", "a", "b", "ab"]
KINDS = ["object", "array", "string", "number", "integer", "boolean", "null"]


class _Drawn:
    """Schemas and values, drawn by chance."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def value(self, depth: int = 3) -> Any:
        kind = self._random.randrange(4) if depth else 0
        if kind == 1:
            return [self.value(depth - 1) for _ in range(self._random.randrange(5))]
        if kind == 2:
            return {name: self.value(depth - 1) for name in self._names(3)}
        return self._random.choice(SCALARS)

    def document(self, draft: type[Validator]) -> dict[str, Any]:
        """Return a schema of a draft, with references and anchors of all sorts."""
        known = draft.VALIDATORS.keys() | {"minContains", "maxContains", "then", "else"}
        if draft is jsonschema.Draft201909Validator:
            # The library takes the keywords in `additionalProperties` for names of properties.
            known -= {"unevaluatedProperties"}
        root, a, b = (self._schema(known, 2) for _ in range(3))
        identity = "$id" if "const" in known else "id"
        named = {identity: "part", "$anchor": "word", "$dynamicAnchor": "node"}
        document: dict[str, Any] = {"$dynamicAnchor": "node"}
        if "$recursiveRef" in known:
            document = {"$recursiveAnchor": True}
        return {**root, **document, "$defs": {"a": a, "b": {**named, **b}}}

    def _part(self, known: Container[str], depth: int) -> Any:
        if "const" in known and self._random.random() < 0.1:
            return self._random.choice([True, False])
        return self._schema(known, depth)

    def _schema(self, known: Container[str], depth: int) -> dict[str, Any]:
        chance, some = self._random.choice, self._random.randrange

        def part() -> Any:
            return self._part(known, depth - 1)

        makers: dict[str, Callable[[], Any]] = {
            "type": lambda: chance([chance(KINDS), self._random.sample(KINDS, 2)]),
            "enum": lambda: [self.value(1), "c", [1], {"a": True}][some(3) :],
            "const": lambda: self.value(1),
            "multipleOf": lambda: chance([1, 2, 0.1, 0.5, 10**400]),
            "minimum": lambda: some(3),
            "maxLength": lambda: some(3),
            "format": lambda: chance(["email", "regex", "date", "none of ours"]),
            "pattern": lambda: chance(["^a", "b"]),
            "minItems": lambda: some(3),
            "minContains": lambda: some(3),
            "maxContains": lambda: some(3),
            "uniqueItems": lambda: chance([True, True, False]),
            "minProperties": lambda: some(3),
            "required": lambda: self._names(2) or ["a"],
            "dependentRequired": lambda: {"a": ["b"]},
            "$ref": lambda: chance(["#/$defs/a", "#/$defs/b", "#word", "part"]),
            "$dynamicRef": lambda: chance(["#node", "#/$defs/a"]),
            "$recursiveRef": lambda: "#",
        }
        if depth:
            one = (
                *("items", "additionalItems", "unevaluatedItems", "contains", "propertyNames"),
                *("additionalProperties", "unevaluatedProperties", "not", "if", "then", "else"),
            )
            makers |= dict.fromkeys(one, part)
            several = ("prefixItems", "allOf", "anyOf", "oneOf", "extends", "disallow")
            makers |= dict.fromkeys(several, lambda: [part() for _ in range(1 + some(3))])
            by_name = ("properties", "dependentSchemas", "dependencies")
            makers |= dict.fromkeys(by_name, lambda: {name: part() for name in self._names(2)})
            makers["patternProperties"] = lambda: {chance(["^a", "b$", "."]): part()}
        usable = [name for name in makers if name in known]
        return {name: makers[name]() for name in self._random.sample(usable, some(4))}

    def _names(self, most: int) -> list[str]:
        return self._random.sample("abc", self._random.randrange(most + 1))


def _of_library(draft: type[Validator], schema: Any, value: Any) -> list[tuple[str, str]]:
    found = draft(schema, format_checker=draft.FORMAT_CHECKER).iter_errors(value)
    listed = [(error.json_path, error.message) for error in islice(found, 50)]
    return [(path, text if len(text) <= 200 else f"{text[:199]}…") for path, text in listed]


def _named(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for part in schema for name in _named(part)}
    if not isinstance(schema, dict):
        return set()
    return set(schema) | {name for part in schema.values() for name in _named(part)}


@pytest.mark.parametrize("draft", DRAFTS)
def test_what_does_not_fit_is_what_the_library_finds(draft: type[Validator]) -> None:
    compared = 0
    for seed in range(SEEDS):
        drawn = _Drawn(seed)
        schema, value = drawn.document(draft), drawn.value()
        written = {"$schema": draft.META_SCHEMA["$schema"], **schema}
        if schema_fault(written) is not None:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = _of_library(draft, schema, value)
        except (RecursionError, OverflowError, TypeError, Unresolvable):
            continue  # what the library cannot do, it need not agree about
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # a RecursionError in Rust
                raise
            continue
        found = schema_issues(written, value)

        assert (not found) == (not expected), (seed, schema, value)
        if OWN_WORDS.isdisjoint(_named(schema)):
            assert [(issue.path, issue.message) for issue in found] == expected, seed
        compared += 1
    assert compared > SEEDS // 2


def _doubled(keyword: str, last: Any, reference: str = "$ref") -> dict[str, Any]:
    """Return a schema of 30 levels, each of which looks twice at the next one."""
    levels = {
        f"n{level}": {
            "$dynamicAnchor": f"n{level}",
            keyword: [
                {reference: f"#n{level + 1}" if reference != "$ref" else f"#/$defs/n{level + 1}"}
                for _ in range(2)
            ],
        }
        for level in range(30)
    }
    levels["n30"] = {"$dynamicAnchor": "n30", **last}
    return {"$ref": "#/$defs/n0", "$defs": levels}


@pytest.mark.parametrize(
    ("keyword", "last", "reference"),
    [
        ("anyOf", {"not": {}}, "$ref"),
        ("allOf", {}, "$ref"),
        ("oneOf", {}, "$ref"),
        ("allOf", {}, "$dynamicRef"),
    ],
)
def test_a_part_that_too_many_ways_lead_to_is_given_up(
    keyword: str, last: Any, reference: str
) -> None:
    with (
        one_budget(Budget(steps=2_000)),
        pytest.raises(UndecidableSchemaError, match="stopped after"),
    ):
        schema_issues(_doubled(keyword, last, reference), 1)


def _depended_on(reference: str) -> dict[str, Any]:
    """Return a schema of 30 levels, each of which leads twice to the next one for {a, b}."""
    doubled = _doubled("allOf", {}, reference)
    for level in doubled["$defs"].values():
        if parts := level.pop("allOf", None):
            level["dependentSchemas"] = dict(zip("ab", parts, strict=True))
    return doubled


LAST = {"properties": {"a": {}, "b": {}}, "prefixItems": [{}]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({**_doubled("allOf", LAST), "unevaluatedProperties": False}, {"a": 1}),
        ({**_doubled("allOf", LAST), "unevaluatedItems": False}, [1]),
        ({**_depended_on("$ref"), "unevaluatedProperties": {"type": "integer"}}, {"a": 1, "b": 2}),
        ({**_depended_on("$dynamicRef"), "unevaluatedProperties": False}, {"a": 1, "b": 2}),
    ],
)
def test_what_is_unevaluated_on_too_many_ways_is_given_up(schema: Any, value: Any) -> None:
    with (
        one_budget(Budget(steps=2_000)),
        pytest.raises(UndecidableSchemaError, match="stopped after"),
    ):
        schema_issues(schema, value)


class _Compared(str):
    """A name that counts how often it is compared with another."""

    __slots__ = ()
    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Compared.times += 1
        return str.__eq__(self, other)


def test_names_that_are_evaluated_are_not_compared_with_all_others() -> None:
    value = {_Compared(f"k{number}"): number for number in range(300)}
    _Compared.times = 0

    assert schema_issues({"unevaluatedProperties": {"type": "integer"}}, value) == []
    assert _Compared.times < 3_000


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"unevaluatedItems": True}, [1] * 500),
        ({"unevaluatedProperties": False}, {f"k{number}": 1 for number in range(500)}),
    ],
)
def test_what_is_unevaluated_takes_steps_for_what_is_looked_at(schema: Any, value: Any) -> None:
    with (
        one_budget(Budget(steps=400)),
        pytest.raises(UndecidableSchemaError, match="stopped after"),
    ):
        schema_issues(schema, value)


def test_unique_items_take_a_step_each() -> None:
    value = [{"id": number, "twice": [number, number]} for number in range(2_000)]

    with one_budget(Budget(steps=8_000)):
        assert schema_issues({"uniqueItems": True}, value) == []
    with one_budget(Budget(steps=8_000)):
        assert schema_issues({"uniqueItems": True}, [*value, value[7]])


@pytest.mark.parametrize(
    ("value", "unique"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False, None, "", [], {}], True),
        ([[1], [True], [1]], False),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}], False),
        (["a", ["a"], {"a": "a"}], True),
        (["1:a", "1", "a"], True),
        ([["a", "b"], ["a,b"], ["ab"]], True),
        ([10**400, 10**400 + 1, -(10**400)], True),
        ([0.0, -0.0], False),
        ([0.1, 0.1000000000000001], True),
        ([2**53, 2**53 + 1, 2.0**53], False),
    ],
)
def test_items_are_the_same_if_they_are_the_same_json(value: Any, unique: bool) -> None:
    assert (schema_issues({"uniqueItems": True}, value) == []) is unique


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "integer"}}, [1] * 2_000),
        ({"items": {}}, [1] * 2_000),
        ({"allOf": [{}] * 2_000}, 1),
        ({"items": {"anyOf": [{"maxLength": 1}]}}, ["x" * 2_000] * 40),
        ({"items": {"enum": [[0] * 200 + [1]] * 30}}, [[0] * 201] * 3),
        ({"items": {"format": "iri"}}, ["http://é/"] * 3),
        ({"patternProperties": {"x": {}, "y": {}}}, dict.fromkeys("abc" * 400, 1) | {"d" * 9: 1}),
        ({"$schema": "http://json-schema.org/draft-03/schema#", "disallow": [{}] * 2_000}, 1),
    ],
)
def test_too_many_steps_decide_nothing(schema: Any, value: Any) -> None:
    with one_budget(Budget(steps=5)), pytest.raises(UndecidableSchemaError, match="stopped after"):
        schema_issues(schema, value)


def test_a_check_of_a_part_with_a_draft_of_its_own_is_counted_too() -> None:
    part = {"$schema": "http://json-schema.org/draft-07/schema#", "uniqueItems": True}
    schema = {"items": part}

    with one_budget(Budget(steps=50)), pytest.raises(UndecidableSchemaError):
        schema_issues(schema, [[{}] * 100])


def test_validations_in_one_budget_share_it() -> None:
    schema, value = {"items": {"type": "integer"}}, [1] * 10

    with one_budget(Budget(steps=20)):
        assert schema_issues(schema, value) == []
        with pytest.raises(UndecidableSchemaError):
            schema_issues(schema, value)


def test_a_budget_that_is_stopped_ends_the_validation() -> None:
    budget = Budget()
    budget.stop()
    with one_budget(budget), pytest.raises(UndecidableSchemaError):
        schema_issues({"type": "integer"}, 1)


@pytest.mark.parametrize(
    ("rule", "value", "is_multiple"),
    [
        (0.01, 19.99, True),
        (0.01, 19.999, False),
        (0.1, 0.3, True),
        (7, 10**400, False),
        (0.1, 10**400, True),
        (1e-308, 1e308, True),
        (3, 1.5, False),
    ],
)
def test_numbers_are_divided_as_they_are_written(
    rule: float, value: float, is_multiple: bool
) -> None:
    assert (schema_issues({"multipleOf": rule}, value) == []) == is_multiple


@pytest.mark.parametrize("rule", [0, -0.5, "x", None, math.inf, math.nan])
def test_what_nothing_can_be_a_multiple_of_decides_nothing(rule: object) -> None:
    with pytest.raises(UndecidableSchemaError, match="a multiple of"):
        schema_issues({"multipleOf": rule}, 5)


def test_a_schema_of_many_equal_items_is_checked_in_bounded_work() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "enum": [{"id": number} for number in range(3_000)],
    }

    assert schema_fault(schema) is None
