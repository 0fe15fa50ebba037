"""Loading files with scenarios: each is a suite, and one that can't be loaded keeps no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kindlm.config.diagnostics import Diagnostic
from kindlm.config.load import LoadedSuite, read_bytes, suite_identity
from kindlm.errors import Err, ErrorCode, KindlmError, SourceLocation
from kindlm.scenarios.chosen_agents import choose_agents
from kindlm.scenarios.compile import SuiteIdentity, compile_scenarios, digest_of
from kindlm.scenarios.configuration import LoadedConfiguration
from kindlm.scenarios.finding import FoundScenarios, Scenario, find_scenarios
from kindlm.scenarios.importing import SkippedFile, import_file
from kindlm.scenarios.preparation import prepared_by_conftest
from kindlm.scenarios.yaml_form import read_scenarios


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
        read = read_scenarios(file, data.value)
        if any(found.severity == "error" for found in read.diagnostics):
            return LoadedSuite(file, None, path, read.tests, read.diagnostics)
        found = FoundScenarios(tuple(read.scenarios))
        return compiled_suite(file, path, found, around, digest_of(data.value))
    imported = import_file(file)
    if isinstance(imported, Err):
        return _unusable(file, path, 1, [imported.error])
    if isinstance(imported.value, SkippedFile):
        skipped = Diagnostic(_skipped_file(file, imported.value), "warning", "", None)
        found = FoundScenarios((), (skipped,))
    else:
        found = find_scenarios(imported.value, data.value, str(file))
        prepared = prepared_by_conftest(file, around.root)
        if isinstance(prepared, Err) and found.scenarios:
            return _unusable(file, path, len(found.scenarios), [prepared.error])
        found = _prepared(found, None if isinstance(prepared, Err) else prepared.value)
    return compiled_suite(file, path, found, around, digest_of(data.value))


def _prepared(found: FoundScenarios, fixture: str | None) -> FoundScenarios:
    """Return scenarios with the hint that they need a fixture beside their file, if one does."""
    if fixture is None:
        return found
    hint = f"{fixture}: run pytest --kindlm"
    scenarios = (
        each if each.is_skipped or each.hint is not None else replace(each, hint=hint)
        for each in found.scenarios
    )
    return replace(found, scenarios=tuple(scenarios))


def compiled_suite(
    file: Path, path: str, found: FoundScenarios, around: Surroundings, digest: str
) -> LoadedSuite:
    """Return the suite of a file whose scenarios were found; `digest` is that of its text."""
    loaded, scenarios = around.configuration, found.scenarios
    if any(each.severity == "error" for each in found.problems):
        return LoadedSuite(file, None, path, len(scenarios), found.problems)
    if loaded.config is None:
        return LoadedSuite(file, None, path, len(scenarios), loaded.diagnostics)
    chosen = choose_agents(scenarios, loaded, around.root, around.environ)
    if len(chosen.faults) == len(scenarios) > 0:
        unusable = _unusable(file, path, len(scenarios), chosen.errors)
        return replace(unusable, diagnostics=(*loaded.diagnostics, *unusable.diagnostics))
    identity = SuiteIdentity(path, around.project)
    suite = compile_scenarios(
        identity, list(scenarios), chosen.agents, chosen.faults, loaded, digest
    )
    referenced = () if loaded.file is None else (loaded.file,)
    faults = (Diagnostic(error, "error", "agent", None) for error in chosen.errors)
    told = (*loaded.diagnostics, *found.problems, *faults, *_hints(scenarios))
    return LoadedSuite(file, suite, path, len(scenarios), told, referenced)


def _hints(scenarios: Sequence[Scenario]) -> Iterator[Diagnostic]:
    """Yield why scenarios can only be run by pytest, once for all cases of one."""
    told: set[tuple[str, str]] = set()
    for each in scenarios:
        if each.hint is None:
            continue
        name = each.name.partition("[")[0]
        if (name, each.hint) not in told:
            told.add((name, each.hint))
            yield Diagnostic(_only_pytest(name, each), "warning", name, None)


def _unusable(file: Path, path: str, tests: int, errors: Sequence[KindlmError]) -> LoadedSuite:
    found = tuple(Diagnostic(error, "error", "", None) for error in errors)
    return LoadedSuite(file, None, path, tests, found)


def _only_pytest(name: str, scenario: Scenario) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"{name} is skipped: {scenario.hint}",
        None,
        scenario.where,
        {"reason": "fixture"},
    )


def _skipped_file(file: Path, skipped: SkippedFile) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"The file skips itself, and none of its tests is run: {skipped.reason}",
        None,
        SourceLocation(str(file), skipped.line),
        {"reason": "skipped"},
    )
