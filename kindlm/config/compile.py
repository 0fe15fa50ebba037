"""From a valid configuration to the `Suite` that the engine runs."""

from __future__ import annotations

import shlex
from pathlib import Path as FilePath

from kindlm.config.canonical import config_hash, config_text, resolved, written_gates
from kindlm.config.diagnostics import Reporter
from kindlm.config.expectations import compile_expectations
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import render
from kindlm.config.schema import (
    ComplianceConfig,
    KindlmConfig,
    PromptConfig,
    TestConfig,
    ToolConfig,
)
from kindlm.config.target_schema import ModelConfig, ProviderConfig, ReadyConfig, ServeConfig
from kindlm.errors import Ok
from kindlm.suite import (
    Case,
    Compliance,
    Gate,
    ModelParams,
    ModelTarget,
    Price,
    Prompt,
    ProviderSettings,
    Service,
    SimulatedTool,
    Suite,
    ToolAnswer,
)

__all__ = ["compile_suite"]


def compile_suite(
    config: KindlmConfig, path: str, folder: FilePath, files: ReferencedFiles, reporter: Reporter
) -> Suite:
    """Return the suite; the configuration's references must have been checked without an error.

    Args:
        config: the validated configuration.
        path: the file's identity, relative to the project root where it can be.
        folder: the file's folder, where services are started.
        files: the files it refers to.
        reporter: knows the places of everything.
    """
    text = config_text(config, files.digests)
    defaults = config.defaults
    return Suite(
        name=config.suite.name,
        project=config.project,
        front_end="kindlm",
        path=path,
        config_hash=config_hash(text),
        config_text=text,
        providers={name: _provider(name, item) for name, item in config.providers.items()},
        models={model.id: _model(model) for model in config.models},
        cases=tuple(
            _case(test, index, config, files, reporter) for index, test in enumerate(config.tests)
        ),
        gates=_gates(config),
        description=config.suite.description,
        tags=_distinct(config.suite.tags),
        judge_model=defaults.judge_model,
        concurrency=defaults.concurrency,
        timeout_ms=defaults.timeout_ms,
        execution_timeout_ms=defaults.execution_timeout_ms,
        retries=defaults.retries,
        services=tuple(_service(item, folder) for item in config.serve),
        prices={name: Price(item.input, item.output) for name, item in config.prices.items()},
        record_raw_bodies=config.record.raw_bodies,
        redact_pii=config.record.redact_pii,
        compliance=_compliance(config.compliance),
    )


def _provider(name: str, config: ProviderConfig) -> ProviderSettings:
    return ProviderSettings(
        name=name,
        type=config.type or name,
        api_key_env=config.api_key_env,
        base_url=config.base_url,
        organization=config.organization,
        replies=tuple(resolved(reply) for reply in config.replies or ()),
    )


def _model(config: ModelConfig) -> ModelTarget:
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


def _case(
    test: TestConfig, index: int, config: KindlmConfig, files: ReferencedFiles, reporter: Reporter
) -> Case:
    path = ("tests", index)
    targets = [model.id for model in config.models if model.role != "judge"]
    return Case(
        name=test.name,
        prompt=_prompt(config.prompts[test.prompt], test.vars, files),
        targets=tuple(targets if test.models is None else test.models),
        expectations=compile_expectations(test.expect, (*path, "expect"), files, reporter.where),
        tools=tuple(_tool(tool) for tool in test.tools),
        repeat=test.repeat or config.defaults.repeat,
        pass_rate=config.defaults.pass_rate if test.pass_rate is None else test.pass_rate,
        max_turns=test.max_turns,
        tags=_distinct(test.tags),
        skip=test.skip,
        where=reporter.where(path),
    )


def _prompt(config: PromptConfig, variables: dict[str, str], files: ReferencedFiles) -> Prompt:
    user = _content(config.user, config.user_file, files)
    system = _content(config.system, config.system_file, files)
    prefill = config.assistant
    return Prompt(
        user=render(user or "", variables),
        system=None if system is None else render(system, variables),
        prefill=None if prefill is None else render(prefill, variables),
    )


def _content(text: str | None, file: str | None, files: ReferencedFiles) -> str | None:
    if file is None:
        return text
    content = files.text(file)
    assert isinstance(content, Ok), "references are checked before a suite is compiled"
    return content.value


def _tool(config: ToolConfig) -> SimulatedTool:
    return SimulatedTool(
        name=config.name,
        description=config.description,
        parameters=config.parameters,
        answers=tuple(ToolAnswer(item.when, item.then) for item in config.responses),
        default=config.default_response,
        has_default="default_response" in config.model_fields_set,
    )


def _gates(config: KindlmConfig) -> tuple[Gate, ...]:
    written = written_gates(config)
    return tuple(
        Gate(name, float(threshold), name in written)
        for name, threshold in resolved(config.gates).items()
    )


def _service(config: ServeConfig, folder: FilePath) -> Service:
    command = config.command
    ready = config.ready
    return Service(
        name=config.name,
        command=tuple(shlex.split(command) if isinstance(command, str) else command),
        directory=str(folder),
        ready_url=ready if isinstance(ready, str) else None,
        ready_line=ready.line if isinstance(ready, ReadyConfig) else None,
        env=config.env,
        timeout_ms=config.timeout_ms,
    )


def _compliance(config: ComplianceConfig | None) -> Compliance | None:
    if config is None:
        return None
    metadata = {} if config.metadata is None else resolved(config.metadata)
    return Compliance(config.enabled, config.framework, config.output_dir, metadata)


def _distinct(tags: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tags))
