"""The keywords of JSON Schema that hold regular expressions, each bounded in time.

The library that validates reads patterns with the standard engine, which some of them keep busy
for ever. Here are its keywords again, on an engine that gives up. `unevaluatedProperties` is one
of them: what it leaves over depends on the `patternProperties` beside and below it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from kindlm.patterns import PatternError, searches
from kindlm.wording import shown

__all__ = ["KEYWORDS", "UndecidablePatternError", "time_limit"]

_deadline: ContextVar[float] = ContextVar("deadline of the patterns of one validation")


class UndecidablePatternError(Exception):
    """A pattern of a schema that cannot be used: it does not compile, or takes too long."""


@contextmanager
def time_limit(seconds: float = 1.0) -> Iterator[None]:
    """Give all patterns that are used inside this context so much time together.

    Inside another one of these contexts, the time of that one is not exceeded.
    """
    end = time.monotonic() + seconds
    token = _deadline.set(min(end, _deadline.get(math.inf)))
    try:
        yield
    finally:
        _deadline.reset(token)


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not _matches(pattern, value):
        yield ValidationError(f"{shown(value)} does not match {shown(pattern)}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    for pattern, part in patterns.items():
        for name, item in value.items():
            if _matches(pattern, name):
                yield from validator.descend(item, part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not validator.is_type(value, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, item in value.items():
        if name in known or any(_matches(pattern, name) for pattern in patterns):
            continue
        if rule is False:
            yield ValidationError(f"{shown(name)} is not an allowed property")
        elif rule is not True:
            yield from validator.descend(item, rule, path=name)


def _unevaluated_properties(
    validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not validator.is_type(value, "object") or rule is True:
        return
    evaluated = set(_evaluated(validator, value, schema))
    for name in value:
        if name in evaluated:
            continue
        if rule is False:
            yield ValidationError(f"{shown(name)} is not an allowed property")
        else:
            yield from validator.descend(value[name], rule, path=name)


def _evaluated(validator: Any, value: Mapping[str, Any], schema: Any) -> Iterator[str]:
    """Yield the properties that a schema says something about, where it holds."""
    if not isinstance(schema, Mapping):
        return
    yield from schema.get("properties", {}).keys() & value.keys()
    for pattern in schema.get("patternProperties", {}):
        yield from (name for name in value if _matches(pattern, name))
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            yield from (
                name for name, item in value.items() if _fits(validator, item, schema[keyword])
            )
    for target, part in _in_place(validator, value, schema):
        yield from _evaluated(target, value, part)


def _in_place(
    validator: Any, value: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield the schemas that a schema applies to the same value, with the validator of each."""
    for resolved in _references(validator, schema):
        target = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
        yield target, resolved.contents
    parts = [part for name, part in schema.get("dependentSchemas", {}).items() if name in value]
    for keyword in ("allOf", "oneOf", "anyOf"):
        parts.extend(part for part in schema.get(keyword, ()) if _fits(validator, value, part))
    if "if" in schema:
        holds = _fits(validator, value, schema["if"])
        parts.extend([schema["if"]] if holds else [])
        parts.append(schema.get("then" if holds else "else", True))
    for part in parts:
        yield validator, part


def _references(validator: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    from referencing.jsonschema import lookup_recursive_ref

    known = schema.keys() & validator.VALIDATORS.keys()
    # The library hands its resolver to keywords in this attribute and in no other way.
    resolver = validator._resolver  # noqa: SLF001
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in known:
            yield resolver.lookup(schema[keyword])
    if "$recursiveRef" in known:
        yield lookup_recursive_ref(resolver)


def _fits(validator: Any, value: Any, schema: Any) -> bool:
    return next(iter(validator.descend(value, schema)), None) is None


def _matches(pattern: str, text: str) -> bool:
    try:
        return searches(pattern, text, _deadline.get())
    except PatternError as error:
        message = f"The pattern {shown(pattern)} of the schema cannot be used: {error}."
        raise UndecidablePatternError(message) from None


KEYWORDS = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
}
