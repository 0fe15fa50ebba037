"""The keywords of JSON Schema with limits: a validation that takes too many steps is undecided.

The library jsonschema has no limits. Here, applying a part of a schema to a value is a step, and
steps are counted, so a validation is undecided on all machines or on none. The keywords below
replace those of the library that do much work in one step or run patterns. Patterns have a limit
of time: see `kindlm.patterns`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from kindlm.matching import canonical
from kindlm.patterns import PatternError, first_match
from kindlm.wording import shown

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


MAX_STEPS = 1_000_000
"""How many steps one check may take: seconds of work, an answer of some 100,000 objects."""

_PATTERN_SECONDS = 1.0

_DOLLAR = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z))|\$", re.DOTALL)
"""Matches a `$`; also an escape or a class, as its group, which may hold another one."""

_BY_LINES = re.compile(r"\(\?[a-zA-Z]*m")
"""Matches the flag with which a `$` is the end of any line."""

_CHARACTERS_A_STEP = 64
_STEPS_A_CHARACTER = {"iri": 150, "iri-reference": 150}
"""Formats that a slow parser checks."""


class UndecidableSchemaError(Exception):
    """A validation cannot be decided."""


class Budget:
    """The steps, and the seconds of patterns, that one check may spend on validation."""

    __slots__ = ("_limit", "_pattern_seconds", "_spent")

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._limit = steps
        self._spent = 0
        self._pattern_seconds = _PATTERN_SECONDS

    def spend(self, steps: int) -> None:
        """Spend steps; raise `UndecidableSchemaError` if too few are left."""
        self._spent += steps
        if self._spent > self._limit:
            raise UndecidableSchemaError(
                f"The validation stopped after {max(self._limit, 0):,} steps: the value is "
                "too large for this schema, or the schema combines too many alternatives."
            )

    def stop(self) -> None:
        """Make the next step fail; any thread may call this."""
        self._limit = -1

    def matches(self, pattern: str, text: str) -> bool:
        """Return whether a pattern matches, within the time left for patterns."""
        self.spend(1)
        begin = time.monotonic()
        try:
            deadline = begin + self._pattern_seconds
            return first_match(_with_strict_end(pattern), text, deadline) is not None
        except PatternError as error:
            message = f"The pattern {shown(pattern)} of the schema cannot be used: {error}."
            raise UndecidableSchemaError(message) from None
        finally:
            self._pattern_seconds -= time.monotonic() - begin


@lru_cache(maxsize=512)
def _with_strict_end(pattern: str) -> str:
    """Return a pattern whose `$` matches as in JSON Schema: not before a line break at the end."""
    if _BY_LINES.search(pattern):
        return pattern
    return _DOLLAR.sub(lambda found: found[1] or r"\Z", pattern)


_budget: ContextVar[Budget] = ContextVar("what may be spent on validation")


@contextmanager
def one_budget(budget: Budget | None = None) -> Iterator[None]:
    """Share one budget among all validations in this context; an outer context's budget wins."""
    if _budget.get(None) is not None:
        yield
        return
    token = _budget.set(budget or Budget())
    try:
        yield
    finally:
        _budget.reset(token)


@cache
def bounded(draft: type[Validator]) -> type[Validator]:
    """Return the validator of a draft with limited work, for use within `one_budget`."""
    from jsonschema.validators import extend, validator_for

    keywords = {name: keyword for name, keyword in _KEYWORDS.items() if name in draft.VALIDATORS}
    for name, steps in _STEPS.items():
        if name in draft.VALIDATORS:
            keywords[name] = _spending(steps, draft.VALIDATORS[name])
    made: Any = extend(draft, keywords)  # type: ignore[no-untyped-call]

    def evolve(self: Any, **changes: Any) -> Any:
        _budget.get().spend(1)
        # For a part with its own `$schema`, the library would use its own keywords.
        schema = changes.get("schema", self.schema)
        other = isinstance(schema, Mapping) and "$schema" in schema
        following: Any = bounded(validator_for(schema, default=draft)) if other else made
        checker = changes.get("format_checker", self.format_checker)
        resolver = changes.get("_resolver", self._resolver)
        return following(schema, format_checker=checker, _resolver=resolver)

    made.evolve = evolve
    validator: type[Validator] = made
    return validator


_Keyword = Callable[[Any, Any, Any, Any], Iterable[Any]]


def _spending(steps: Callable[[Any, Any], int], keyword: _Keyword) -> _Keyword:
    """Return a keyword that first spends steps, which depend on its rule and value."""

    def spending(validator: Any, rule: Any, value: Any, schema: Any) -> Iterable[Any]:
        _budget.get().spend(steps(rule, value))
        return keyword(validator, rule, value, schema)

    return spending


_STEPS: dict[str, Callable[[Any, Any], int]] = {
    # Resolving a reference takes longer than applying it.
    "$ref": lambda _rule, _value: 2,
    "$dynamicRef": lambda _rule, _value: 2,
    # The value is compared with each item.
    "enum": lambda rule, _value: len(rule) >> 4,
    # Each index is searched in the list of evaluated ones.
    "unevaluatedItems": lambda _rule, value: len(value) ** 2 >> 8 if isinstance(value, list) else 0,
}


def _fits(validator: Any, value: Any, schema: Any) -> bool:
    if (error := next(validator.descend(value, schema), None)) is not None:
        _budget.get().spend(1 + len(error.message) // _CHARACTERS_A_STEP)
    return error is None


def _any_of(validator: Any, branches: list[Any], value: Any, _schema: Any) -> Iterator[Any]:
    if not any(_fits(validator, value, branch) for branch in branches):
        yield _error(f"{value!r} is not valid under any of the given schemas")


def _one_of(validator: Any, branches: list[Any], value: Any, _schema: Any) -> Iterator[Any]:
    fitting = [branch for branch in branches if _fits(validator, value, branch)]
    if not fitting:
        yield _error(f"{value!r} is not valid under any of the given schemas")
    elif len(fitting) > 1:
        listed = ", ".join(repr(branch) for branch in (*fitting[1:], fitting[0]))
        yield _error(f"{value!r} is valid under each of {listed}")


def _multiple_of(validator: Any, rule: Any, value: Any, _schema: Any) -> Iterator[Any]:
    if not isinstance(rule, int | float) or not 0 < rule < math.inf:
        # A schema of an MCP server may be invalid, and 1e400 is read as infinity.
        raise UndecidableSchemaError(f"A number cannot be a multiple of {shown(rule)}.")
    # In decimals, 19.99 is a multiple of 0.01, unlike with floats.
    if validator.is_type(value, "number") and _exactly(value) % _exactly(rule):
        yield _error(f"{value!r} is not a multiple of {rule!r}")


def _exactly(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _unique_items(validator: Any, rule: Any, value: Any, _schema: Any) -> Iterator[Any]:
    if rule and validator.is_type(value, "array"):
        texts = [canonical(item) for item in value]
        _budget.get().spend(len(texts) + sum(map(len, texts)) // _CHARACTERS_A_STEP)
        if len({*texts}) < len(value):
            yield _error(f"{value!r} has non-unique elements")


def _format(validator: Any, name: str, value: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import FormatError

    if validator.format_checker is None:
        return
    if isinstance(value, str):
        steps = len(value) * _STEPS_A_CHARACTER.get(name, 0) + len(value) // _CHARACTERS_A_STEP
        _budget.get().spend(steps)
    try:
        validator.format_checker.check(value, name)
    except FormatError as error:
        yield _error(error.message, cause=error.cause)


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not _budget.get().matches(pattern, value):
        yield _error(f"{shown(value)} does not match {shown(pattern)}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    budget = _budget.get()
    for pattern, part in patterns.items():
        for name, item in value.items():
            if budget.matches(pattern, name):
                yield from validator.descend(item, part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    budget = _budget.get()
    others = (
        name
        for name in value
        if name not in known and not any(budget.matches(pattern, name) for pattern in patterns)
    )
    yield from _other_properties(validator, rule, value, others)


def _unevaluated_properties(
    validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    evaluated = set(_evaluated_properties(validator, value, schema))
    others = (name for name in value if name not in evaluated)
    yield from _other_properties(validator, rule, value, others)


def _other_properties(
    validator: Any, rule: Any, value: Mapping[str, Any], names: Iterable[str]
) -> Iterator[Any]:
    for name in names:
        if rule is False:
            yield _error(f"{shown(name)} is not an allowed property")
        else:
            yield from validator.descend(value[name], rule, path=name)


def _evaluated_properties(validator: Any, value: Mapping[str, Any], schema: Any) -> Iterator[str]:
    """Yield the properties that a schema and its in-place subschemas evaluate."""
    if not isinstance(schema, Mapping):
        return
    _budget.get().spend(len(value))
    yield from schema.get("properties", {}).keys() & value.keys()
    for pattern in schema.get("patternProperties", {}):
        yield from (name for name in value if _budget.get().matches(pattern, name))
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            rule = schema[keyword]
            yield from (name for name, item in value.items() if _fits(validator, item, rule))
    for resolved in _references(validator, schema):
        target = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
        yield from _evaluated_properties(target, value, resolved.contents)
    dependent = schema.get("dependentSchemas", {})
    in_place = [dependent[name] for name in dependent.keys() & value.keys()]
    for keyword in ("allOf", "oneOf", "anyOf"):
        in_place += [part for part in schema.get(keyword, ()) if _fits(validator, value, part)]
    if "if" in schema:
        holds = _fits(validator, value, schema["if"])
        in_place += [schema["if"]] if holds else []
        in_place.append(schema.get("then" if holds else "else"))
    for part in in_place:
        yield from _evaluated_properties(validator, value, part)


def _references(validator: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    from referencing.jsonschema import lookup_recursive_ref

    # The library passes its resolver to keywords only in this attribute.
    resolver = validator._resolver  # noqa: SLF001
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema and keyword in validator.VALIDATORS:
            yield resolver.lookup(schema[keyword])
    if "$recursiveRef" in schema and "$recursiveRef" in validator.VALIDATORS:
        yield lookup_recursive_ref(resolver)


def _error(message: str, **details: Any) -> Any:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message, **details)


_KEYWORDS: dict[str, _Keyword] = {
    "additionalProperties": _additional_properties,
    "anyOf": _any_of,
    "divisibleBy": _multiple_of,
    "format": _format,
    "multipleOf": _multiple_of,
    "oneOf": _one_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
