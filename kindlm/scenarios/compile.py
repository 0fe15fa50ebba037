"""From the scenarios of a file to the `Suite` that the engine runs."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from kindlm.config.canonical import config_hash, resolved
from kindlm.config.compile_targets import compile_agent
from kindlm.config.credentials import hide_headers, hide_in_options
from kindlm.errors import SourceLocation
from kindlm.scenarios.api import ScenarioSpec, spec_of
from kindlm.scenarios.configuration import (
    LlmTable,
    LoadedConfiguration,
    ProjectConfiguration,
)
from kindlm.scenarios.parametrize import Parameters, Unsupported, parameters_of
from kindlm.scenarios.script import FunctionScript
from kindlm.suite import AgentTarget, Case, ModelTarget, Prompt, ProviderSettings, Script, Suite

__all__ = [
    "JUDGE",
    "Scenario",
    "SuiteIdentity",
    "compile_scenarios",
    "language_model",
    "scenarios_of",
]

JUDGE = "llm"
"""The id of the model that judges and simulates: that of `[llm]`."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as it was found: its test name without the file, and how it is run.

    `hint` says why it can only be run by pytest.
    """

    name: str
    spec: ScenarioSpec
    where: SourceLocation
    script: Script
    hint: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SuiteIdentity:
    """What the suite of a file is known by: its path is its name."""

    path: str
    project: str


def scenarios_of(module: ModuleType, file: Path) -> Iterator[Scenario]:
    """Yield the scenarios of a module, in the order in which they stand there."""
    for name, value in list(vars(module).items()):
        if inspect.isclass(value) and name.startswith("Test"):
            for method, function in list(vars(value).items()):
                if spec_of(function) is not None and value.__module__ == module.__name__:
                    find = partial(_bound, value, method)
                    yield from _cases(f"{name}::{method}", function, find, file, bound=True)
        elif spec_of(value) is not None and value.__module__ == module.__name__:
            yield from _cases(name, value, partial(_same, value), file)


def compile_scenarios(
    identity: SuiteIdentity,
    scenarios: list[Scenario],
    agents: Mapping[str, AgentTarget],
    loaded: LoadedConfiguration,
    digest: str,
) -> Suite:
    """Return the suite of a file; `agents` are those of its scenarios, by their names."""
    config = loaded.config
    assert config is not None, "a configuration is checked before anything is compiled"
    providers, models = language_model(config.llm)
    text = _config_text(scenarios, agents, config, digest)
    return Suite(
        name=identity.path,
        project=identity.project,
        front_end="scenario",
        path=identity.path,
        config_hash=config_hash(text),
        config_text=text,
        providers=providers,
        models=models,
        cases=tuple(_case(identity, scenario, agents[scenario.name]) for scenario in scenarios),
        gates=(),
        judge_model=next(iter(models), None),
        concurrency=config.eval.parallelism,
        reruns=config.eval.retries,
        timeout_ms=_milliseconds(min(config.eval.default_timeout, 120.0)),
        execution_timeout_ms=_milliseconds(config.eval.default_timeout),
    )


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _bound(owner: type, name: str) -> Callable[..., Any]:
    """Return a method of an object that nobody else has: trials share no state."""
    bound: Callable[..., Any] = getattr(owner(), name)
    return bound


def _cases(
    name: str,
    function: Callable[..., Any],
    find: Callable[[], Callable[..., Any]],
    file: Path,
    *,
    bound: bool = False,
) -> Iterator[Scenario]:
    spec = spec_of(function)
    assert spec is not None
    line = inspect.unwrap(function).__code__.co_firstlineno
    where = SourceLocation(str(file), line)
    trial, parameters = parameters_of(function, bound=bound)
    if isinstance(parameters, Unsupported):
        script = FunctionScript(find, file, where, trial)
        yield Scenario(name, spec, where, script, hint=parameters.why)
        return
    for case in parameters or [Parameters()]:
        script = FunctionScript(find, file, where, trial, case.arguments)
        suffix = "" if case.id is None else f"[{case.id}]"
        yield Scenario(f"{name}{suffix}", spec, where, script, parameters=case.arguments)


def _case(identity: SuiteIdentity, scenario: Scenario, agent: AgentTarget) -> Case:
    spec = scenario.spec
    return Case(
        name=f"{identity.path}::{scenario.name}",
        prompt=Prompt(user=""),
        targets=(agent.id,),
        agent=agent,
        repeat=spec.repeats,
        pass_rate=spec.pass_rate,
        tags=spec.tags,
        skip=scenario.hint is not None,
        where=scenario.where,
        script=scenario.script,
        title=spec.name,
        timeout_ms=None if spec.timeout is None else _milliseconds(spec.timeout),
    )


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def language_model(
    llm: LlmTable | None,
) -> tuple[dict[str, ProviderSettings], dict[str, ModelTarget]]:
    """Return the provider and the model of `[llm]` as the engine takes them, by their names."""
    if llm is None:
        return {}, {}
    known = llm.provider.lower() in _TYPES
    kind = llm.provider.lower() if known else "openai"
    provider = ProviderSettings(
        name=llm.provider,
        type=kind,
        api_key_env=llm.api_key_env or (_KEYS.get(kind) if known else None),
        base_url=llm.base_url,
    )
    model = ModelTarget(JUDGE, llm.provider, llm.model, judge_only=True)
    return {llm.provider: provider}, {JUDGE: model}


_TYPES = ("openai", "anthropic", "ollama")
_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


def _config_text(
    scenarios: list[Scenario],
    agents: Mapping[str, AgentTarget],
    config: ProjectConfiguration,
    digest: str,
) -> str:
    """Return what the scenarios mean in canonical JSON: the code by its digest, no credentials."""
    document = {
        "scenarios": [
            {
                "name": each.name,
                "title": each.spec.name,
                "tags": list(each.spec.tags),
                "repeats": each.spec.repeats,
                "passRate": each.spec.pass_rate,
                "timeout": each.spec.timeout,
                "agent": _recordable(agents[each.name]),
            }
            for each in scenarios
        ],
        "llm": None if config.llm is None else resolved(config.llm),
        "eval": resolved(config.eval),
        "files": {"code": digest},
    }
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def _recordable(agent: AgentTarget) -> dict[str, Any]:
    return {
        "name": agent.id,
        "type": agent.adapter,
        "url": agent.endpoint,
        "headers": hide_headers(agent.headers),
        "options": hide_in_options(agent.options),
    }


def digest_of(data: bytes) -> str:
    """Return the digest that a file of code is recorded by."""
    return hashlib.sha256(data).hexdigest()


def compiled_agent(loaded: LoadedConfiguration, root: Path) -> AgentTarget | None:
    """Return the agent of the configuration as the engine takes it."""
    if loaded.agent is None:
        return None
    return compile_agent(loaded.agent, root if loaded.file is None else loaded.file.parent)
