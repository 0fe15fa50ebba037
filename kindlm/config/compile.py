"""From a valid configuration to the `Suite` that the engine runs."""

from __future__ import annotations

from pathlib import Path as FilePath

from kindlm.config.canonical import config_hash, config_text, resolved, written_gates
from kindlm.config.compile_cases import CaseCompiler
from kindlm.config.compile_targets import (
    compile_agent,
    compile_model,
    compile_provider,
    compile_service,
)
from kindlm.config.compliance import template_of
from kindlm.config.diagnostics import Reporter
from kindlm.config.files import ReferencedFiles
from kindlm.config.schema import ComplianceConfig, KindlmConfig
from kindlm.suite import Compliance, Gate, Price, Suite


def compile_suite(
    config: KindlmConfig, path: str, folder: FilePath, files: ReferencedFiles, reporter: Reporter
) -> Suite:
    """Return the suite; the configuration's references must have been checked without an error.

    Args:
        config: the validated configuration.
        path: the file's identity, relative to the project root where it can be.
        folder: the file's folder, where services, commands and agents are found.
        files: the files it refers to.
        reporter: knows the places of everything.
    """
    template = None if config.compliance is None else template_of(config.compliance, files)
    text = config_text(config, files.digests, template)
    defaults = config.defaults
    compiler = CaseCompiler(config, folder, files, reporter.where)
    return Suite(
        name=config.suite.name,
        project=config.project,
        front_end="kindlm",
        path=path,
        config_hash=config_hash(text),
        config_text=text,
        providers={name: compile_provider(name, item) for name, item in config.providers.items()},
        models={model.id: compile_model(model) for model in config.models},
        agents={agent.id: compile_agent(agent, folder) for agent in config.agents},
        cases=compiler.cases(),
        gates=_gates(config),
        description=config.suite.description,
        tags=tuple(dict.fromkeys(config.suite.tags)),
        judge_model=defaults.judge_model,
        concurrency=defaults.concurrency,
        timeout_ms=defaults.timeout_ms,
        execution_timeout_ms=defaults.execution_timeout_ms,
        retries=defaults.retries,
        services=tuple(compile_service(item, folder) for item in config.serve),
        prices={name: Price(item.input, item.output) for name, item in config.prices.items()},
        record_raw_bodies=config.record.raw_bodies,
        redact_pii=config.record.redact_pii,
        compliance=_compliance(config.compliance, files),
    )


def _gates(config: KindlmConfig) -> tuple[Gate, ...]:
    written = written_gates(config)
    return tuple(
        Gate(name, float(threshold), name in written)
        for name, threshold in resolved(config.gates).items()
    )


def _compliance(config: ComplianceConfig | None, files: ReferencedFiles) -> Compliance | None:
    if config is None:
        return None
    metadata = {} if config.metadata is None else resolved(config.metadata)
    return Compliance(
        config.enabled,
        config.framework,
        config.output_dir,
        metadata,
        template_of(config, files),
    )
