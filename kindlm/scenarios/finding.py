"""Finds the scenarios of a test file without pytest: the functions that pytest would collect.

A scenario that needs pytest is skipped, with a hint why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import TestCase

from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import dataclass, replace
from kindlm.errors import KindlmError, SourceLocation, misuse
from kindlm.scenarios.api import MADE_HERE, ScenarioSpec, spec_of
from kindlm.scenarios.function_script import FunctionScript
from kindlm.scenarios.marks import (
    AGENT_FIXTURE,
    AgentFixture,
    agent_fixture,
    arguments_of,
    cases_of,
    is_trial,
    marks_named,
    marks_of,
    why_skipped,
)
from kindlm.suite import Script

_CALLED_BY_PYTEST = (
    *("setup_module", "setUpModule", "teardown_module", "tearDownModule"),
    *("setup_function", "teardown_function", "setup_class", "teardown_class"),
    *("setup_method", "teardown_method", "pytest_generate_tests"),
)

_CREATING = ("__init__", "__new__")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario of a file; `name` is its name without the file, and `script` runs it.

    `skip` is None if it runs. Otherwise, it says why only pytest can run it, or is empty if a mark
    skips it. `agent_where` is the place of its own agent in a YAML file.
    """

    name: str
    spec: ScenarioSpec
    where: SourceLocation
    script: Script
    skip: str | None = None
    agent_where: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class FoundScenarios:
    """The scenarios of a file, in the order of pytest, and problems of the file."""

    scenarios: tuple[Scenario, ...]
    problems: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class _Test:
    """A function that pytest collects.

    `classes` are the classes around it, the outermost first; `names` are their names and its own.
    A static method is not `bound`.
    """

    module: ModuleType
    classes: tuple[type, ...]
    names: tuple[str, ...]
    function: Callable[..., Any]
    bound: bool

    @property
    def name(self) -> str:
        return "::".join(self.names)

    @property
    def where(self) -> SourceLocation:
        return written_at(self.function)

    @property
    def marks(self) -> list[Any]:
        """The marks of the function, its classes and its module, the nearest first."""
        around = (self.function, *reversed(self.classes), self.module)
        return [mark for owner in around for mark in marks_of(owner)]

    def find(self) -> Callable[..., Any]:
        """Return the function for one trial: a method has a new object."""
        if not self.classes:
            return self.function
        bound: Callable[..., Any] = getattr(self.classes[-1](), self.names[-1])
        return bound


def written_at(function: Callable[..., Any]) -> SourceLocation:
    """Return the place of a function in its file, in spite of its decorators."""
    code = inspect.unwrap(function).__code__
    return SourceLocation(code.co_filename, code.co_firstlineno)


def find_scenarios(
    module: ModuleType, conftest: str | None = None, agent: AgentFixture | None = None
) -> FoundScenarios:
    """Return the scenarios and problems of a module. Never raises.

    `conftest` is a hint about a fixture of a conftest.py that only pytest can run. `agent` makes
    the agent of scenarios without their own.
    """
    scenarios: list[Scenario] = []
    lost = lost_scenarios(module)
    problems = [Diagnostic(error, "error", name) for name, error in lost.items()]
    for test in _tests(module):
        name = test.name
        if name in lost:
            continue
        if (spec := spec_of(test.function)) is None:
            parameters = inspect.signature(test.function).parameters.values()
            if any(is_trial(each) for each in parameters):
                message = f"{name} takes a trial and is not run: it is not a scenario"
                hint = 'Write @scenario("what it is about") above it.'
                error = misuse(message, hint, test.where, "no_scenario")
                problems.append(Diagnostic(error, "warning", name))
            continue
        try:
            cases = list(_cases(test, spec, conftest, agent))
        except Exception as fault:  # noqa: BLE001 - from the user's values
            message = f"The marks of {name} cannot be read: {type(fault).__name__}: {fault}"
            hint = "Fix its parameters or conditions: the tests of this file did not run."
            error = misuse(message, hint, test.where, "marks")
            problems.append(Diagnostic(error, "error", name))
            continue
        scenarios += cases
        if not cases:
            problems.append(Diagnostic(without_trial(name, test.where), "error", name))
    return FoundScenarios(tuple(scenarios), tuple(problems))


def _tests(
    module: ModuleType, classes: tuple[type, ...] = (), names: tuple[str, ...] = ()
) -> Iterator[_Test]:
    """Yield the test functions of a module or class, those of the bases of a class first."""
    owner = classes[-1] if classes else module
    if not getattr(owner, "__test__", True):
        return
    seen: set[str] = set()
    found: list[list[_Test]] = []
    for each in owner.__mro__ if isinstance(owner, type) else (owner,):
        here: list[_Test] = []
        for name, value in list(vars(each).items()):
            if name in seen:
                continue
            seen.add(name)
            if inspect.isclass(value):
                is_named = name.startswith("Test") or getattr(value, "__test__", False) is True
                if (is_named or issubclass(value, TestCase)) and not inspect.isabstract(value):
                    here += _tests(module, (*classes, value), (*names, name))
            elif name.startswith("test"):
                inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                if callable(inner) and hasattr(inspect.unwrap(inner), "__code__"):
                    bound = bool(classes) and not isinstance(value, staticmethod)
                    here.append(_Test(module, classes, (*names, name), inner, bound))
        found.append(here)
    for tests in reversed(found):
        yield from tests


def _cases(
    test: _Test, spec: ScenarioSpec, conftest: str | None, agent: AgentFixture | None
) -> Iterator[Scenario]:
    """Yield the cases of a scenario; none if it takes no trial."""
    marks = test.marks
    trial, fixture = arguments_of(test.function, marks, bound=test.bound)
    if trial is None:
        return
    cases = cases_of(marks)
    by_value = spec.agent is None and any(AGENT_FIXTURE in case.arguments for case in cases)
    used = (name for mark in marks_named("usefixtures", marks) for name in mark.args)
    fixture = fixture or next(used, None)
    why = f"it needs the fixture {fixture}" if fixture else _prepared(test) or conftest
    needs_agent = spec.agent is None and not by_value
    owners = (c for c in reversed(test.classes) if any(map(agent_fixture, c.__mro__)))
    if needs_agent and (owner := next(owners, None)) is not None:
        why = why or f"the fixture {AGENT_FIXTURE} is a method of {owner.__name__}"
    elif needs_agent and agent is not None:
        spec, why = replace(spec, agent=agent.make), why or agent.hint
    hint = why and f"{why}: run pytest --kindlm"
    for case in cases:
        by_marks = why_skipped([*case.marks, *marks])
        yield Scenario(
            name=test.name if case.id is None else f"{test.name}[{case.id}]",
            spec=replace(spec, agent=case.arguments.get(AGENT_FIXTURE)) if by_value else spec,
            where=test.where,
            script=FunctionScript(test.find, test.where, trial, case.arguments),
            skip=hint if by_marks is None else by_marks,
        )


def _prepared(test: _Test) -> str | None:
    """Return a hint about a function or fixture that only pytest runs before a test."""
    for owner in (test.module, *test.classes):
        for name in _CALLED_BY_PYTEST:
            if callable(getattr(owner, name, None)):
                return f"only pytest calls {name}"
        bases = reversed(owner.__mro__) if isinstance(owner, type) else (owner,)
        for name, value in (pair for base in bases for pair in vars(base).items()):
            # Versions of pytest store the fixture in one of these.
            for attribute in ("_fixture_function_marker", "_pytestfixturefunction"):
                if getattr(getattr(value, attribute, None), "autouse", False) is True:
                    return f"it needs the fixture {name}, which is automatic"
    return None


def lost_scenarios(module: ModuleType) -> dict[str, KindlmError]:
    """Return the errors of scenarios that would not run, not even under pytest.

    pytest does not create their class, another decorator hides them, or Python replaced them by a
    later test of the same name.
    """
    found: dict[str, KindlmError] = {}
    kept: set[int] = set()
    for test in _tests(module):
        kept.add(id(spec := spec_of(test.function)))
        for owner in test.classes if spec is not None else ():
            creates = [getattr(owner, name) for name in _CREATING]
            if creates != [getattr(object, name) for name in _CREATING]:
                message = f"pytest gives no trial to tests of {owner.__name__}: it has __init__ or"
                message += " __new__, as each unittest.TestCase has"
                hint = "Let the class have neither."
                found[test.name] = misuse(message, hint, test.where, "no_trial")
    for function in vars(module).get(MADE_HERE, ()):
        place: Any = module
        spec = spec_of(function)
        for part in function.__qualname__.split("."):
            place = getattr(place, part, None)
        # Functions in functions have no name in the module.
        if id(spec) not in kept and spec_of(place) is not spec and "<" not in function.__qualname__:
            name = function.__qualname__.replace(".", "::")
            message = f"The scenario {name} is lost: a decorator above @scenario hides it"
            message += ", or a later test has its name"
            hint = "Let the decorator use functools.wraps, or give one of the tests another name."
            found[name] = misuse(message, hint, written_at(function), "lost")
    return found


def without_trial(name: str, where: SourceLocation) -> KindlmError:
    """Return the error of a scenario without an argument for the trial."""
    hint = "Give it an argument: t: Trial, or t: SyncTrial if it is not async."
    return misuse(f"The scenario {name} takes no trial", hint, where, "no_trial")
