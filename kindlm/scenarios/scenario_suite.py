"""Loads files with scenarios: each file is a suite, and a broken file does not affect others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kindlm.config import LoadedSuite, read_bytes, suite_identity
from kindlm.config.compile import canonical, compile_agent, config_hash
from kindlm.config.diagnostics import Diagnostic, Reporter
from kindlm.dataclass import dataclass, replace
from kindlm.document import Document
from kindlm.errors import Err, KindlmError, SourceLocation, misuse
from kindlm.packages import as_written
from kindlm.scenarios.configuration import (
    AGENT,
    LoadedConfiguration,
    ProjectConfiguration,
    SandboxTable,
    agent_config,
    language_model,
)
from kindlm.scenarios.finding import FoundScenarios, Scenario, find_scenarios
from kindlm.scenarios.marks import agent_fixture, read_conftests
from kindlm.scenarios.yaml_form import read_scenarios
from kindlm.secrecy import entry_secrets, hide_headers, hide_in_options
from kindlm.section import resolved
from kindlm.spelling import PYTHON, SCENARIO_YAML
from kindlm.suite import AgentTarget, Case, Prompt, Suite
from kindlm.user_modules import SkippedFile, import_file


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The project of scenarios: its root, name, environment and configuration."""

    root: Path
    project: str
    environ: Mapping[str, str]
    configuration: LoadedConfiguration


def load_scenarios(file: Path, around: Surroundings, name: str | None = None) -> LoadedSuite:
    """Load the scenarios of a Python or YAML file. Never raises for a mistake of the user.

    `name` is the name of the suite, by default the path of the file.
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
        message = f"The file skips itself, so none of its tests run: {skipped.reason}"
        error = misuse(message, None, SourceLocation(str(file), skipped.line), "skipped")
        found = FoundScenarios((), (Diagnostic(error, "warning"),))
    else:
        conftests = read_conftests(file, around.root, agent_fixture(imported.value))
        if isinstance(conftests, Err):
            return _unusable(file, path, 1, [conftests.error])
        found = find_scenarios(imported.value, *conftests.value)
    return compiled_suite(file, path, found, around, data.value)


def compiled_suite(
    file: Path, path: str, found: FoundScenarios, around: Surroundings, data: bytes
) -> LoadedSuite:
    """Return the suite of a file with these scenarios; `data` is the text of the file."""
    loaded, scenarios = around.configuration, found.scenarios
    if any(each.severity == "error" for each in found.problems):
        return LoadedSuite(file, None, path, len(scenarios), found.problems)
    if loaded.config is None:
        return LoadedSuite(file, None, path, len(scenarios), loaded.diagnostics)
    cases = tuple(_case(path, each, around) for each in scenarios)
    faults = [case.fault for case in cases if case.fault is not None]
    # The cases of a scenario share a fault, and so do those without an agent.
    errors: dict[tuple[str, str], KindlmError] = {}
    for fault in faults:
        place = "" if fault.details["reason"] == "no_agent" else str(fault.where)
        errors.setdefault((place, fault.message), fault)
    if len(faults) == len(scenarios) > 0:
        unusable = _unusable(file, path, len(scenarios), list(errors.values()))
        return replace(unusable, diagnostics=(*loaded.diagnostics, *unusable.diagnostics))
    text = _config_text(scenarios, cases, loaded.config, data)
    eval_table = loaded.config.eval
    providers, models = language_model(loaded.config.llm)
    suite = Suite(
        name=path,
        project=around.project,
        front_end="scenario",
        path=path,
        config_hash=config_hash(text),
        config_text=text,
        providers=providers,
        models=models,
        cases=cases,
        gates=(),
        judge_model=next(iter(models), None),
        concurrency=eval_table.parallelism,
        reruns=eval_table.retries,
        timeout_ms=_milliseconds(min(eval_table.default_timeout, 120.0)),
        execution_timeout_ms=_milliseconds(eval_table.default_timeout),
    )
    referenced = () if loaded.file is None else (loaded.file,)
    of_agents = (Diagnostic(error, "error", "agent") for error in errors.values())
    diagnostics = (*loaded.diagnostics, *found.problems, *of_agents, *_warnings(scenarios))
    return LoadedSuite(file, suite, path, len(scenarios), diagnostics, referenced)


def _warnings(scenarios: Sequence[Scenario]) -> Iterator[Diagnostic]:
    """Yield warnings about skipped scenarios and about scenarios that cannot fail.

    All cases of a scenario share a warning.
    """
    errors: dict[tuple[str, str], KindlmError] = {}
    for each in scenarios:
        name, where = each.name.partition("[")[0], each.where
        if each.skip:
            error = misuse(f"{name} is skipped: {each.skip}", None, where, "fixture")
            errors.setdefault((name, each.skip), error)
        elif each.spec.pass_rate == 0:
            message = f"{name} passes even if all its repeats fail: its pass_rate is 0"
            errors.setdefault((name, ""), misuse(message, None, where, "never_fails"))
    for (name, _), error in errors.items():
        yield Diagnostic(error, "warning", name)


def _unusable(file: Path, path: str, tests: int, errors: Sequence[KindlmError]) -> LoadedSuite:
    return LoadedSuite(file, None, path, tests, tuple(map(Diagnostic, errors)))


def _case(path: str, scenario: Scenario, around: Surroundings) -> Case:
    """Return a scenario for the engine, with its own agent or the default.

    Without a usable agent, it has a fault, and an agent with only a name, so that its name in the
    history stays the same.
    """
    spec, fault = scenario.spec, None
    agent = _agent(spec.agent, scenario, around.configuration, around.environ)
    if isinstance(agent, KindlmError):
        # A skipped scenario needs no agent: a mark may skip it if a variable is not set.
        fault = agent if scenario.skip is None else None
        name = spec.agent.get("name") if isinstance(spec.agent, Mapping) else None
        agent = AgentTarget(name if isinstance(name, str) and name else AGENT, "http", "")
    agent = _observed(agent, scenario)
    return Case(
        name=f"{path}::{scenario.name}",
        prompt=Prompt(user=""),
        targets=(agent.id,),
        agent=agent,
        repeat=spec.repeats,
        pass_rate=spec.pass_rate,
        tags=spec.tags,
        skip=scenario.skip is not None,
        where=scenario.where,
        script=scenario.script,
        title=spec.name,
        timeout_ms=None if spec.timeout is None else _milliseconds(spec.timeout),
        fault=fault,
    )


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _config_text(
    scenarios: Sequence[Scenario],
    cases: Sequence[Case],
    config: ProjectConfiguration,
    data: bytes,
) -> str:
    """Return the suite as canonical JSON: the code as a digest, and no credentials."""
    document = {
        "scenarios": [
            {
                "name": each.name,
                "title": each.spec.name,
                "tags": list(each.spec.tags),
                "repeats": each.spec.repeats,
                "passRate": each.spec.pass_rate,
                "timeout": each.spec.timeout,
                "agent": None if case.agent is None else _recordable(case.agent),
            }
            for each, case in zip(scenarios, cases, strict=True)
        ],
        "llm": None if config.llm is None else resolved(config.llm),
        "eval": resolved(config.eval),
        "files": {"code": hashlib.sha256(data).hexdigest()},
    }
    return canonical(document)


def _recordable(agent: AgentTarget) -> dict[str, Any]:
    declared = {
        "reportsTools": agent.reports_tools,
        "gateway": agent.gateway,
        "telemetry": agent.telemetry,
    }
    # Defaults are left out, so that hashes stay as they were before these options.
    return {key: value for key, value in declared.items() if value} | {
        "name": agent.id,
        "type": agent.adapter,
        "url": agent.endpoint,
        "headers": hide_headers(agent.headers),
        "options": hide_in_options(as_written(agent.options)),
    }


def _agent(
    own: Any, scenario: Scenario, configuration: LoadedConfiguration, environ: Mapping[str, str]
) -> AgentTarget | KindlmError:
    """Return the agent of a scenario, by default that of the configuration."""
    file = Path(scenario.where.file)
    is_python = file.suffix.lower() == ".py"
    if own is None and configuration.agent is not None:
        return configuration.agent
    if own is None:
        hint = 'Name it in kindlm.toml: [agent] with type = "http" and url = "…"; or with '
        hint += "@scenario(…, agent=my_agent)" if is_python else "`agent: http://…`"
        return misuse("There is no agent to test", hint, scenario.where, "no_agent")
    if not isinstance(own, str | Mapping) and (callable(own) or type(own).__module__ != "builtins"):
        # The recorded name of an object is its own, else that of its type.
        name = getattr(own, "__qualname__", None) or type(own).__qualname__
        return AgentTarget(AGENT, "python", name, directory=str(file.parent), instance=own)
    where, wrong = scenario.agent_where or scenario.where, None
    if not isinstance(own, str | Mapping):
        wrong = f"but is of type {type(own).__name__}"
    else:
        try:
            json.dumps(own if isinstance(own, str) else dict(own), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            wrong = f"and its values JSON: {error}"
    if wrong is not None:
        message = "agent of @scenario must be an agent in Python, a URL or a mapping with the keys"
        hint = "Write agent=answer for a function `answer`, which takes the text of a message"
        return misuse(f"{message} of [agent], {wrong}", hint, where, "agent")
    table = {"type": "http", "url": own} if isinstance(own, str) else dict(own)
    reporter = Reporter(str(file), Document(), PYTHON if is_python else SCENARIO_YAML)
    reporter.hide(entry_secrets(table))
    sandbox = configuration.config.sandbox if configuration.config else SandboxTable()
    if (config := agent_config(table, reporter, sandbox, environ)) is None:
        first = reporter.diagnostics[0].error
        message = f"agent of @scenario: {first.message}" if is_python else first.message
        return KindlmError(first.code, message, first.hint, where, first.details)
    return compile_agent(config, file.parent)


def with_agent(case: Case, value: Any, scenario: Scenario) -> Case:
    """Return a case with the agent that a fixture returned: an object, or a URL."""
    if isinstance(value, Mapping) or value is None:
        message = f"The fixture agent returned {value if value is None else 'a mapping'}"
        hint = "Let it return the agent itself or its URL. Keys of an agent belong in"
        hint += " @scenario(agent={…}) or in [agent] of the configuration"
        return replace(case, fault=misuse(message, hint, scenario.where, "agent"))
    found = _agent(value, scenario, LoadedConfiguration(None, None, None), {})
    if isinstance(found, KindlmError):
        return replace(case, fault=found)
    return replace(case, agent=_observed(found, scenario))


def _observed(agent: AgentTarget, scenario: Scenario) -> AgentTarget:
    gateway, telemetry = scenario.spec.gateway, scenario.spec.telemetry
    return replace(agent, gateway=agent.gateway or gateway, telemetry=agent.telemetry or telemetry)
