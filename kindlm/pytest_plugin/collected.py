"""From what pytest collected to suites: the same, with the same names, as `kindlm test` makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kindlm.config import Diagnostic, LoadedSuite, suite_identity
from kindlm.config.load import read_bytes
from kindlm.errors import Err, SourceLocation
from kindlm.formats.discovery import discover
from kindlm.pytest_plugin.failures import told_error
from kindlm.recording.project import project_name, run_environment
from kindlm.recording.request import SkippedSuite
from kindlm.scenarios.api import ScenarioSpec, spec_of
from kindlm.scenarios.compile import digest_of
from kindlm.scenarios.configuration_files import load_configuration
from kindlm.scenarios.finding import FoundScenarios, Scenario, find_scenarios
from kindlm.scenarios.load import Surroundings, compiled_suite, load_scenarios
from kindlm.scenarios.parametrize import arguments_of
from kindlm.scenarios.script import FunctionScript
from kindlm.scenarios.yaml_form import read_scenarios
from kindlm.suite import Suite


def holds_scenarios(file: Path) -> bool:
    """Tell whether a file is YAML with scenarios."""
    if file.suffix.lower() not in (".yaml", ".yml"):
        return False
    found = discover(file)
    return not isinstance(found, Err) and found.value.found[0].front_end == "scenario"


class YamlItem(pytest.Item):
    """A scenario of a YAML file; `run` is what runs it."""

    def __init__(self, *, scenario: Scenario, run: Callable[[YamlItem], None], **kwargs: Any):
        super().__init__(**kwargs)
        self.scenario = scenario
        self._run = run

    def runtest(self) -> None:
        """Run the scenario."""
        self._run(self)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where it is written; pytest counts lines from 0."""
        line = self.scenario.where.line
        return self.path, None if line is None else line - 1, self.name


class YamlFile(pytest.File):
    """A YAML file with scenarios."""

    def __init__(self, *, run: Callable[[YamlItem], None], **kwargs: Any):
        super().__init__(**kwargs)
        self._run = run

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the scenarios, or tell all that is wrong with the file."""
        data = read_bytes(self.path)
        if isinstance(data, Err):
            raise self.CollectError(told_error(data.error))
        read = read_scenarios(self.path, data.value)
        errors = [told_error(each.error) for each in read.diagnostics if each.severity == "error"]
        if errors:
            raise self.CollectError("\n".join(errors))
        for scenario in read.scenarios:
            yield YamlItem.from_parent(self, name=scenario.name, scenario=scenario, run=self._run)


@dataclass(frozen=True, slots=True)
class Test:
    """A scenario that pytest collected.

    `path` is that of its suite, `name` its own without it, `function` that without its case,
    `trial` the argument that takes the trial.
    """

    __test__ = False  # no test of anything itself

    path: str
    name: str
    function: str
    spec: ScenarioSpec
    where: SourceLocation
    item: pytest.Function | YamlItem
    trial: str = ""

    @property
    def file(self) -> Path:
        """The file as Python knows it."""
        return Path(self.where.file)

    @property
    def full_name(self) -> str:
        """What it is called in the history."""
        return f"{self.path}::{self.name}"

    def script(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> FunctionScript:
        """Return what runs its function with the values of its fixtures and parameters."""
        given = [name for name in inspect.signature(function).parameters if name != self.trial]
        others = {name: arguments[name] for name in given if name in arguments}
        return FunctionScript(lambda: function, self.file, self.where, self.trial, others)


@dataclass(frozen=True, slots=True)
class Collected:
    """The suites of what pytest collected, and which of their tests it chose to run."""

    suites: tuple[Suite, ...]
    skipped: tuple[SkippedSuite, ...]
    chosen: frozenset[tuple[str, str, str]]
    environ: Mapping[str, str]
    problems: tuple[Diagnostic, ...]

    @property
    def paths(self) -> set[str]:
        """The files of the tests."""
        return {suite.path for suite in self.suites} | {each.path for each in self.skipped}


@dataclass(slots=True)
class _File:
    """The tests of one file, in the order in which they were collected."""

    tests: list[Test] = field(default_factory=list)


def test_of(item: pytest.Item, root: Path) -> Test | None:
    """Return the scenario that an item of pytest is; None for any other test."""
    if isinstance(item, YamlItem):
        path, scenario = suite_identity(item.path, root), item.scenario
        return Test(path, item.name, item.name, scenario.spec, scenario.where, item)
    if not isinstance(item, pytest.Function):
        return None
    spec = spec_of(item.function)
    if spec is None:
        return None
    chain = item.listchain()
    module = next(i for i, node in enumerate(chain) if isinstance(node, pytest.Module))
    inside = [node.name for node in chain[module + 1 :]]
    code = inspect.unwrap(item.function).__code__
    return Test(
        path=suite_identity(item.path, root),
        name="::".join(inside),
        function="::".join([*inside[:-1], item.originalname]),
        spec=spec,
        where=SourceLocation(code.co_filename, code.co_firstlineno),
        item=item,
        # Asked now: others that run async tests put functions of theirs in its place later.
        trial=trial_argument(item, item.function),
    )


def trial_argument(node: pytest.Item, function: Callable[..., Any]) -> str:
    """Return the argument of a collected function that takes the trial."""
    owner = node.getparent(pytest.Class)
    written = None if owner is None else inspect.getattr_static(owner.obj, function.__name__, None)
    bound = owner is not None and not isinstance(written, staticmethod)
    return arguments_of(function, list(node.iter_markers()), bound=bound).trial or ""


def collect(
    tests: Sequence[Test], chosen: Sequence[Test], root: Path, environ: Mapping[str, str]
) -> Collected:
    """Return the suites of tests: one for each file, with all its scenarios, chosen or not."""
    files: dict[str, _File] = {}
    for test in tests:
        files.setdefault(test.path, _File()).tests.append(test)
    folders = list(dict.fromkeys(file.tests[0].item.path.parent for file in files.values()))
    whole = run_environment([*folders, root], environ)
    around = Surroundings(root, project_name(root), whole, load_configuration(root, whole))
    suites, skipped, problems = [], [], {}
    for path, file in files.items():
        loaded = _loaded(path, file, around)
        problems.update({found.error.message: found for found in loaded.diagnostics})
        if loaded.suite is not None:
            suites.append(loaded.suite)
        else:
            error = next(f.error for f in loaded.diagnostics if f.severity == "error")
            skipped.append(SkippedSuite(loaded.name, path, loaded.tests, error))
    names = {test.full_name for test in chosen}
    return Collected(
        tuple(suites),
        tuple(skipped),
        frozenset(
            (suite.name, case.name, target)
            for suite in suites
            for case in suite.cases
            for target in case.targets
            if case.name in names
        ),
        whole,
        tuple(problems.values()),
    )


def _loaded(path: str, file: _File, around: Surroundings) -> LoadedSuite:
    source = file.tests[0].item.path
    module = file.tests[0].item.getparent(pytest.Module)
    if module is None:
        return load_scenarios(source, around)
    read = read_bytes(source)
    data = b"" if isinstance(read, Err) else read.value
    found = find_scenarios(module.obj, data, str(source))
    merged = tuple(_merged(found.scenarios, file.tests))
    # Of what it warns, pytest tells itself what matters there.
    errors = tuple(each for each in found.problems if each.severity == "error")
    return compiled_suite(source, path, FoundScenarios(merged, errors), around, digest_of(data))


def _merged(found: Sequence[Scenario], tests: Sequence[Test]) -> Iterator[Scenario]:
    """Yield the scenarios of a file, and where pytest has other cases of one, those.

    What pytest was not asked to collect is known from the file alone.
    """
    collected: dict[str, list[Test]] = {}
    for test in tests:
        collected.setdefault(test.function, []).append(test)
    known: dict[str, list[Scenario]] = {}
    for scenario in found:
        known.setdefault(scenario.name.partition("[")[0], []).append(scenario)
    for function in dict.fromkeys((*known, *collected)):
        here, there = known.get(function, []), collected.get(function, [])
        names = {scenario.name for scenario in here}
        if there and not {test.name for test in there} <= names:
            yield from (_scenario(test) for test in there)
        else:
            yield from (replace(each, hint=None, is_skipped=False) for each in here)


def _scenario(test: Test) -> Scenario:
    assert isinstance(test.item, pytest.Function)
    # It is run with what its fixtures give it, once they do.
    return Scenario(test.name, test.spec, test.where, test.script(test.item.function, {}))
