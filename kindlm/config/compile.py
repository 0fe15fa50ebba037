"""From a valid configuration to the `Suite` that the engine runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from kindlm.checks.tool_calls import ToolStrict
from kindlm.config.canonical import config_hash, config_text, written_gates
from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path
from kindlm.config.expect import compile_expectations
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import render
from kindlm.config.schema import ComplianceConfig, KindlmConfig, PromptConfig, TestConfig
from kindlm.config.targets import (
    compile_agent,
    compile_model,
    compile_provider,
    compile_service,
    compile_words,
    targets_of,
)
from kindlm.config.templates import row_name
from kindlm.config.tool_schema import ToolAnswerConfig, ToolConfig, ToolReplyConfig
from kindlm.errors import Ok, SourceLocation
from kindlm.section import resolved
from kindlm.suite import (
    Case,
    Cassette,
    Command,
    Compliance,
    Expectation,
    Fault,
    Gate,
    Price,
    Prompt,
    SimulatedTool,
    Suite,
    ToolAnswer,
)


def compile_tool(config: ToolConfig, files: ReferencedFiles) -> SimulatedTool:
    """Return a tool; its file of a schema has been checked."""
    cassette = config.cassette
    return SimulatedTool(
        name=config.name,
        description=config.description,
        parameters=config.parameters,
        answers=tuple(_answer(item) for item in config.responses),
        default=config.default_response,
        has_default="default_response" in config.model_fields_set,
        result_schema=_result_schema(config.result_schema, files),
        cassette=None if cassette is None else Cassette(cassette.run, cassette.match),
    )


def _answer(config: ToolAnswerConfig) -> ToolAnswer:
    return ToolAnswer(
        when=config.when,
        when_state=config.when_state,
        sequence=tuple(_reply(item) for item in config.sequence),
        then=config.then,
        set_state=config.set_state,
        fault=_fault(config),
        delay_ms=config.delay_ms,
    )


def _reply(config: ToolReplyConfig) -> ToolAnswer:
    return ToolAnswer(
        then=config.then,
        set_state=config.set_state,
        fault=_fault(config),
        delay_ms=config.delay_ms,
    )


def _fault(config: ToolReplyConfig) -> Fault | None:
    return None if config.fault is None else Fault(config.fault)


def _result_schema(file: str | None, files: ReferencedFiles) -> Mapping[str, Any] | None:
    if file is None:
        return None
    found = files.schema(file)
    assert isinstance(found, Ok), "references are checked before a suite is compiled"
    schema = found.value
    if isinstance(schema, bool):
        # The schemas `true` and `false`, as objects.
        return {} if schema else {"not": {}}
    return dict(schema)


@dataclass(frozen=True, slots=True)
class CaseCompiler:
    """Compiles the tests of one configuration, whose references have been checked."""

    config: KindlmConfig
    folder: FilePath
    files: ReferencedFiles
    where: Callable[[Path], SourceLocation]

    def cases(self) -> tuple[Case, ...]:
        """Return all cases, in the order of the file and of the rows."""
        return tuple(
            case
            for index, test in enumerate(self.config.tests)
            for case in self._cases(test, ("tests", index))
        )

    def _cases(self, test: TestConfig, path: Path) -> Iterator[Case]:
        # Whatever the rows, these are the same: a suite of many rows holds them once.
        strict = self._is_strict(test)
        expectations = self._expectations(test, path, strict)
        tools = tuple(compile_tool(tool, self.files) for tool in test.tools)
        for name, variables in self._variables(test):
            yield self._case(test, path, name, variables, expectations, tools, strict)

    def _variables(self, test: TestConfig) -> Iterator[tuple[str, Mapping[str, str]]]:
        if test.vars_from is None:
            yield test.name, test.vars
            return
        rows = self.files.rows(test.vars_from)
        assert isinstance(rows, Ok), "references are checked before a suite is compiled"
        for row in rows.value.rows:
            yield row_name(test.name, row.id), {**test.vars, **row.values}

    def _case(
        self,
        test: TestConfig,
        path: Path,
        name: str,
        variables: Mapping[str, str],
        expectations: tuple[Expectation, ...],
        tools: tuple[SimulatedTool, ...],
        strict: bool,
    ) -> Case:
        defaults = self.config.defaults
        return Case(
            name=name,
            prompt=self._prompt(test, variables),
            targets=targets_of(test, self.config),
            expectations=expectations,
            tools=tools,
            follow_ups=tuple(render(turn.user, variables) for turn in test.conversation),
            command=self._command(test, variables),
            strict_tools=strict,
            repeat=test.repeat or defaults.repeat,
            pass_rate=defaults.pass_rate if test.pass_rate is None else test.pass_rate,
            max_turns=test.max_turns,
            tags=tuple(dict.fromkeys(test.tags)),
            skip=test.skip,
            where=self.where(path),
        )

    def _expectations(self, test: TestConfig, path: Path, strict: bool) -> tuple[Expectation, ...]:
        found = compile_expectations(test, path, self.files, self.where)
        if not strict:
            return found
        place = self.where((*path, "strictTools"))
        return (*found, ToolStrict().expected("strictTools", where=place))

    def _is_strict(self, test: TestConfig) -> bool:
        # A command calls tools of its own, none that are simulated.
        if test.command is not None:
            return False
        strict = test.strict_tools
        return self.config.defaults.strict_tools if strict is None else strict

    def _command(self, test: TestConfig, variables: Mapping[str, str]) -> Command | None:
        if test.command is None:
            return None
        # Split first: a variable is one argument, or a part of one, whatever is in it.
        words = tuple(render(word, variables) for word in compile_words(test.command))
        return Command(words, str(self.folder), reports_tools=bool(test.reports_tools))

    def _prompt(self, test: TestConfig, variables: Mapping[str, str]) -> Prompt:
        if test.prompt is None:
            return Prompt(user="")
        config = self.config.prompts[test.prompt]
        user, system, prefill = self._content(config)
        return Prompt(
            user=render(user or "", variables),
            system=None if system is None else render(system, variables),
            prefill=None if prefill is None else render(prefill, variables),
        )

    def _content(self, config: PromptConfig) -> tuple[str | None, str | None, str | None]:
        user = self._text(config.user, config.user_file)
        system = self._text(config.system, config.system_file)
        return user, system, config.assistant

    def _text(self, text: str | None, file: str | None) -> str | None:
        if file is None:
            return text
        content = self.files.text(file)
        assert isinstance(content, Ok), "references are checked before a suite is compiled"
        return content.value


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
    template = None if config.compliance is None else _template(config.compliance, files)
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
        _template(config, files),
    )


def _template(config: ComplianceConfig, files: ReferencedFiles) -> str | None:
    """Return the text of the template, None if there is none."""
    if config.framework != "custom" or config.template is None:
        return None
    text = files.text(config.template)
    assert isinstance(text, Ok)
    return text.value
