"""Finds the checks: every function that a module of this package decorates with `check`.

A check is pure: it sees its expectation and the transcript. One that has to ask a model is an
`async` function and is handed the context as well. A pure one that can take long, since it runs
patterns or schemas that a user wrote, says when: it is then evaluated in a thread.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, ModuleType
from typing import TypeAlias, cast

from kindlm.outcome import CheckResult
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript

__all__ = ["AskingCheck", "Check", "PureCheck", "Reads", "Slow", "check", "collect", "discover"]

PureCheck: TypeAlias = Callable[[Expectation, Transcript], CheckResult]
AskingCheck: TypeAlias = Callable[[Expectation, Transcript, CheckContext], Awaitable[CheckResult]]
Slow: TypeAlias = Callable[[Expectation, Transcript], bool]
"""Tells whether a check can take long on a transcript; takes a few microseconds itself."""


class Reads(Enum):
    """What of a transcript a check goes by. Where a secret was taken out of it, nobody knows."""

    NUMBERS_AND_NAMES = "numbers and names, in which there is no secret"
    TEXT = "the final text"
    CALLS = "the tool calls, their arguments and results"
    EVERYTHING = "all texts and tool calls"


@dataclass(frozen=True, slots=True)
class Check:
    """A check and the kind of expectation it serves; exactly one of the functions is set.

    `slow` says when the pure function can take long; None means never. One that is `about_tools`
    passes only where a tool call would have been seen.
    """

    kind: str
    pure: PureCheck | None = None
    asking: AskingCheck | None = None
    slow: Slow | None = None
    about_tools: bool = False
    reads: Reads | Callable[[Expectation], Reads] = Reads.TEXT


def check(
    kind: str,
    *,
    slow: Slow | None = None,
    about_tools: bool = False,
    reads: Reads | Callable[[Expectation], Reads] | None = None,
) -> Callable[[PureCheck | AskingCheck], Check]:
    """Make a function the check of all expectations of a kind.

    Args:
        kind: the kind of expectations.
        slow: says for which of them, and on which transcripts, a pure function can take so long
            that it has to run beside the event loop. It is then called in another thread.
        about_tools: whether it demands something of the tool calls that were made. It is undecided
            instead of passed if nothing shows that the target reports its calls.
        reads: what it goes by, if that depends on the expectation a function of it. A recorded
            answer may lack a secret there: the check is then undecided. Without, it is the final
            text. A check that asks a judge leaves it to the judge, who sees that something is not
            there.
    """

    def decorate(function: PureCheck | AskingCheck) -> Check:
        if inspect.iscoroutinefunction(function):
            read = Reads.NUMBERS_AND_NAMES if reads is None else reads
            return Check(kind, asking=function, about_tools=about_tools, reads=read)
        pure, read = cast(PureCheck, function), Reads.TEXT if reads is None else reads
        return Check(kind, pure=pure, slow=slow, about_tools=about_tools, reads=read)

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
