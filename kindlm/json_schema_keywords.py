"""The keywords of JSON Schema, counted: a validation that takes too many steps is undecided.

jsonschema has no bound of its own: it compares every pair of items for `uniqueItems`, follows a
`$ref` again for each of the ways that lead to it, keeps the messages of every branch, and runs
patterns on an engine that some of them keep busy for ever. The keywords here replace those of its
keywords that do more work than their value is large; all others are counted before they run.

A step is about one keyword applied to one value. Steps are counted, never timed: what is undecided
on one machine is undecided on all. Patterns are the exception, see `kindlm.patterns`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from kindlm.patterns import PatternError, searches
from kindlm.wording import shown

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


MAX_STEPS = 3_000_000
"""How many steps one check may take: seconds of work, an answer of some 300,000 objects."""

_PATTERN_SECONDS = 1.0
_MAX_REMEMBERED = 50_000
"""How many results of one validation are kept, so that they take some 10 MB at most."""

_CHARACTERS_A_STEP = 64
_STEPS_A_CHARACTER = {"iri": 150, "iri-reference": 150}
"""Formats that are checked by a parser of a grammar."""


class UndecidableSchemaError(Exception):
    """A schema that cannot decide about a value: a reference or a pattern of it fails."""


class Budget:
    """What one check may spend on validation, in steps and in seconds of patterns.

    Another thread may end it by `stop`: the next step then fails.
    """

    __slots__ = ("_limit", "_pattern_seconds", "_spent", "known", "resolved")

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._limit = steps
        self._spent = 0
        self._pattern_seconds = _PATTERN_SECONDS
        self.known: dict[tuple[int, int], bool] = {}
        self.resolved: dict[int, Any] | None = None

    def spend(self, steps: int) -> None:
        """Take steps; raise `UndecidableSchemaError` if no steps are left."""
        self._spent += steps
        if self._spent > self._limit:
            raise UndecidableSchemaError(
                f"The validation was given up after {max(self._limit, 0):,} steps: the value is "
                "too large for this schema, or the schema combines too many alternatives."
            )

    def stop(self) -> None:
        """Leave no steps."""
        self._limit = -1

    def recall(self, schema: Any, value: Any) -> bool | None:
        """Return whether a value fits a part of the schema; None if that is not known."""
        return self.known.get((id(schema), id(value)))

    def remember(self, schema: Any, value: Any, fits: bool) -> bool:
        """Keep whether a value fits a part of the schema, and return it.

        With dynamic references, that depends on the way to the part: nothing is kept.
        """
        if len(self.known) >= _MAX_REMEMBERED:
            self.known.clear()
        if self.resolved is not None:
            self.known[id(schema), id(value)] = fits
        return fits

    def matches(self, pattern: str, text: str) -> bool:
        """Return whether a pattern matches, in what is left of the time for patterns."""
        self.spend(1)
        begin = time.monotonic()
        try:
            return searches(pattern, text, begin + self._pattern_seconds)
        except PatternError as error:
            message = f"The pattern {shown(pattern)} of the schema cannot be used: {error}."
            raise UndecidableSchemaError(message) from None
        finally:
            self._pattern_seconds -= time.monotonic() - begin


_budget: ContextVar[Budget] = ContextVar("what may be spent on validation")


@contextmanager
def one_budget(budget: Budget | None = None) -> Iterator[None]:
    """Let all validations inside this context share one budget.

    Inside another one of these contexts, they share the budget of that one.
    """
    if _budget.get(None) is not None:
        yield
        return
    token = _budget.set(budget or Budget())
    try:
        yield
    finally:
        _budget.reset(token)


@contextmanager
def one_value(resolved: dict[int, Any] | None) -> Iterator[Budget]:
    """Validate one value, inside of `one_budget`.

    `resolved` are the references that earlier validations by this schema have followed, by the
    identity of the part that holds them. It is None for a schema with dynamic references, which
    lead to different places on different ways.
    """
    with one_budget():
        budget = _budget.get()
        # What is remembered goes by identity: it holds for this value only.
        budget.known = {}
        budget.resolved = resolved
        try:
            yield budget
        finally:
            budget.known = {}


@cache
def bounded(draft: type[Validator]) -> type[Validator]:
    """Return the validator of a draft, with all of its keywords counted."""
    from jsonschema.validators import extend, validator_for

    keywords: dict[str, Any] = dict(draft.VALIDATORS)
    keywords |= {name: keyword for name, keyword in _KEYWORDS.items() if name in keywords}
    counted = {name: _counted(name, keyword) for name, keyword in keywords.items()}
    made: Any = extend(draft, counted)  # type: ignore[no-untyped-call]

    def evolve(self: Any, **changes: Any) -> Any:
        # The library would leave the counted keywords at a part that has a `$schema` of its own.
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

_FOR_EACH_PART = frozenset(
    (
        *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
        *("additionalProperties", "unevaluatedProperties", "propertyNames"),
    )
)
"""Keywords that look at each part of a value; `patternProperties` counts what it matches."""

_FOR_EACH_BRANCH = frozenset(("allOf", "anyOf", "oneOf", "extends", "type", "disallow"))

_DYNAMIC = frozenset(("$dynamicRef", "$recursiveRef"))
_STEPS_OF_DYNAMIC = 20
"""A dynamic reference is resolved again on each way: as much work as this many other keywords."""


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    """Return a keyword that takes its steps before it does anything."""
    of_parts, of_branches = name in _FOR_EACH_PART, name in _FOR_EACH_BRANCH

    def counted(validator: Any, rule: Any, value: Any, schema: Any) -> Iterable[Any]:
        if of_parts:
            steps = len(value) if isinstance(value, (list, dict)) else 0
        elif of_branches:
            steps = len(rule) if isinstance(rule, list) else 0
        elif name in _DYNAMIC:
            steps = _STEPS_OF_DYNAMIC
        else:
            # A name that is only looked up takes less than a step.
            steps = len(rule) >> 4 if isinstance(rule, (list, dict)) else 0
        _budget.get().spend(1 + steps)
        return keyword(validator, rule, value, schema)

    return counted


def _ref(validator: Any, reference: str, value: Any, schema: Any) -> Iterator[Any]:
    """Yield the errors of the schema that a reference leads to, unless it is known to hold."""
    budget = _budget.get()
    resolved = _resolved(validator, reference, schema)
    if budget.recall(resolved.contents, value):
        return
    fits = True
    for error in validator.descend(value, resolved.contents, resolver=resolved.resolver):
        fits = False
        yield error
    budget.remember(resolved.contents, value, fits)


def _resolved(validator: Any, reference: str, schema: Any) -> Any:
    """Return what the `$ref` of a schema leads to. It is looked up once."""
    known = _budget.get().resolved
    # The library hands its resolver to keywords in this attribute and in no other way.
    resolver = validator._resolver  # noqa: SLF001
    if known is None:
        return resolver.lookup(reference)
    if (resolved := known.get(id(schema))) is None:
        resolved = known[id(schema)] = resolver.lookup(reference)
    return resolved


def _fits(validator: Any, value: Any, schema: Any) -> bool:
    """Return whether a value fits a part of the schema. The answer is remembered."""
    if schema is True or schema is False:
        return schema
    budget = _budget.get()
    known = budget.recall(schema, value)
    if known is not None:
        return known
    error = next(validator.descend(value, schema), None)
    if error is not None:
        budget.spend(len(error.message) // _CHARACTERS_A_STEP)
    return budget.remember(schema, value, error is None)


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


def _if(validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    following = "then" if _fits(validator, value, rule) else "else"
    if following in schema:
        yield from validator.descend(value, schema[following], schema_path=following)


def _enum(_validator: Any, allowed: Sequence[Any], value: Any, _schema: Any) -> Iterator[Any]:
    budget = _budget.get()
    if isinstance(value, str):
        fits = value in allowed
    else:
        wanted = _canonical(budget, value)
        fits = any(_canonical(budget, each) == wanted for each in allowed)
    if not fits:
        yield _error(f"{value!r} is not one of {allowed!r}")


def _const(_validator: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[Any]:
    budget = _budget.get()
    if _canonical(budget, wanted) != _canonical(budget, value):
        yield _error(f"{wanted!r} was expected")


def _unique_items(validator: Any, rule: Any, value: Any, _schema: Any) -> Iterator[Any]:
    if not rule or not validator.is_type(value, "array"):
        return
    budget, seen = _budget.get(), set()
    for item in value:
        seen.add(_canonical(budget, item))
    if len(seen) < len(value):
        yield _error(f"{value!r} has non-unique elements")


def _canonical(budget: Budget, value: Any) -> str:
    """Return a text that is the same for values that are the same JSON, and for no others.

    A text, not a tuple: the hashes of numbers can be made to collide, those of texts cannot.
    """
    if isinstance(value, str):
        return f"{len(value)}:{value}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:x};"
    if isinstance(value, (list, tuple)):
        budget.spend(1 + (len(value) >> 2))
        return f"[{''.join([_canonical(budget, item) for item in value])}]"
    if isinstance(value, Mapping):
        budget.spend(1 + (len(value) >> 2))
        parts = [_canonical(budget, name) + _canonical(budget, value[name]) for name in value]
        return f"{{{''.join(sorted(parts))}}}"
    return f"{value!r};"


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
    for name, item in value.items():
        if name in known or any(budget.matches(pattern, name) for pattern in patterns):
            continue
        if rule is False:
            yield _error(f"{shown(name)} is not an allowed property")
        elif rule is not True:
            yield from validator.descend(item, rule, path=name)


def _unevaluated_properties(
    validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not validator.is_type(value, "object") or rule is True:
        return
    evaluated: set[Any] = set()
    for target, part in _in_place(validator, value, schema):
        evaluated.update(_evaluated_properties(target, value, part))
    for name in value:
        if name in evaluated:
            continue
        if rule is False:
            yield _error(f"{shown(name)} is not an allowed property")
        else:
            yield from validator.descend(value[name], rule, path=name)


def _evaluated_properties(
    validator: Any, value: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the properties that a schema by itself says something about."""
    yield from schema.get("properties", {}).keys() & value.keys()
    for pattern in schema.get("patternProperties", {}):
        yield from (name for name in value if _budget.get().matches(pattern, name))
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            rule = schema[keyword]
            yield from (name for name, item in value.items() if _fits(validator, item, rule))


def _unevaluated_items(
    validator: Any, _rule: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not validator.is_type(value, "array"):
        return
    evaluated: set[int] = set()
    for target, part in _in_place(validator, value, schema):
        evaluated.update(_evaluated_items(target, value, part))
    left = [item for index, item in enumerate(value) if index not in evaluated]
    if left:
        listed, verb = ", ".join(repr(item) for item in left), "was" if len(left) == 1 else "were"
        yield _error(f"Unevaluated items are not allowed ({listed} {verb} unexpected)")


def _evaluated_items(validator: Any, value: list[Any], schema: Mapping[str, Any]) -> Iterator[int]:
    """Yield the places of items that a schema by itself says something about."""
    items = schema.get("items")
    if "items" in schema and (not isinstance(items, list) or "additionalItems" in schema):
        yield from range(len(value))
        return
    prefix = "prefixItems" if "prefixItems" in validator.VALIDATORS else "items"
    yield from range(min(len(value), len(schema.get(prefix, ()))))
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            rule = schema[keyword]
            yield from (index for index, item in enumerate(value) if _fits(validator, item, rule))


def _in_place(
    validator: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield a schema and all that it applies to the same value where they hold, each once.

    With each of them comes the validator that resolves its references.
    """
    budget = _budget.get()
    todo, seen = [(validator, schema)], set[object]()
    while todo:
        here, part = todo.pop()
        key = _way(budget, here, part)
        if key in seen or not isinstance(part, Mapping):
            continue
        seen.add(key)
        dependent = part.get("dependentSchemas", {}) if isinstance(value, dict) else {}
        branches = [
            rule for keyword in ("allOf", "oneOf", "anyOf") for rule in part.get(keyword, ())
        ]
        budget.spend(1 + len(value) + len(dependent) + len(branches))
        yield here, part
        for resolved in _references(here, part):
            target = here.evolve(schema=resolved.contents, _resolver=resolved.resolver)
            todo.append((target, resolved.contents))
        parts = [rule for name, rule in dependent.items() if name in value]
        parts.extend(rule for rule in branches if _fits(here, value, rule))
        if "if" in part:
            holds = _fits(here, value, part["if"])
            parts.extend([part["if"]] if holds else [])
            parts.append(part.get("then" if holds else "else", True))
        todo.extend((here, rule) for rule in parts)


def _way(budget: Budget, validator: Any, schema: Any) -> object:
    """Return what tells a part of a schema from others, and where dynamic references lead in it."""
    if budget.resolved is not None:
        return id(schema)
    # Of those that repeat, the outermost decides.
    scope = [uri for uri, _ in validator._resolver.dynamic_scope()]  # noqa: SLF001
    return id(schema), tuple(dict.fromkeys(reversed(scope)))


def _references(validator: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what the references of a schema lead to."""
    from referencing.jsonschema import lookup_recursive_ref

    known = schema.keys() & validator.VALIDATORS.keys()
    resolver = validator._resolver  # noqa: SLF001
    if "$ref" in known:
        yield _resolved(validator, schema["$ref"], schema)
    if "$dynamicRef" in known:
        yield resolver.lookup(schema["$dynamicRef"])
    if "$recursiveRef" in known:
        yield lookup_recursive_ref(resolver)


def _error(message: str, **details: Any) -> Any:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message, **details)


_KEYWORDS: dict[str, _Keyword] = {
    "$ref": _ref,
    "additionalProperties": _additional_properties,
    "anyOf": _any_of,
    "const": _const,
    "enum": _enum,
    "format": _format,
    "if": _if,
    "oneOf": _one_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
