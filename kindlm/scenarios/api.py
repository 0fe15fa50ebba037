"""The decorator that makes a test function a scenario."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from kindlm.bounds import MAX_REPEAT, MAX_TIMEOUT_S
from kindlm.dataclass import dataclass, replace

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__kindlm_scenario__"

MADE_HERE = "__kindlm_scenarios__"
"""The global of a module with all functions that `@scenario` was applied to, also lost ones."""


@dataclass(frozen=True, slots=True)
class ScenarioSpec:
    """The arguments of `@scenario`."""

    name: str
    tags: tuple[str, ...] = ()
    repeats: int = 1
    pass_rate: float = 1.0
    timeout: float | None = None
    agent: Any = None
    gateway: bool = False
    telemetry: Literal["otlp"] | None = None

    def __post_init__(self) -> None:
        """Refuse invalid arguments."""
        if not self.name.strip():
            raise ValueError('A scenario needs a name: @scenario("refund of a late order")')
        if type(self.repeats) is not int or not 1 <= self.repeats <= MAX_REPEAT:
            wanted = f"a whole number from 1 to {MAX_REPEAT}"
            raise ValueError(f"repeats must be {wanted}, but is {self.repeats}")
        if not all(isinstance(tag, str) for tag in self.tags):
            raise ValueError(f"tags must be words, but are {self.tags}")
        rate: Any = self.pass_rate
        if not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise ValueError(f"pass_rate must be a float from 0 to 1, but is {rate!r}")
        if self.telemetry not in (None, "otlp"):
            raise ValueError(f'telemetry must be "otlp", but is {self.telemetry!r}')
        timeout: Any = 1 if self.timeout is None else self.timeout
        if not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT_S:
            wanted = f"more than 0 seconds, and {MAX_TIMEOUT_S} at most, as a float"
            raise ValueError(f"timeout must be {wanted}, but is {timeout!r}")


def scenario(
    name: str,
    *,
    tags: Iterable[str] = (),
    repeats: int = 1,
    pass_rate: float = 1.0,
    timeout: float | None = None,
    agent: Any = None,
    gateway: bool = False,
    telemetry: Literal["otlp"] | None = None,
) -> Callable[[F], F]:
    """Make a test function a scenario, and return the function itself.

    Args:
        name: a title for people; `kindlm test -t` finds the scenario by any part of it.
        tags: words to select the scenario by: `kindlm test --tags`.
        repeats: how often the scenario runs.
        pass_rate: the share of repeats that must pass, from 0 to 1.
        timeout: the most seconds of one repeat, which is then cut off and errored; by default
            `eval.default_timeout` of the configuration.
        agent: the agent under test, by default that of the configuration: the object itself (a
            function, an agent of a framework), a function without parameters or a class that makes
            the agent of a conversation, its URL, or a mapping with the keys of `[agent]`.
        gateway: whether the agent calls its models through kindlm, which records these calls.
        telemetry: "otlp" if kindlm reads the agent's actions from its OpenTelemetry spans.

    Raises:
        ValueError: an argument is invalid.
        TypeError: the decorated object is not a function.
    """
    if not isinstance(name, str):
        message = 'Write @scenario("name") above the function, with a name'  # type: ignore[unreachable]
        raise TypeError(message)
    words = (tags,) if isinstance(tags, str) else sorted(tags) if isinstance(tags, set) else tags
    spec = ScenarioSpec(name, tuple(words), repeats, pass_rate, timeout, agent, gateway, telemetry)

    def decorate(function: F) -> F:
        if not hasattr(function, "__code__"):
            raise TypeError(f"@scenario applies to functions; {function!r} is not one")
        name, wrong = function.__name__, None
        if not name.startswith("test"):
            wrong = f"A scenario is a test: call the function test_{name}, so that pytest finds it"
        elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            wrong = f"Remove `yield` from {name}: it keeps the test from running"
        elif spec_of(function) is not None:
            wrong = f"There are two @scenario above {name}: remove one"
        if wrong is not None:
            raise ValueError(wrong)
        setattr(function, _ATTRIBUTE, replace(spec))  # a copy, to tell functions apart
        function.__globals__.setdefault(MADE_HERE, []).append(function)
        return function

    return decorate


def spec_of(value: object) -> ScenarioSpec | None:
    """Return the arguments of a function's `@scenario`; None for any other object."""
    found = getattr(value, _ATTRIBUTE, None)
    return found if isinstance(found, ScenarioSpec) else None
