"""Compiles a valid configuration to the `Suite` that the engine runs, and computes its hash.

The hash identifies what a configuration means, not how it is written. It covers the resolved
configuration (with defaults, without key order and comments), the gates that the user wrote, and
the content of every referenced file. It covers the names of environment variables and services, not
their values and ports. A mark replaces credentials.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from kindlm.checks.tool_calls import ToolStrict
from kindlm.config.diagnostics import Reporter
from kindlm.config.entries import recorded_name
from kindlm.config.expect import compile_expectations
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import render
from kindlm.config.rows import part_name
from kindlm.config.schema import NO_SERVER, KindlmConfig, UploadConfig
from kindlm.config.simulated_tools import compile_server_tools, compile_tool
from kindlm.config.target_schema import AgentConfig, ModelConfig, ReadyConfig, ServeConfig
from kindlm.config.test_schema import CallConfig, TestConfig
from kindlm.dataclass import dataclass, replace
from kindlm.document import Path
from kindlm.errors import SourceLocation, checked
from kindlm.outcome import Gate
from kindlm.secrecy import hide_headers, hide_in_options
from kindlm.section import as_value, resolved
from kindlm.suite import (
    TELEMETRY_WAIT_MS,
    AgentTarget,
    Case,
    Command,
    ModelParams,
    ModelTarget,
    Price,
    Prompt,
    ProviderSettings,
    Service,
    Suite,
    Upload,
)
from kindlm.values import filled, words_of


def compile_suite(
    config: KindlmConfig, path: str, folder: FilePath, files: ReferencedFiles, reporter: Reporter
) -> Suite:
    """Return the suite of a configuration whose references were checked without an error.

    `path` is the identity of the suite: see `suite_identity`. Services, commands and agents run in
    `folder`.
    """
    compliance, template = config.compliance, None
    if compliance is not None and compliance.framework == "custom" and compliance.template:
        template = checked(files.text(compliance.template))
    text = tested = config_text(config, files.digests, template)
    if config.upload != UploadConfig():
        # The upload changes nothing that the run tests.
        here = config.model_copy(update={"upload": UploadConfig()})
        tested = config_text(here, files.digests, template)
    defaults, written = config.defaults, _written_gates(config)
    cases = _Cases(config, folder, files, reporter.where)
    return as_value(
        Suite,
        defaults,
        name=config.suite.name,
        project=config.project,
        front_end="kindlm",
        path=path,
        config_hash=config_hash(tested),
        config_text=text,
        providers={
            name: as_value(
                ProviderSettings, item, name=name, type=item.type or name, options=item.options
            )
            for name, item in config.providers.items()
        },
        models={model.id: compile_model(model) for model in config.models},
        agents={agent.id: compile_agent(agent, folder) for agent in config.agents},
        cases=tuple(
            case for index, test in enumerate(config.tests) for case in cases.of_test(index, test)
        ),
        gates=tuple(
            Gate(name, float(threshold), name in written)
            for name, threshold in resolved(config.gates).items()
        ),
        tags=tuple(dict.fromkeys(config.suite.tags)),
        services=tuple(compile_service(item, folder) for item in config.serve),
        prices={name: Price(item.input, item.output) for name, item in config.prices.items()},
        record_raw_bodies=config.record.raw_bodies,
        redact_pii=config.record.redact_pii,
        has_document=compliance is not None and compliance.enabled,
        document_folder=None if compliance is None else compliance.output_dir,
        upload=Upload(
            config.upload.enabled,
            None if config.upload.api_url == NO_SERVER else config.upload.api_url,
            config.upload.include_artifacts,
            tuple(config.upload.redact_patterns),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Cases:
    """Compiles tests to cases: one for each prompt and row of a test."""

    config: KindlmConfig
    folder: FilePath
    files: ReferencedFiles
    where: Callable[[Path], SourceLocation]

    def of_test(self, index: int, test: TestConfig) -> Iterator[Case]:
        """Yield the cases of a test, in the order of its prompts and rows."""
        path: Path = ("tests", index)
        defaults = self.config.defaults
        # A command calls its own tools only.
        strict = test.command is None and (
            defaults.strict_tools if test.strict_tools is None else test.strict_tools
        )
        expectations = compile_expectations(test, path, self.files, self.where)
        if strict:
            place = self.where((*path, "strictTools"))
            expectations += (ToolStrict().expected("strictTools", where=place),)
        # All rows share these values, which saves memory.
        case = Case(
            name=test.name,
            prompt=Prompt(user=""),
            targets=targets_of(test, self.config),
            expectations=expectations,
            tools=tuple(compile_tool(tool, self.files) for tool in test.simulated),
            server_tools=tuple(map(compile_server_tools, test.server_tools)),
            repeat=test.repeat or defaults.repeat,
            pass_rate=defaults.pass_rate if test.pass_rate is None else test.pass_rate,
            max_turns=test.max_turns,
            tags=tuple(dict.fromkeys(test.tags)),
            skip=test.skip,
            where=self.where(path),
        )
        for name, prompt, variables in self._parts(test):
            command = None
            if test.command is not None:
                # Split first, so that the value of a variable never becomes several arguments.
                words = tuple(render(word, variables) for word in words_of(test.command))
                command = Command(words, str(self.folder), reports_tools=bool(test.reports_tools))
            yield replace(
                case,
                name=name,
                prompt=self._prompt(test, prompt, variables),
                follow_ups=tuple(
                    _call(turn.call, variables) if turn.call else render(turn.user or "", variables)
                    for turn in test.conversation
                ),
                command=command,
            )

    def _parts(self, test: TestConfig) -> Iterator[tuple[str, str | None, Mapping[str, str]]]:
        """Yield the name, the prompt and the variables of each case of a test."""
        prompts: Sequence[str | None] = test.all_prompts or [None]
        for prompt in prompts:
            name = part_name(test.name, prompt) if prompt and len(prompts) > 1 else test.name
            if test.vars_from is None:
                yield name, prompt, test.vars
                continue
            for row in checked(self.files.rows(test.vars_from)).rows:
                yield part_name(name, row.id), prompt, {**test.vars, **row.values}

    def _prompt(self, test: TestConfig, name: str | None, variables: Mapping[str, str]) -> Prompt:
        if name is None:
            return Prompt(user=_call(test.call, variables) if test.call else "")
        config = self.config.prompts[name]

        def rendered(text: str | None, file: str | None = None) -> str | None:
            template = text if file is None else checked(self.files.text(file))
            return None if template is None else render(template, variables)

        return Prompt(
            user=rendered(config.user, config.user_file) or "",
            system=rendered(config.system, config.system_file),
            prefill=rendered(config.assistant),
        )


def _call(call: CallConfig, variables: Mapping[str, str]) -> str:
    """Return a tool call as the message to an MCP server."""
    arguments = filled(call.arguments, lambda text: render(text, variables))
    return json.dumps({"tool": call.tool, "arguments": arguments}, ensure_ascii=False)


def compile_model(config: ModelConfig) -> ModelTarget:
    """Return a model, with the names of the parameters that the file has."""
    written, stops = frozenset(config.params.model_fields_set), config.params.stop_sequences
    params = as_value(
        ModelParams, config.params, stop_sequences=tuple(stops or ()), written=written
    )
    return as_value(ModelTarget, config, params=params)


def compile_agent(config: AgentConfig, folder: FilePath) -> AgentTarget:
    """Return a live agent."""
    options = config.options
    return as_value(
        AgentTarget,
        config,
        adapter=config.adapter if options is None else recorded_name(options, config.adapter),
        endpoint=config.endpoint or "",
        directory=str(folder),
        options=None if options is None else options.compiled(),
        reports_tools=bool(config.reports_tools),
        gateway=bool(config.gateway),
        telemetry_wait_ms=config.telemetry_wait_ms or TELEMETRY_WAIT_MS,
    )


def compile_service(config: ServeConfig, folder: FilePath) -> Service:
    """Return a program to start in a folder."""
    ready = config.ready
    return as_value(
        Service,
        config,
        command=words_of(config.command),
        directory=str(folder),
        ready_url=ready if isinstance(ready, str) else None,
        ready_line=ready.line if isinstance(ready, ReadyConfig) else None,
    )


def targets_of(test: TestConfig, config: KindlmConfig) -> tuple[str, ...]:
    """Return the ids of the targets of a test, in order.

    These are the `models` of the test, else all agents, else all models that are no judges. MCP
    servers are the agents of tests with a `call`, and of no other tests. A test with a command has
    the target `command`.
    """
    if test.command is not None:
        return ("command",)
    if test.models is not None:
        return tuple(test.models)
    is_call = test.call is not None
    agents = tuple(agent.id for agent in config.agents if (agent.adapter == "mcp") is is_call)
    if agents or is_call:
        return agents
    return tuple(model.id for model in config.models if model.role != "judge")


HASH_LENGTH = 12


def config_text(
    config: KindlmConfig, digests: Mapping[str, str], report_template: str | None = None
) -> str:
    """Return the resolved configuration without credentials in canonical JSON, as it is recorded.

    It contains the template of the compliance report, which later reports of the run need.
    """
    written = resolved(config)
    agents = [
        {**hide_in_options(agent), "headers": hide_headers(agent["headers"])}
        for agent in written["agents"]
    ]
    document = {
        "config": {
            **written,
            "agents": agents,
            "serve": [hide_in_options(service) for service in written["serve"]],
        },
        "gatesWritten": sorted(_written_gates(config)),
        "files": dict(digests),
    }
    if report_template is not None:
        document["reportTemplate"] = report_template
    return canonical(document)


def canonical(document: Mapping[str, Any]) -> str:
    """Return canonical JSON. Every recorded hash depends on its form, so that must not change."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def config_hash(text: str) -> str:
    """Return the first 12 hex digits of the SHA-256 of a `config_text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def _written_gates(config: KindlmConfig) -> frozenset[str]:
    fields = type(config.gates).model_fields
    return frozenset(fields[name].alias or name for name in config.gates.model_fields_set)
