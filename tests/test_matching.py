"""The partial matcher: its rules as properties, and what it says about a mismatch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.matching import ABSENT, Mismatch, equal, matches, mismatches

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def with_extra_keys(value: Any) -> Any:
    """Return a copy of a JSON value with one more key in every object of it."""
    if isinstance(value, dict):
        return {"\0extra": [1], **{key: with_extra_keys(item) for key, item in value.items()}}
    if isinstance(value, list):
        return [with_extra_keys(item) for item in value]
    return value


def with_keys_reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_keys_reversed(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [with_keys_reversed(item) for item in value]
    return value


@given(json_values)
def test_a_value_matches_itself(value: Any) -> None:
    assert matches(value, copy.deepcopy(value))
    assert mismatches(value, copy.deepcopy(value)) == []


@given(json_values)
def test_extra_keys_never_matter_at_any_level(value: Any) -> None:
    assert matches(value, with_extra_keys(value))


@given(json_values)
def test_the_order_of_keys_never_matters(value: Any) -> None:
    assert matches(value, with_keys_reversed(value))


@given(st.lists(json_values, max_size=3), json_values)
def test_arrays_of_unequal_length_never_match(items: list[Any], more: Any) -> None:
    assert not matches(items, [*items, more])
    assert not matches([*items, more], items)


@given(st.booleans(), st.integers() | st.floats(allow_nan=False))
def test_a_boolean_is_no_number(boolean: bool, number: float) -> None:
    assert not matches(boolean, number)
    assert not matches(number, boolean)


@given(st.integers(min_value=-(2**53), max_value=2**53))
def test_numbers_compare_by_value(number: int) -> None:
    assert matches(number, float(number))
    assert matches(float(number), number)


@given(json_values)
def test_null_equals_only_a_present_null(value: Any) -> None:
    assert matches(None, value) == (value is None)
    assert not matches({"key": None}, {})
    assert matches({"key": None}, {"key": None})


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("1", 1),
        ("a", "A"),
        ([1, 2], [2, 1]),
        ({}, []),
        ([], {}),
        ("null", None),
        (2**53, 2**53 + 1),
        ("é", "e\u0301"),
    ],
)
def test_nothing_is_coerced(expected: Any, actual: Any) -> None:
    assert not matches(expected, actual)


def test_all_mismatches_are_listed_with_their_paths() -> None:
    expected = {"order": {"id": "A1", "items": [{"n": 1}, {"n": 2}]}, "odd key": 1, "tags": [1]}
    actual = {"order": {"id": "B2", "items": [{"n": 1}, {"n": "2"}]}, "tags": []}

    assert mismatches(expected, actual) == [
        Mismatch("order.id", "A1", "B2"),
        Mismatch("order.items[1].n", 2, "2"),
        Mismatch("['odd key']", 1, ABSENT),
        Mismatch("tags", [1], []),
    ]


def test_the_root_has_an_empty_path() -> None:
    assert mismatches([1], "x") == [Mismatch("", [1], "x")]


def test_depth_is_no_danger() -> None:
    deep: Any = 1
    other: Any = 2
    for _ in range(3_000):
        deep, other = {"d": [deep]}, {"d": [other]}

    assert matches(deep, deep)
    assert not matches(deep, other)


@given(json_values, json_values)
def test_equal_values_have_all_of_each_other(left: Any, right: Any) -> None:
    assert equal(left, copy.deepcopy(left))
    assert equal(left, right) == (matches(left, right) and not mismatches(right, left))


def test_a_value_that_has_more_is_not_equal() -> None:
    assert not equal({"a": 1}, {"a": 1, "b": 2})
    assert not equal({"a": 1, "b": 2}, {"a": 1})
    assert equal({"a": 1, "b": [1.0]}, {"b": [1], "a": 1.0})
