"""What is tested, and where it is, as values: providers, models, agents, programs to start."""

from __future__ import annotations

import shlex
from pathlib import Path

from kindlm.config.entries import recorded_name
from kindlm.config.schema import KindlmConfig, TestConfig
from kindlm.config.target_schema import (
    AgentConfig,
    ModelConfig,
    ProviderConfig,
    ReadyConfig,
    ServeConfig,
)
from kindlm.suite import (
    TELEMETRY_WAIT_MS,
    AgentTarget,
    ModelParams,
    ModelTarget,
    ProviderSettings,
    Service,
)


def compile_provider(name: str, config: ProviderConfig) -> ProviderSettings:
    """Return the settings of a provider; its name is the wire format if none is written."""
    return ProviderSettings(
        name=name,
        type=config.type or name,
        api_key_env=config.api_key_env,
        base_url=config.base_url,
        organization=config.organization,
        options=config.options,
    )


def compile_model(config: ModelConfig) -> ModelTarget:
    """Return a model, which knows the parameters that were written."""
    params = config.params
    return ModelTarget(
        id=config.id,
        provider=config.provider,
        model=config.model,
        params=ModelParams(
            temperature=params.temperature,
            max_tokens=params.max_tokens,
            top_p=params.top_p,
            stop_sequences=tuple(params.stop_sequences or ()),
            seed=params.seed,
            written=frozenset(params.model_fields_set),
        ),
        judge_only=config.role == "judge",
    )


def compile_agent(config: AgentConfig, folder: Path) -> AgentTarget:
    """Return a live agent."""
    options = config.options
    return AgentTarget(
        id=config.id,
        adapter=config.adapter if options is None else recorded_name(options, config.adapter),
        endpoint=config.endpoint or "",
        headers=config.headers,
        directory=str(folder),
        options=None if options is None else options.compiled(),
        timeout_ms=config.timeout_ms,
        verbose=config.verbose,
        reports_tools=bool(config.reports_tools),
        gateway=bool(config.gateway),
        telemetry=config.telemetry,
        telemetry_wait_ms=config.telemetry_wait_ms or TELEMETRY_WAIT_MS,
    )


def compile_service(config: ServeConfig, folder: Path) -> Service:
    """Return a program to start in the configuration's folder."""
    ready = config.ready
    return Service(
        name=config.name,
        command=compile_words(config.command),
        directory=str(folder),
        ready_url=ready if isinstance(ready, str) else None,
        ready_line=ready.line if isinstance(ready, ReadyConfig) else None,
        env=config.env,
        timeout_ms=config.timeout_ms,
    )


def compile_words(command: str | list[str]) -> tuple[str, ...]:
    """Return the words of a command, split as a shell would."""
    return tuple(shlex.split(command) if isinstance(command, str) else command)


_COMMAND = "command"
"""The one target of a test with a command."""


def targets_of(test: TestConfig, config: KindlmConfig) -> tuple[str, ...]:
    """Return the ids of the targets of a test, in order.

    These are the `models` that it names, else all agents, else all models that do not only judge.
    MCP servers are agents of tests with a `call`, and of no others.
    """
    if test.command is not None:
        return (_COMMAND,)
    if test.models is not None:
        return tuple(test.models)
    is_call = test.call is not None
    agents = tuple(agent.id for agent in config.agents if (agent.adapter == "mcp") is is_call)
    if agents or is_call:
        return agents
    return tuple(model.id for model in config.models if model.role != "judge")


def runs_on_models(test: TestConfig, config: KindlmConfig) -> bool:
    """Tell whether a test has a model among its targets, which calls simulated tools."""
    models = {model.id for model in config.models}
    return test.command is None and not models.isdisjoint(targets_of(test, config))
