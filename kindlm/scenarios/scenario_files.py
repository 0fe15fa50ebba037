"""Loads files with scenarios: each is a suite, and one that cannot be loaded keeps no other.

A Python file is imported as a module of its own, with what stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from kindlm.config import LoadedSuite, read_bytes, suite_identity
from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, KindlmError, Ok, Result, SourceLocation, misuse
from kindlm.scenarios.configuration import LoadedConfiguration
from kindlm.scenarios.finding import FoundScenarios, Scenario, find_scenarios
from kindlm.scenarios.marks import AgentFixture, agent_fixture
from kindlm.scenarios.scenario_suite import choose_agents, compile_scenarios
from kindlm.scenarios.written import Conftests, read_conftests
from kindlm.scenarios.yaml_form import read_scenarios
from kindlm.user_modules import SkippedFile, import_file


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides how scenarios are loaded, besides their files."""

    root: Path
    project: str
    environ: Mapping[str, str]
    configuration: LoadedConfiguration


def load_scenarios(file: Path, around: Surroundings, name: str | None = None) -> LoadedSuite:
    """Load the scenarios of a Python or YAML file. Never raises for what a user did.

    `name` is what its suite is known by, if that is not where the file is.
    """
    path = name or suite_identity(file, around.root)
    data = read_bytes(file)
    if isinstance(data, Err):
        return _unusable(file, path, 0, [data.error])
    if file.suffix.lower() != ".py":
        found, tests = read_scenarios(file, data.value)
        if any(each.severity == "error" for each in found.problems):
            return LoadedSuite(file, None, path, tests, found.problems)
        return compiled_suite(file, path, found, around, data.value)
    imported = import_file(file)
    if isinstance(imported, Err):
        return _unusable(file, path, 1, [imported.error])
    if isinstance(imported.value, SkippedFile):
        skipped = imported.value
        error = misuse(
            f"The file skips itself, so none of its tests run: {skipped.reason}",
            None,
            SourceLocation(str(file), skipped.line),
            "skipped",
        )
        found = FoundScenarios((), (Diagnostic(error, "warning"),))
    else:
        conftests = read_conftests(file, around.root)
        before = Conftests(None, ()) if isinstance(conftests, Err) else conftests.value
        agent = _agent_of(imported.value, before.agents)
        if isinstance(agent, Err):
            return _unusable(file, path, 1, [agent.error])
        module, automatic = imported.value, before.automatic
        found = find_scenarios(module, data.value, str(file), automatic, agent.value)
        if isinstance(conftests, Err) and found.scenarios:
            return _unusable(file, path, len(found.scenarios), [conftests.error])
    return compiled_suite(file, path, found, around, data.value)


def _agent_of(module: ModuleType, conftests: Sequence[Path]) -> Result[AgentFixture | None]:
    """Return the fixture that makes the agent of a file; a conftest.py that has it is imported.

    Only then: most of what a conftest.py holds is for pytest.
    """
    found = agent_fixture(module)
    for conftest in conftests:
        if found is not None:
            break
        imported = import_file(conftest)
        if isinstance(imported, Err):
            return imported
        if not isinstance(imported.value, SkippedFile):
            found = agent_fixture(imported.value)
    return Ok(found)


def compiled_suite(
    file: Path, path: str, found: FoundScenarios, around: Surroundings, data: bytes
) -> LoadedSuite:
    """Return the suite of a file whose scenarios were found; `data` is its text."""
    loaded, scenarios = around.configuration, found.scenarios
    if any(each.severity == "error" for each in found.problems):
        return LoadedSuite(file, None, path, len(scenarios), found.problems)
    if loaded.config is None:
        return LoadedSuite(file, None, path, len(scenarios), loaded.diagnostics)
    chosen = choose_agents(scenarios, loaded, around.root, around.environ)
    if len(chosen.faults) == len(scenarios) > 0:
        unusable = _unusable(file, path, len(scenarios), chosen.errors)
        return replace(unusable, diagnostics=(*loaded.diagnostics, *unusable.diagnostics))
    suite = compile_scenarios(path, around.project, scenarios, chosen, loaded, data)
    referenced = () if loaded.file is None else (loaded.file,)
    faults = (Diagnostic(error, "error", "agent") for error in chosen.errors)
    told = (*loaded.diagnostics, *found.problems, *faults, *_hints(scenarios))
    return LoadedSuite(file, suite, path, len(scenarios), told, referenced)


def _hints(scenarios: Sequence[Scenario]) -> Iterator[Diagnostic]:
    """Yield what to know of scenarios, once for all cases of one.

    That is why they can only be run by pytest, and that those in Python cannot fail.
    """
    found: dict[tuple[str, str], KindlmError] = {}
    for each in scenarios:
        name, where = each.name.partition("[")[0], each.where
        if each.hint is not None:
            error = misuse(f"{name} is skipped: {each.hint}", None, where, "fixture")
            found.setdefault((name, each.hint), error)
        elif each.spec.pass_rate == 0 and where.file.endswith(".py"):
            message = f"{name} passes even if all its repeats fail: its pass_rate is 0"
            found.setdefault((name, ""), misuse(message, None, where, "never_fails"))
    for (name, _), error in found.items():
        yield Diagnostic(error, "warning", name)


def _unusable(file: Path, path: str, tests: int, errors: Sequence[KindlmError]) -> LoadedSuite:
    found = tuple(Diagnostic(error) for error in errors)
    return LoadedSuite(file, None, path, tests, found)
