"""Validates JSON against a JSON Schema, including formats, without network, with limited work.

The draft is 2020-12 unless `$schema` names another. References are resolved within the document and
the published meta-schemas, never fetched. A validation that takes too many steps, or whose patterns
take too long, is undecided. Several threads may validate at once.
"""

from __future__ import annotations

import re
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
    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

T = TypeVar("T")

_MAX_ISSUES = 50
_MAX_MESSAGE = 200

_ATOM = r'[^\s"(),:;<>@\[\\\].]+'
_EMAIL = re.compile(
    rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[^"\\]|\\.)+")@(?:[\w-]+(?:\.[\w-]+)*|\[[\w.:]+\])'
)
"""Matches an e-mail address: a name or a quoted text, and a domain or an address in brackets."""


@dataclass(frozen=True, slots=True)
class SchemaIssue:
    """A violation of a schema; `path` is a JSON path such as `$.items[0].price`."""

    path: str
    message: str


def schema_issues(schema: Any, value: Any) -> list[SchemaIssue]:
    """Return the violations of a schema by a value, at most `_MAX_ISSUES`.

    Raises:
        UndecidableSchemaError: The schema is not valid, a reference leads nowhere, a pattern takes
            too long, the value is nested too deeply, or the budget of
            `json_schema_keywords.one_budget` is spent.
    """

    def issue(error: ValidationError) -> SchemaIssue:
        return SchemaIssue(error.json_path, sentence(error.message, _MAX_MESSAGE))

    return _found(schema, value, issue, _MAX_ISSUES)


def meta_schema_issue(draft: type[Validator], schema: Any, formats: Any) -> str | None:
    """Return the first violation of its draft by a schema, with the place; None if it is valid.

    `formats` checks the formats of strings. It raises like `schema_issues`.
    """

    def issue(error: ValidationError) -> str:
        place = "/".join(str(part) for part in error.absolute_path)
        return f"{error.message[:200]}" + (f" (at {place})" if place else "")

    found = _found(draft.META_SCHEMA, schema, issue, 1, format_checker=formats)
    return found[0] if found else None


def _found(
    schema: Any, value: Any, read: Callable[[ValidationError], T], most: int, **changes: Any
) -> list[T]:
    """Return what `read` returns for the first errors, which are not kept: they can be large."""
    from referencing.exceptions import Unresolvable

    try:
        validator: Any = _validator(_Same(schema))
        with one_budget():
            # `evolve` counts the whole schema as a step.
            errors = validator.evolve(**changes).iter_errors(value)
            return [read(error) for error in islice(errors, most)]
    except UndecidableSchemaError:
        raise
    except Unresolvable as error:
        problem = f"The schema refers to {shown(error.ref)}, which is not in it"
    except BaseException as error:
        # The library resolves references in Rust, where a RecursionError becomes a panic.
        if isinstance(error, RecursionError) or type(error).__name__ == "PanicException":
            problem = (
                "The value is nested too deeply for the schema, or the schema refers to itself"
            )
        elif isinstance(error, Exception):
            # The library raises anything for invalid rules, and for some valid ones, such as
            # `items: true` with `unevaluatedItems`. Schemas of MCP servers are not checked before.
            reason = sentence(str(error).partition("\n")[0], _MAX_MESSAGE)
            problem = f"A rule of the schema cannot be applied: {reason}"
        else:
            raise
    raise UndecidableSchemaError(f"{problem}.")


def has_no_rule(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema has keywords, but none that restricts a value.

    JSON Schema ignores unknown keywords, such as misspelt ones or those a level too deep. A check
    with such a schema would always pass.
    """
    load_jsonschema()
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    known = validator_for(schema, default=Draft202012Validator).VALIDATORS
    return bool(schema) and known.keys().isdisjoint(schema)


class _Same:
    """A schema as a key of the cache: only equal to itself, and alive as long as the entry."""

    __slots__ = ("schema",)

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.schema is self.schema


@cache
def load_jsonschema() -> None:
    """Import jsonschema; call this before any other import of it.

    For the formats `iri` and `iri-reference`, jsonschema imports rfc3987_syntax, which builds a
    parser and takes several times as long as jsonschema itself. Here that is put off until the
    first check of such a format.
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
        # Another thread may have removed it already.
        sys.modules.pop(name, None)


def _is_valid_syntax(term: str, value: str) -> bool:
    from rfc3987_syntax import is_valid_syntax  # type: ignore[import-untyped]

    return bool(is_valid_syntax(term, value))


@cache
def format_checker() -> FormatChecker:
    """Return the checker of all formats of all drafts: most schemas name no draft or an old one.

    For jsonschema, an e-mail address is any text with an `@`.
    """
    load_jsonschema()
    from jsonschema import Draft3Validator, Draft202012Validator, FormatChecker

    checker = FormatChecker(formats=())
    checker.checkers = {
        **Draft3Validator.FORMAT_CHECKER.checkers,
        **Draft202012Validator.FORMAT_CHECKER.checkers,
        **dict.fromkeys(("email", "idn-email"), (_is_email, ())),
    }
    checker.checkers.pop("color", None)  # draft 3 has only colors of CSS 2.1
    return checker


def _is_email(value: object) -> bool:
    return not isinstance(value, str) or _EMAIL.fullmatch(value) is not None


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
        # Otherwise, each reference to the root would look up the draft again.
        schema = {name: part for name, part in schema.items() if name != "$schema"}
    resource = specification_with(draft.META_SCHEMA["$schema"]).create_resource(schema)
    uri = resource.id() or ""
    # `crawl` finds all identifiers once, and not for each reference.
    registry = REGISTRY.with_resource(uri, resource).crawl()
    made: Any = bounded(draft)
    validator: Validator = made(
        schema, format_checker=format_checker(), _resolver=registry.resolver(uri)
    )
    return validator
