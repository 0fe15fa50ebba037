"""Turns the tests that pytest collected, and its options, into the request of a run.

`kindlm test` makes the same suites from the same files, with the same names.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kindlm.bounds import MAX_REPEAT
from kindlm.config import read_bytes, suite_identity
from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import dataclass, replace
from kindlm.engine.resources import Limits
from kindlm.errors import Err, KindlmError, Ok
from kindlm.events.run import RunOptions
from kindlm.formats.discovery import discover
from kindlm.history.run_names import label_problem
from kindlm.plan import Selection, name_of
from kindlm.recording.project import find_project, project_name, project_problems, run_environment
from kindlm.recording.request import RunRequest, SkippedSuite
from kindlm.reports.untrusted import visible
from kindlm.scenarios.api import spec_of
from kindlm.scenarios.configuration import load_configuration
from kindlm.scenarios.finding import (
    FoundScenarios,
    Scenario,
    lost_scenarios,
    without_trial,
    written_at,
)
from kindlm.scenarios.function_script import FunctionScript
from kindlm.scenarios.marks import AGENT_FIXTURE, arguments_of
from kindlm.scenarios.scenario_suite import Surroundings, compiled_suite
from kindlm.scenarios.yaml_form import read_scenarios


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options of a session.

    `named` is true if the user named the database. A worker of pytest-xdist records a `shard`, such
    as 1/4, of a `group`. With `dealt`, the worker gets its tests one by one while it runs.
    """

    root: Path
    database: Path
    named: bool
    label: str | None
    repeat: int | None
    max_cost_usd: float | None
    group: str | None = None
    shard: str | None = None
    dealt: bool = False


def read_options(config: pytest.Config) -> SessionOptions:
    """Return the options; raises `pytest.UsageError` for an invalid one.

    A worker of pytest-xdist gets the paths from its controller, since all write to one history.
    """
    if not hasattr(pytest, "HIDDEN_PARAM"):
        raise pytest.UsageError(
            f"--kindlm needs pytest 8.4 or newer, and this is {pytest.__version__}"
        )
    label, repeat = config.getoption("--kindlm-label"), config.getoption("--kindlm-repeat")
    max_cost = config.getoption("--kindlm-max-cost")
    if label is not None and (problem := label_problem(label)):
        raise _misused(problem)
    if repeat is not None and not 1 <= repeat <= MAX_REPEAT:
        raise pytest.UsageError(f"--kindlm-repeat {repeat}: write a number from 1 to {MAX_REPEAT}")
    if max_cost is not None and not (math.isfinite(max_cost) and max_cost > 0):
        raise pytest.UsageError(
            f"--kindlm-max-cost {max_cost} is not a limit: write a number above 0"
        )
    named = config.getoption("--kindlm-db")
    sent: dict[str, Any] = getattr(config, "workerinput", {}).get("kindlm", {})
    if sent:
        root, database = Path(sent["root"]), Path(sent["database"])
        part = (sent["group"], sent["shard"], sent["dealt"])
        return SessionOptions(root, database, named is not None, label, repeat, max_cost, *part)
    chosen = Path(named) if named else None
    project = find_project(chosen)
    if isinstance(project, Err):
        raise _misused(project.error)
    found = project.value
    return SessionOptions(found.root, found.database, named is not None, label, repeat, max_cost)


def error_text(error: KindlmError) -> str:
    """Return an error as text: its place, message and hint."""
    where = f"{error.where}: " if error.where else ""
    return visible("\n".join(filter(None, (f"{where}{error.message}", error.hint))))


def _misused(error: KindlmError) -> pytest.UsageError:
    return pytest.UsageError(" ".join(filter(None, (error.message, error.hint))))


def holds_scenarios(file: Path) -> bool:
    """Return whether a file is YAML with scenarios."""
    if file.suffix.lower() not in (".yaml", ".yml"):
        return False
    found = discover(file)
    return not isinstance(found, Err) and found.value.found[0].front_end == "scenario"


def holds_tests(path: Path) -> bool:
    """Return whether a file or folder may have tests of kindlm, even if nothing can import them."""
    found = discover(path)
    return isinstance(found, Ok) and bool(found.value.found or found.value.unreadable)


class YamlItem(pytest.Item):
    """A scenario of a YAML file."""

    def __init__(self, *, scenario: Scenario, **kwargs: Any):
        super().__init__(**kwargs)
        self.scenario = scenario

    def runtest(self) -> None:
        """Run the scenario."""
        self.config.pluginmanager.getplugin("kindlm-scenarios").run_yaml(self)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return its place in the file; pytest counts lines from 0."""
        line = self.scenario.where.line
        return self.path, None if line is None else line - 1, self.name


class YamlFile(pytest.File):
    """A YAML file with scenarios; after the collection, `diagnostics` are its warnings."""

    diagnostics: tuple[Diagnostic, ...] = ()

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the scenarios; raises `CollectError` with all errors of the file."""
        data = read_bytes(self.path)
        if isinstance(data, Err):
            raise self.CollectError(error_text(data.error))
        found, _ = read_scenarios(self.path, data.value)
        errors = [error_text(each.error) for each in found.problems if each.severity == "error"]
        if errors:
            raise self.CollectError("\n".join(errors))
        self.diagnostics = found.problems
        for scenario in found.scenarios:
            yield YamlItem.from_parent(self, name=scenario.name, scenario=scenario)


@dataclass(frozen=True, slots=True)
class Test:
    """A scenario that pytest collected.

    `path` is the path of its suite. `trial` is the argument for the trial, None if it lacks one.
    """

    __test__ = False  # pytest must not collect this class

    path: str
    scenario: Scenario
    item: pytest.Function | YamlItem
    trial: str | None

    @property
    def file(self) -> pytest.File:
        """The file of the scenario, as pytest collected it."""
        return next(node for node in self.item.listchain() if isinstance(node, pytest.File))

    @property
    def full_name(self) -> str:
        """Its name in the history."""
        return f"{self.path}::{self.scenario.name}"

    @property
    def has_agent_of_fixture(self) -> bool:
        """Whether the value of the fixture `agent` is the agent under test."""
        return self.scenario.spec.agent is _fixture

    def script(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> FunctionScript:
        """Return a script that calls its function with the values of fixtures and parameters."""
        trial = self.trial or ""
        names = [name for name in inspect.signature(function).parameters if name != trial]
        others = {name: arguments[name] for name in names if name in arguments}
        return FunctionScript(lambda: function, self.scenario.where, trial, others)


def test_of(item: pytest.Item, root: Path) -> Test | None:
    """Return the scenario of an item of pytest; None for any other test.

    The script of a function does not have the values of fixtures yet.
    """
    path = suite_identity(item.path, root)
    if isinstance(item, YamlItem):
        return Test(path, item.scenario, item, "")
    if not isinstance(item, pytest.Function) or (spec := spec_of(item.function)) is None:
        return None
    # Plugins for async tests replace the function of the item later.
    function, where = item.function, written_at(item.function)
    if spec.agent is None and AGENT_FIXTURE in item.fixturenames:
        spec = replace(spec, agent=_fixture)
    trial = trial_argument(item, function)
    script = FunctionScript(lambda: function, where, trial or "")
    return Test(path, Scenario(_name(item), spec, where, script), item, trial)


def _fixture(text: str) -> str:
    """A placeholder for the value of the fixture `agent`, which pytest makes later."""
    raise AssertionError(text)


_fixture.__qualname__ = AGENT_FIXTURE


def trial_argument(node: pytest.Item, function: Callable[..., Any]) -> str | None:
    """Return the argument of a collected function for the trial, None if it lacks one."""
    owner = node.getparent(pytest.Class)
    method = None if owner is None else inspect.getattr_static(owner.obj, function.__name__, None)
    bound = owner is not None and not isinstance(method, staticmethod)
    trial, _ = arguments_of(function, list(node.iter_markers()), bound=bound)
    return trial


def _name(item: pytest.Function) -> str:
    nodes = item.listchain()
    file = next(at for at, node in enumerate(nodes) if isinstance(node, pytest.File))
    return "::".join(node.name for node in nodes[file + 1 :])


def request_for(
    options: SessionOptions,
    files: Mapping[pytest.File, Sequence[pytest.Item]],
    chosen: Sequence[Test],
    environ: Mapping[str, str],
) -> tuple[RunRequest, list[KindlmError]]:
    """Return the request to run the chosen tests, and warnings.

    Each file is a suite with all its scenarios, chosen or not. `files` has all items of each file.
    """
    root = options.root
    folders = list(dict.fromkeys(file.path.parent for file in files))
    whole = run_environment([*folders, root], environ)
    around = Surroundings(root, project_name(root), whole, load_configuration(root, whole))
    suites, skipped = [], []
    warnings = {str(error.where): error for error in project_problems(folders, root)}
    for file, items in files.items():
        path, read = suite_identity(file.path, root), read_bytes(file.path)
        data = b"" if isinstance(read, Err) else read.value
        found = _found(file, items, root)
        loaded = compiled_suite(file.path, path, found, around, data)
        warned = (each.error for each in loaded.diagnostics if each.severity == "warning")
        warnings.update({error.message: error for error in warned})
        if loaded.suite is not None:
            suites.append(loaded.suite)
        else:
            error = next(f.error for f in loaded.diagnostics if f.severity == "error")
            skipped.append(SkippedSuite(loaded.name, path, loaded.tests, error))
    names = {test.full_name for test in chosen}
    only = frozenset(
        name_of(suite, case, target)
        for suite in suites
        for case in suite.cases
        for target in case.targets
        if case.name in names
    )
    run_options = RunOptions(
        paths=sorted({suite.path for suite in suites} | {each.path for each in skipped}),
        repeat=options.repeat,
        max_cost_usd=options.max_cost_usd,
        shard=options.shard,
        runner="pytest",
    )
    request = RunRequest(
        suites=tuple(suites),
        skipped=tuple(skipped),
        selection=Selection(repeat=options.repeat, only=only),
        root=root,
        database=options.database,
        environ=whole,
        options=run_options,
        limits=Limits(options.max_cost_usd),
        label=options.label,
        group=options.group,
    )
    return request, list(warnings.values())


def lost_items(items: Sequence[pytest.Item]) -> dict[pytest.Item, KindlmError]:
    """Return the errors of tests with `@scenario` that are plain functions now.

    pytest would run them like any other test, and they would pass without a trial.
    """
    found: dict[pytest.Item, KindlmError] = {}
    for item in items:
        if isinstance(item, pytest.Function) and spec_of(item.function) is None:
            name = _name(item).removesuffix(item.name) + item.originalname  # without parameters
            if (error := _lost_in(item.module).get(name)) is not None:
                found[item] = error
    return found


_lost_in = cache(lost_scenarios)


def _found(file: pytest.File, items: Sequence[pytest.Item], root: Path) -> FoundScenarios:
    if isinstance(file, YamlFile):
        in_yaml = (item.scenario for item in items if isinstance(item, YamlItem))
        return FoundScenarios(tuple(in_yaml), file.diagnostics)
    scenarios: list[Scenario] = []
    errors = dict(_lost_in(file.obj)) if isinstance(file, pytest.Module) else {}
    for item in items:
        test = test_of(item, root)
        if test is not None:
            scenarios.append(test.scenario)
            if test.trial is None:
                name = test.scenario.name
                errors[name] = without_trial(name, test.scenario.where)
    problems = (Diagnostic(error) for error in errors.values())
    return FoundScenarios(tuple(scenarios), tuple(problems))
