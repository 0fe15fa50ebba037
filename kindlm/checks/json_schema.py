"""Validates JSON against a JSON Schema: exactly, with formats, without network, bounded in time.

Draft 2020-12 unless `$schema` names another. References are resolved inside the document and the
published meta-schemas, never fetched. The keywords that hold regular expressions are replaced by
ones with a time limit; `unevaluatedProperties` beside `patternProperties` still reads its patterns
with the standard engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from kindlm.checks.patterns import PatternError, searches
from kindlm.checks.wording import printable, shown

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = ["SchemaIssue", "UndecidableSchemaError", "schema_issues"]

_MAX_ISSUES = 50
_MAX_MESSAGE = 200
_PATTERNS_S = 1.0

_deadline: ContextVar[float] = ContextVar("deadline of the patterns of one validation")


class UndecidableSchemaError(Exception):
    """A schema that cannot decide about a value: a reference or a pattern of it fails."""


@dataclass(frozen=True, slots=True)
class SchemaIssue:
    """One place where a value does not fit; `path` is a JSON path such as `$.items[0].price`."""

    path: str
    message: str


def schema_issues(schema: Any, value: Any) -> list[SchemaIssue]:
    """Return where a value does not fit a schema: everything, up to a bounded number of places.

    Raises:
        UndecidableSchemaError: a reference leads nowhere, or a pattern takes too long.
    """
    from referencing.exceptions import Unresolvable

    token = _deadline.set(time.monotonic() + _PATTERNS_S)
    try:
        errors = islice(_validator(_Same(schema)).iter_errors(value), _MAX_ISSUES)
        return [SchemaIssue(error.json_path, _message(error.message)) for error in errors]
    except Unresolvable as error:
        reference = shown(error.ref)
        raise UndecidableSchemaError(
            f"The schema refers to {reference}, which is not in it."
        ) from None
    finally:
        _deadline.reset(token)


class _Same:
    """A schema as a key of the cache: equal to itself only, and alive as long as the entry is."""

    __slots__ = ("schema",)

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.schema is self.schema


@lru_cache(maxsize=256)
def _validator(key: _Same) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    schema = key.schema
    draft = validator_for(schema, default=Draft202012Validator)
    bounded: type[Validator] = extend(  # type: ignore[no-untyped-call]
        draft,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        },
    )
    if isinstance(schema, Mapping):
        # With its `$schema`, a reference back to the root would leave the bounded keywords.
        schema = {name: part for name, part in schema.items() if name != "$schema"}
    return bounded(schema, registry=Registry(), format_checker=draft.FORMAT_CHECKER)


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


def _matches(pattern: str, text: str) -> bool:
    try:
        return searches(pattern, text, _deadline.get())
    except PatternError as error:
        message = f"The pattern {shown(pattern)} of the schema cannot be used: {error}."
        raise UndecidableSchemaError(message) from None


def _message(text: str) -> str:
    text = printable(text[: _MAX_MESSAGE + 1])
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"
