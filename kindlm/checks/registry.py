"""Finds the checks: every function that a module of this package decorates with `check`.

A check is pure: it sees its expectation and the transcript. One that has to ask a model is an
`async` function and is handed the context as well.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, ModuleType
from typing import TypeAlias, cast

from kindlm.outcome import CheckResult
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript

__all__ = ["AskingCheck", "Check", "PureCheck", "check", "collect", "discover"]

PureCheck: TypeAlias = Callable[[Expectation, Transcript], Sequence[CheckResult]]
AskingCheck: TypeAlias = Callable[
    [Expectation, Transcript, CheckContext], Awaitable[Sequence[CheckResult]]
]


@dataclass(frozen=True, slots=True)
class Check:
    """A check and the kind of expectation it serves; exactly one of the functions is set."""

    kind: str
    pure: PureCheck | None = None
    asking: AskingCheck | None = None


def check(kind: str) -> Callable[[PureCheck | AskingCheck], Check]:
    """Make a function the check of all expectations of a kind."""

    def decorate(function: PureCheck | AskingCheck) -> Check:
        if inspect.iscoroutinefunction(function):
            return Check(kind, asking=function)
        return Check(kind, pure=cast(PureCheck, function))

    return decorate


@cache
def discover() -> Mapping[str, Check]:
    """Return all checks of this package by kind; raise `ValueError` if two serve one kind."""
    package = importlib.import_module(__package__)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return collect(importlib.import_module(f"{__package__}.{name}") for name in names)


def collect(modules: Iterable[ModuleType]) -> Mapping[str, Check]:
    """Return the checks that modules define, by kind; raise `ValueError` if two serve one kind."""
    found: dict[str, Check] = {}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Check) and found.setdefault(value.kind, value) is not value:
                raise ValueError(f"two checks serve {value.kind!r}, one in {module.__name__}")
    return MappingProxyType(found)
