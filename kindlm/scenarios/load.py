"""Loading files with scenarios: each is a suite, and one that can't be loaded keeps no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kindlm.config.compile_targets import compile_agent
from kindlm.config.diagnostics import Diagnostic, Reporter
from kindlm.config.document import read_document
from kindlm.config.load import LoadedSuite, read_bytes, suite_identity
from kindlm.errors import Err, ErrorCode, KindlmError, SourceLocation
from kindlm.scenarios.compile import (
    SuiteIdentity,
    compile_scenarios,
    compiled_agent,
    digest_of,
)
from kindlm.scenarios.configuration import LoadedConfiguration, SandboxTable, agent_config
from kindlm.scenarios.finding import FoundScenarios, Scenario, find_scenarios
from kindlm.scenarios.importing import SkippedFile, import_file
from kindlm.scenarios.preparation import prepared_by_conftest
from kindlm.scenarios.yaml_form import read_scenarios
from kindlm.suite import AgentTarget

__all__ = ["Surroundings", "compiled_suite", "load_scenarios"]


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
        found = _prepared(found, prepared_by_conftest(file, around.root))
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
    agents, errors = _agents(scenarios, around)
    if errors:
        return _unusable(file, path, len(scenarios), errors)
    identity = SuiteIdentity(path, around.project)
    suite = compile_scenarios(identity, list(scenarios), agents, loaded, digest)
    referenced = () if loaded.file is None else (loaded.file,)
    told = (*loaded.diagnostics, *found.problems, *_hints(scenarios))
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


def _agents(
    scenarios: Sequence[Scenario], around: Surroundings
) -> tuple[dict[str, AgentTarget], list[KindlmError]]:
    """Return the agent of each scenario: its own, else that of the configuration."""
    default = compiled_agent(around.configuration, around.root)
    agents: dict[str, AgentTarget] = {}
    errors: list[KindlmError] = []
    for each in scenarios:
        own = each.spec.agent
        if own is None and default is not None:
            agents[each.name] = default
        elif own is None:
            errors.append(_no_agent(each))
        else:
            found = _own_agent(own, each, around)
            if isinstance(found, AgentTarget):
                agents[each.name] = found
            else:
                errors.append(found)
    return agents, errors[:1] if len({e.message for e in errors}) == 1 else errors


def _own_agent(
    own: str | Mapping[str, Any], scenario: Scenario, around: Surroundings
) -> AgentTarget | KindlmError:
    table = {"type": "http", "url": own} if isinstance(own, str) else own
    reporter = Reporter(scenario.where.file, read_document(b""))
    sandbox = around.configuration.config.sandbox if around.configuration.config else SandboxTable()
    config = agent_config(table, reporter, sandbox)
    if config is None:
        first = reporter.diagnostics[0].error
        message = f"agent of @scenario: {first.message}"
        return KindlmError(first.code, message, first.hint, scenario.where, first.details)
    return compile_agent(config, Path(scenario.where.file).parent)


def _unusable(file: Path, path: str, tests: int, errors: Sequence[KindlmError]) -> LoadedSuite:
    found = tuple(Diagnostic(error, "error", "", None) for error in errors)
    return LoadedSuite(file, None, path, tests, found)


def _no_agent(scenario: Scenario) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "There is no agent to test",
        'Name it in kindlm.toml: [agent] with type = "http" and url = "…"; or with'
        ' @scenario(…, agent="http://…")',
        scenario.where,
        {"reason": "no_agent"},
    )


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
