"""Validates JSON against a JSON Schema: exactly, with formats, without network, bounded in work.

Draft 2020-12 unless `$schema` names another. References are resolved inside the document and the
published meta-schemas, never fetched. A validation that takes too many steps, or too long with its
patterns, is undecided. Several threads may validate at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from kindlm.dataclass import dataclass
from kindlm.json_schema_keywords import UndecidableSchemaError, bounded, one_budget
from kindlm.wording import sentence, shown

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

__all__ = [
    "SchemaIssue",
    "UndecidableSchemaError",
    "has_no_rule",
    "load_jsonschema",
    "meta_schema_issue",
    "schema_issues",
]

T = TypeVar("T")

_MAX_ISSUES = 50
_MAX_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class SchemaIssue:
    """One place where a value does not fit; `path` is a JSON path such as `$.items[0].price`."""

    path: str
    message: str


def schema_issues(schema: Any, value: Any) -> list[SchemaIssue]:
    """Return where a value does not fit a schema: everything, up to a bounded number of places.

    Raises:
        UndecidableSchemaError: a reference leads nowhere, a pattern takes too long, the value is
            nested too deeply, the library cannot apply a rule, or the budget of
            `json_schema_keywords.one_budget` is spent.
    """

    def issue(error: ValidationError) -> SchemaIssue:
        return SchemaIssue(error.json_path, sentence(error.message, _MAX_MESSAGE))

    return _found(_validator(_Same(schema)), value, issue, _MAX_ISSUES)


def meta_schema_issue(draft: type[Validator], schema: Any, formats: Any) -> str | None:
    """Return the first rule of its draft that a schema breaks, with the place; None if it is valid.

    `formats` checks the formats of its strings. Raises as `schema_issues` does.
    """

    def issue(error: ValidationError) -> str:
        place = "/".join(str(part) for part in error.absolute_path)
        return f"{error.message[:200]}" + (f" (at {place})" if place else "")

    validator: Any = _validator(_Same(draft.META_SCHEMA))
    with one_budget():
        found = _found(validator.evolve(format_checker=formats), schema, issue, 1)
    return found[0] if found else None


def _found(
    validator: Validator, value: Any, read: Callable[[ValidationError], T], most: int
) -> list[T]:
    """Return what is read from the first errors: each is dropped at once, they can be large."""
    from referencing.exceptions import Unresolvable

    try:
        with one_budget():
            # The whole schema is a step, too.
            errors = validator.evolve().iter_errors(value)
            return [read(error) for error in islice(errors, most)]
    except Unresolvable as error:
        reference = shown(error.ref)
        raise UndecidableSchemaError(
            f"The schema refers to {reference}, which is not in it."
        ) from None
    except TypeError as error:
        # The library trips over some rules, such as `items: true` beside `unevaluatedItems`.
        raise UndecidableSchemaError(f"A rule of the schema cannot be applied: {error}.") from None
    except BaseException as error:
        # The library looks references up in Rust, where a RecursionError becomes a panic.
        if not isinstance(error, RecursionError) and type(error).__name__ != "PanicException":
            raise
        raise UndecidableSchemaError(
            "The value is nested too deeply for the schema, or the schema refers to itself."
        ) from None


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
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing.jsonschema import specification_with

    schema = key.schema
    draft = validator_for(schema, default=Draft202012Validator)
    if isinstance(schema, Mapping):
        # With its `$schema`, a reference back to the root would ask for its draft again.
        schema = {name: part for name, part in schema.items() if name != "$schema"}
    resource = specification_with(draft.META_SCHEMA["$schema"]).create_resource(schema)
    uri = resource.id() or ""
    # Its identifiers are looked for here, once, and not again for each reference.
    registry = REGISTRY.with_resource(uri, resource).crawl()
    made: Any = bounded(draft)
    validator: Validator = made(
        schema, format_checker=draft.FORMAT_CHECKER, _resolver=registry.resolver(uri)
    )
    return validator
