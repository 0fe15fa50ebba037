"""From the scenarios of a file to the `Suite` that the engine runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kindlm.config.canonical import config_hash, resolved
from kindlm.config.compile_targets import compile_agent
from kindlm.config.credentials import hide_headers, hide_in_options
from kindlm.errors import KindlmError
from kindlm.scenarios.configuration import (
    PROVIDERS,
    LlmTable,
    LoadedConfiguration,
    ProjectConfiguration,
)
from kindlm.scenarios.finding import Scenario
from kindlm.suite import AgentTarget, Case, ModelTarget, Prompt, ProviderSettings, Suite

JUDGE = "llm"
"""The id of the model that judges and simulates: that of `[llm]`."""


@dataclass(frozen=True, slots=True)
class SuiteIdentity:
    """What the suite of a file is known by: its path is its name."""

    path: str
    project: str


def compile_scenarios(
    identity: SuiteIdentity,
    scenarios: list[Scenario],
    agents: Mapping[str, AgentTarget],
    faults: Mapping[str, KindlmError],
    loaded: LoadedConfiguration,
    digest: str,
) -> Suite:
    """Return the suite of a file.

    `agents` are those of its scenarios, by their names; `faults` keep some from being run.
    """
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
        cases=tuple(
            _case(identity, scenario, agents[scenario.name], faults.get(scenario.name))
            for scenario in scenarios
        ),
        gates=(),
        judge_model=next(iter(models), None),
        concurrency=config.eval.parallelism,
        reruns=config.eval.retries,
        timeout_ms=_milliseconds(min(config.eval.default_timeout, 120.0)),
        execution_timeout_ms=_milliseconds(config.eval.default_timeout),
    )


def _case(
    identity: SuiteIdentity, scenario: Scenario, agent: AgentTarget, fault: KindlmError | None
) -> Case:
    spec = scenario.spec
    return Case(
        name=f"{identity.path}::{scenario.name}",
        prompt=Prompt(user=""),
        targets=(agent.id,),
        agent=agent,
        repeat=spec.repeats,
        pass_rate=spec.pass_rate,
        tags=spec.tags,
        skip=scenario.is_skipped or scenario.hint is not None,
        where=scenario.where,
        script=scenario.script,
        title=spec.name,
        timeout_ms=None if spec.timeout is None else _milliseconds(spec.timeout),
        fault=fault,
    )


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def language_model(
    llm: LlmTable | None,
) -> tuple[dict[str, ProviderSettings], dict[str, ModelTarget]]:
    """Return the provider and the model of `[llm]` as the engine takes them, by their names."""
    if llm is None:
        return {}, {}
    known = llm.provider.lower() in PROVIDERS
    kind = llm.provider.lower() if known else "openai"
    provider = ProviderSettings(
        name=llm.provider,
        type=kind,
        api_key_env=llm.api_key_env or (_KEYS.get(kind) if known else None),
        base_url=llm.base_url,
    )
    model = ModelTarget(JUDGE, llm.provider, llm.model, judge_only=True)
    return {llm.provider: provider}, {JUDGE: model}


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
    # Left out where nothing is said, so that earlier hashes hold.
    declared = {"reportsTools": True} if agent.reports_tools else {}
    return {
        "name": agent.id,
        "type": agent.adapter,
        "url": agent.endpoint,
        "headers": hide_headers(agent.headers),
        "options": hide_in_options(agent.options),
        **declared,
    }


def digest_of(data: bytes) -> str:
    """Return the digest that a file of code is recorded by."""
    return hashlib.sha256(data).hexdigest()


def compiled_agent(loaded: LoadedConfiguration, root: Path) -> AgentTarget | None:
    """Return the agent of the configuration as the engine takes it."""
    if loaded.agent is None:
        return None
    return compile_agent(loaded.agent, root if loaded.file is None else loaded.file.parent)
