"""Validates JSON against a JSON Schema: exactly, with formats, without network, bounded in time.

Draft 2020-12 unless `$schema` names another. References are resolved inside the document and the
published meta-schemas, never fetched. All patterns of one validation share one time limit.
Several threads may validate at once: what they share, validators and compiled patterns, never
changes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kindlm.json_schema_patterns import KEYWORDS, UndecidablePatternError, time_limit
from kindlm.wording import printable, shown

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = [
    "SchemaIssue",
    "UndecidableSchemaError",
    "has_no_rule",
    "load_jsonschema",
    "schema_issues",
]

_MAX_ISSUES = 50
_MAX_MESSAGE = 200


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
        UndecidableSchemaError: a reference leads nowhere, a pattern takes too long, or the value
            is nested too deeply.
    """
    from referencing.exceptions import Unresolvable

    try:
        with time_limit():
            errors = islice(_validator(_Same(schema)).iter_errors(value), _MAX_ISSUES)
            return [SchemaIssue(error.json_path, _message(error.message)) for error in errors]
    except Unresolvable as error:
        reference = shown(error.ref)
        raise UndecidableSchemaError(
            f"The schema refers to {reference}, which is not in it."
        ) from None
    except UndecidablePatternError as error:
        raise UndecidableSchemaError(str(error)) from None
    except RecursionError:
        raise UndecidableSchemaError("The value is nested too deeply for the schema.") from None


def has_no_rule(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says something, but nothing by which any value would not fit it.

    JSON Schema ignores the words that it does not know: what is misspelt, or a level too deep,
    would make a check that holds whatever it looks at.
    """
    load_jsonschema()
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    known = validator_for(schema, default=Draft202012Validator).VALIDATORS
    return bool(schema) and known.keys().isdisjoint(schema)


class _Same:
    """A schema as a key of the cache: equal to itself only, and alive as long as the entry is."""

    __slots__ = ("schema",)

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.schema is self.schema


@cache
def load_jsonschema() -> None:
    """Import jsonschema; to be called before anything else imports it.

    For the formats `iri` and `iri-reference` it imports rfc3987_syntax, which makes a parser of a
    whole grammar while it is imported. That takes several times as long as everything else, so it
    is left until a value is first checked for one of the two.
    """
    name = "rfc3987_syntax"
    if name in sys.modules or "jsonschema" in sys.modules:
        return
    later = ModuleType(name)
    vars(later)["is_valid_syntax"] = _is_valid_syntax
    sys.modules[name] = later
    try:
        import jsonschema  # noqa: F401
    finally:
        # Another thread may have come this far at the same time.
        sys.modules.pop(name, None)


def _is_valid_syntax(term: str, value: str) -> bool:
    from rfc3987_syntax import is_valid_syntax  # type: ignore[import-untyped]

    return bool(is_valid_syntax(term, value))


@lru_cache(maxsize=256)
def _validator(key: _Same) -> Validator:
    load_jsonschema()
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = key.schema
    draft = validator_for(schema, default=Draft202012Validator)
    if isinstance(schema, Mapping):
        # With its `$schema`, a reference back to the root would leave the bounded keywords.
        schema = {name: part for name, part in schema.items() if name != "$schema"}
    return _bounded(draft)(schema, registry=Registry(), format_checker=draft.FORMAT_CHECKER)


@cache
def _bounded(draft: type[Validator]) -> type[Validator]:
    """Return the validator of a draft with keywords whose patterns are bounded in time."""
    from jsonschema.validators import extend

    known = {name: keyword for name, keyword in KEYWORDS.items() if name in draft.VALIDATORS}
    bounded: type[Validator] = extend(draft, known)  # type: ignore[no-untyped-call]
    return bounded


def _message(text: str) -> str:
    text = printable(text[: _MAX_MESSAGE + 1])
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"
