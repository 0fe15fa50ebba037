"""What is tested, and where it is, as values: providers, models, agents, programs to start."""

from __future__ import annotations

import shlex
from pathlib import Path

from kindlm.config.agent_rules import OPTION_NAMES, OTHER_NAMES
from kindlm.config.agent_schema import AgentConfig
from kindlm.config.canonical import resolved
from kindlm.config.target_schema import ModelConfig, ProviderConfig, ReadyConfig, ServeConfig
from kindlm.suite import AgentTarget, ModelParams, ModelTarget, ProviderSettings, Service


def compile_provider(name: str, config: ProviderConfig) -> ProviderSettings:
    """Return the settings of a provider; its name is the wire format if none is written."""
    return ProviderSettings(
        name=name,
        type=config.type or config.added.get("type", name),
        api_key_env=config.api_key_env,
        base_url=config.base_url,
        organization=config.organization,
        replies=tuple(resolved(reply) for reply in config.replies or ()),
        options={key: value for key, value in config.added.items() if key != "type"},
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
    """Return a live agent; the keys that are written of those that not all agents have are options.

    What is not written is the adapter's to decide.
    """
    written = resolved(config)
    names = (*OPTION_NAMES, *config.added)
    options = {name: written[name] for name in names if name in written and name != "headers"}
    if config.command is not None:
        # Split before variables are put in: a value is one word, whatever is in it.
        options["command"] = list(compile_words(config.command))
    return AgentTarget(
        id=config.id,
        adapter=OTHER_NAMES.get(config.adapter, config.adapter),
        endpoint=config.endpoint or "",
        headers=config.headers,
        directory=str(folder),
        options=options,
        timeout_ms=config.timeout_ms,
        verbose=config.verbose,
        reports_tools=bool(config.reports_tools),
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
