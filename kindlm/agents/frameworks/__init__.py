"""The frameworks whose agents and results kindlm knows as Python objects: one module for each.

A module has the name of the framework's package: `pydantic_ai.py`, or `google_adk.py` for
`google.adk`. kindlm finds the framework of an object by the modules of its type and of the bases of
that type, without importing any framework. Packages add a framework by an entry point of the group
`kindlm.frameworks` with a name of the same form.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any

from pydantic_core import to_jsonable_python

from kindlm import packages
from kindlm.errors import Err
from kindlm.plugins import AgentReply, Framework, Usage

_DEEPEST = 6
"""How many levels of lists and dicts kindlm searches for objects of frameworks."""

_MOST = 10_000
"""How many values of a level it searches."""


async def reply_of(result: Any, sent: str, *, known: Framework | None = None) -> AgentReply | None:
    """Return the reply in a result; None if no framework knows it. `known` is tried first."""
    others = frameworks_of(_types_in(result))
    for framework in (*filter(None, [known]), *others):
        reply = await framework.read(result, sent)
        if reply is not None:
            return reply
    return None


def framework_of(agent: Any) -> Framework | None:
    """Return a new adapter for an agent; None if no framework knows the object as an agent."""
    found = frameworks_of([type(agent)])
    return next((framework for framework in found if framework.is_agent(agent)), None)


def is_a(value: Any, package: str, *names: str) -> bool:
    """Return whether the type of an object, or a base of it, is one of a package's classes.

    The module within the package is ignored, since it changes from version to version.
    """
    return any(
        kind.__name__ in names and f"{kind.__module__}.".startswith(f"{package}.")
        for kind in type(value).__mro__
    )


def as_json(value: Any) -> Any:
    """Return an object as JSON, other values as text; raises `ValueError` for a circle."""
    return to_jsonable_python(
        value, fallback=str, bytes_mode="base64", inf_nan_mode="null", serialize_unknown=True
    )


def total(usages: Sequence[Usage]) -> Usage:
    """Return the tokens of all model answers; a number that an answer lacks is unknown."""
    return sum(usages[1:], usages[0]) if usages else Usage()


def one_model(names: Iterable[str | None]) -> str | None:
    """Return the model if all answers name the same; the price of one may be too low for others."""
    found = set(names)
    return found.pop() if len(found) == 1 else None


def frameworks_of(types: Iterable[type]) -> Iterator[Framework]:
    """Yield new adapters for some types; raises `RuntimeError` if a package of one is faulty."""
    names = (name for kind in types for base in kind.__mro__ for name in _names(base.__module__))
    for name in dict.fromkeys(names):
        if (module := _own().get(name)) is not None:
            yield packages.defined_in(module, Framework)[-1]()
        elif (found := packages.find(Framework, name)) is not None:
            if isinstance(found, Err):
                raise RuntimeError(found.error.message)
            yield found.value()


def _names(module: str) -> Iterator[str]:
    """Yield the names of frameworks that this module may belong to."""
    parts = module.split(".")[:2]
    yield parts[0]
    yield "_".join(parts)


@cache
def _own() -> Mapping[str, str]:
    """Return the modules of kindlm's own frameworks by name, without importing them."""
    return {found.name: f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__)}


def _types_in(value: Any) -> Iterable[type]:
    """Return the types of a value and of values nested in it, up to the limits."""
    found: dict[type, None] = {}
    level = [value]
    for _ in range(_DEEPEST):
        found |= dict.fromkeys(map(type, level))
        holders = (each for each in level if isinstance(each, dict | list | tuple))
        held = (each.values() if isinstance(each, dict) else each for each in holders)
        level = list(islice(chain.from_iterable(held), _MOST))
    return found
