"""Finds the scenarios of a test file: the functions that pytest would collect of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import TestCase

from kindlm.config.diagnostics import Diagnostic
from kindlm.errors import ErrorCode, KindlmError, SourceLocation
from kindlm.scenarios.api import ScenarioSpec, spec_of
from kindlm.scenarios.marks import is_skipped, marks_of, open_condition
from kindlm.scenarios.namesakes import namesakes, written_scenarios
from kindlm.scenarios.parametrize import Arguments, Parameters, arguments_of, is_trial
from kindlm.scenarios.preparation import prepared_by_marks, prepares
from kindlm.scenarios.script import FunctionScript
from kindlm.suite import Script

_WITH_PYTEST = ": run pytest --kindlm"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as it was found: its test name without the file, and how it is run.

    `hint` says why it can only be run by pytest. `is_skipped` tells that a mark keeps it from being
    run at all. `agent_where` is where its own agent stands, if that is known.
    """

    name: str
    spec: ScenarioSpec
    where: SourceLocation
    script: Script
    hint: str | None = None
    is_skipped: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    agent_where: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class FoundScenarios:
    """The scenarios of a file, in the order of pytest, and what is wrong with it."""

    scenarios: tuple[Scenario, ...]
    problems: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a function stands: the classes around it, the outermost first, in their module."""

    module: ModuleType
    classes: tuple[type, ...] = ()
    name: str = ""

    def within(self, owner: type, name: str) -> _Place:
        return _Place(self.module, (*self.classes, owner), f"{self.name}{name}::")

    @property
    def marks(self) -> list[Any]:
        """The marks of all that is around it, the nearest first."""
        return [m for owner in (*reversed(self.classes), self.module) for m in marks_of(owner)]

    @property
    def hint(self) -> str | None:
        """Why what is in here can only be run by pytest."""
        found = prepares(self.module)
        if found is None and not self.classes:
            found = prepares(self.module, functions=True)
        for owner in self.classes:
            found = found or prepares(owner)
        return found and f"{found}{_WITH_PYTEST}"


@dataclass(frozen=True, slots=True)
class _Test:
    """A function that pytest collects: `value` is what stands in its class or module."""

    place: _Place
    attribute: str
    value: Any

    @property
    def name(self) -> str:
        return f"{self.place.name}{self.attribute}"

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself, of a static method, too."""
        is_wrapped = isinstance(self.value, staticmethod | classmethod)
        function: Callable[..., Any] = self.value.__func__ if is_wrapped else self.value
        return function

    @property
    def is_bound(self) -> bool:
        return bool(self.place.classes) and not isinstance(self.value, staticmethod)

    @property
    def where(self) -> SourceLocation:
        code = inspect.unwrap(self.function).__code__
        return SourceLocation(code.co_filename, code.co_firstlineno)

    def find(self) -> Callable[..., Any]:
        """Return the function as it is called: that of an object that no other trial has."""
        if not self.place.classes:
            return self.function
        bound: Callable[..., Any] = getattr(self.place.classes[-1](), self.attribute)
        return bound


def find_scenarios(module: ModuleType, source: bytes, file: str) -> FoundScenarios:
    """Return the scenarios of a module and what is wrong with it; `source` is the text of `file`.

    Never raises for what a user did.
    """
    scenarios: list[Scenario] = []
    problems = [Diagnostic(error, "error", "", None) for error in namesakes(source, file)]
    written = written_scenarios(source)
    for test in _tests(_Place(module)):
        if spec_of(test.function) is None:
            problems += _overlooked(test, written)
            continue
        try:
            marks = [*marks_of(test.function), *test.place.marks]
            taken = arguments_of(test.function, marks, bound=test.is_bound)
            trial = taken.trial
            if trial is None and _constructed(test.place) is not None:
                trial = ""  # It is not called.
            if trial is None:
                problems.append(Diagnostic(_without_trial(test), "error", test.name, None))
            else:
                scenarios += _cases(test, marks, taken, trial)
        except Exception as error:  # noqa: BLE001 - whatever the user's values raise
            problems.append(Diagnostic(_unreadable(test, error), "error", test.name, None))
    return FoundScenarios(tuple(scenarios), tuple(problems))


def _tests(place: _Place) -> Iterator[_Test]:
    """Yield the test functions of a module or class, those of the classes it comes from first."""
    owner = place.classes[-1] if place.classes else place.module
    if not getattr(owner, "__test__", True):
        return
    owners = owner.__mro__ if isinstance(owner, type) else (owner,)
    seen: set[str] = set()
    found: list[list[_Test]] = []
    for each in owners:
        here = [item for item in vars(each).items() if item[0] not in seen]
        seen.update(name for name, _ in here)
        found.append([test for name, value in here for test in _tests_of(place, name, value)])
    for tests in reversed(found):
        yield from tests


def _tests_of(place: _Place, name: str, value: object) -> Iterator[_Test]:
    if inspect.isclass(value):
        is_test = name.startswith("Test") or issubclass(value, TestCase)
        if is_test and not inspect.isabstract(value):
            yield from _tests(place.within(value, name))
    elif name.startswith("test") and _is_function(value):
        yield _Test(place, name, value)


def _is_function(value: object) -> bool:
    inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    return hasattr(inspect.unwrap(inner), "__code__") if callable(inner) else False


def _cases(test: _Test, marks: Sequence[Any], taken: Arguments, trial: str) -> Iterator[Scenario]:
    spec = spec_of(test.function)
    assert spec is not None
    hint = _constructed(test.place) or _needs(taken, marks) or test.place.hint
    file = Path(test.where.file)
    for case in taken.cases() or [Parameters()]:
        script = FunctionScript(test.find, file, test.where, trial, case.arguments)
        own = [*case.marks, *marks]
        skipped = case.is_empty or is_skipped(own)
        text = None if skipped else open_condition(own)
        yield Scenario(
            name=test.name if case.id is None else f"{test.name}[{case.id}]",
            spec=spec,
            where=test.where,
            script=script,
            hint=None if skipped else hint if text is None else _only_pytest_reads(text),
            is_skipped=skipped,
            parameters=case.arguments,
        )


def _needs(taken: Arguments, marks: Sequence[Any]) -> str | None:
    asked = prepared_by_marks(marks)
    return taken.needs or (asked and f"{asked}{_WITH_PYTEST}")


def _only_pytest_reads(condition: str) -> str:
    return f"its skipif has the text {condition!r} for a condition{_WITH_PYTEST}"


def _constructed(place: _Place) -> str | None:
    """Return why tests in a class get no trial, under pytest either."""
    for owner in place.classes:
        if issubclass(owner, TestCase):
            why = "is a unittest.TestCase, whose tests get no trial, under pytest either"
            return f"{owner.__name__} {why}: derive it from nothing"
        for name in ("__init__", "__new__"):
            if getattr(owner, name) is not getattr(object, name):
                return f"{owner.__name__} has {name}, and pytest runs no such class: remove it"
    return None


def _overlooked(test: _Test, written: Container[str]) -> list[Diagnostic]:
    """Return what is wrong with a test that looks as if it was meant for a scenario."""
    if test.name in written:
        return [Diagnostic(_hidden(test), "error", test.name, None)]
    parameters = inspect.signature(test.function).parameters.values()
    if not any(is_trial(each) for each in parameters):
        return []
    error = KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"{test.name} takes a trial and is not run: it is no scenario",
        'Write @scenario("what it is about") above it.',
        test.where,
        {"reason": "no_scenario"},
    )
    return [Diagnostic(error, "warning", test.name, None)]


def _hidden(test: _Test) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"A decorator above @scenario hides the scenario {test.name}",
        "Let it use functools.wraps, or write @scenario above it.",
        test.where,
        {"reason": "hidden"},
    )


def _without_trial(test: _Test) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"The scenario {test.name} takes no trial",
        "Give it an argument: t: Trial, or t: SyncTrial if it is not async.",
        test.where,
        {"reason": "no_trial"},
    )


def _unreadable(test: _Test, error: Exception) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"The marks of {test.name} can not be read: {type(error).__name__}: {error}",
        "Mend its parameters or conditions: the tests of this file did not run.",
        test.where,
        {"reason": "marks"},
    )
