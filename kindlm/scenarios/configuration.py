"""Reads and validates kindlm.toml, the configuration of a project with scenarios."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import AliasChoices, ConfigDict, Field
from pydantic.alias_generators import to_snake

from kindlm.bounds import MAX_REPEAT
from kindlm.config import read_bytes
from kindlm.config.compile import compile_agent
from kindlm.config.diagnostics import Diagnostic, Reporter
from kindlm.config.entries import provider_types, read_agent
from kindlm.config.target_schema import AgentConfig
from kindlm.config.toml_document import read_toml
from kindlm.config.validation import fit
from kindlm.dataclass import dataclass, replace
from kindlm.document import Document, section, texts
from kindlm.errors import Err, KindlmError, Ok, Result, SourceLocation, misuse
from kindlm.packages import own
from kindlm.plugins import Provider
from kindlm.scenarios.environment import deferred, put_in, unset_in
from kindlm.secrecy import entry_secrets, secret_parts
from kindlm.section import Described, FilePath, Maybe, Score, Seconds, Table, Text, Url
from kindlm.spelling import TOML
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget, ModelTarget, ProviderSettings
from kindlm.values import filled
from kindlm.wording import shown

AGENT = "agent"
"""The default name of the agent under test."""


def provider_by_name(name: str) -> type[Provider] | None:
    """Return kindlm's provider with a name; None if it needs options or an address."""
    kind = own(Provider, name.lower())
    fields = {} if kind is None else kind.model_fields
    if kind is None or kind.needs_base_url or any(it.is_required() for it in fields.values()):
        return None
    return None if kind.address_options() else kind


class LlmTable(Table):
    """The model that judges answers, plays users and writes tests."""

    provider: Text = Field(examples=["openai"])
    """`openai`, `anthropic`, `ollama`, or any name with the `base_url` of an API like OpenAI's."""
    model: Text = Field(examples=["gpt-4o-mini"])
    """The provider's name of the model."""
    api_key_env: Text | None = Field(default=None, examples=["OPENAI_API_KEY"])
    """The environment variable with the key."""
    base_url: Url | None = Field(default=None, examples=["http://127.0.0.1:11434"])
    """The URL of the API, by default the provider's own."""


class SandboxTable(Table):
    """The default sandbox of agents that are programs."""

    type: Literal["local", "daytona"] = "local"
    """This machine, or a sandbox of Daytona."""
    snapshot: Text | None = None
    """The Daytona snapshot of the sandboxes."""


class EvalTable(Table):
    """How scenarios run."""

    parallelism: int = Field(default=4, ge=1, le=1000)
    """The most scenarios that run at once."""
    retries: int = Field(default=0, ge=0, le=MAX_REPEAT)
    """How often a scenario that did not pass runs again."""
    default_timeout: Seconds = 300.0
    """The most seconds of one scenario."""


class DiffTable(Table):
    """How runs are compared."""

    regression_threshold: Score = 0.05
    """How far a mean score may fall."""


class ReportTable(Table):
    """The reports that are written after a run."""

    formats: list[Text] = Field(default=[])
    """Formats of `kindlm report`, besides the output on the terminal."""
    output_dir: FilePath = "reports"
    """The folder of the reports."""


class StoreTable(Table):
    """The place of the history."""

    path: FilePath | None = None
    """The database, `.kindlm/kindlm.db` by default."""


class ProjectConfiguration(Table):
    """The whole file."""

    project: Text | None = None
    """The name of the project."""
    tests: FilePath = "tests"
    """The folder with the tests."""
    exit_codes: Literal["kindlm", "pytest"] = "kindlm"
    """Exit codes of commands: 0 and 1, or also 2, 4 and 5 like pytest."""
    agent: dict[str, Any] | None = None
    """The agent under test, with the keys of an agent in kindlm.yaml, in snake case."""
    llm: LlmTable | None = None
    sandbox: SandboxTable = SandboxTable()
    eval: EvalTable = EvalTable()
    diff: DiffTable = DiffTable()
    report: ReportTable = ReportTable()
    store: StoreTable = StoreTable()


@dataclass(frozen=True, slots=True)
class LoadedConfiguration:
    """The configuration, None if the diagnostics have an error.

    `agent` is the agent under test, if there is one. `file` is the file of the configuration.
    """

    config: ProjectConfiguration | None
    agent: AgentTarget | None
    file: Path | None
    diagnostics: tuple[Diagnostic, ...] = ()


def provider_fault(llm: LlmTable) -> tuple[str, str] | None:
    """Return a message and a hint if the address of the provider is unknown, else None."""
    if llm.base_url is not None or provider_by_name(llm.provider) is not None:
        return None
    known = [name for name in provider_types() if provider_by_name(name) is not None]
    hint = hint_for(llm.provider, known, "Write the base_url of an API like OpenAI's, or one of")
    return f'Unknown provider "{llm.provider}", and there is no base_url', hint


JUDGE = "llm"
"""The id of the model of `[llm]`, which judges and simulates."""


def language_model(
    llm: LlmTable | None,
) -> tuple[dict[str, ProviderSettings], dict[str, ModelTarget]]:
    """Return the provider and the model of `[llm]` for the engine, by name."""
    if llm is None:
        return {}, {}
    kind = provider_by_name(llm.provider)
    if kind is not None and kind.usual_base_url is not None and llm.base_url is not None:
        kind = None  # another server with OpenAI's API
    provider = ProviderSettings(
        name=llm.provider,
        type="openai" if kind is None else llm.provider.lower(),
        api_key_env=llm.api_key_env or (None if kind is None else kind.usual_key_variable),
        base_url=llm.base_url,
    )
    model = ModelTarget(JUDGE, llm.provider, llm.model)
    return {llm.provider: provider}, {JUDGE: model}


def agent_config(
    raw: Mapping[str, Any],
    reporter: Reporter,
    sandbox: SandboxTable = SandboxTable(),  # noqa: B008 - a value
    environ: Mapping[str, str] = MappingProxyType({}),
) -> AgentConfig | None:
    """Return the agent of a table; None after reporting errors.

    A program without its own sandbox runs in `sandbox`. Variables of the agent keep their names
    until kindlm calls it, so that the recorded configuration has no secrets.
    """
    if _missing({AGENT: raw}, environ, reporter):
        return None
    table = sandboxed(filled(dict(raw), deferred), sandbox)
    rest, options = read_agent((AGENT,), table, reporter)
    whole = fit(_Whole, {AGENT: rest}, reporter)
    if whole is None or options is None or reporter.has_errors:
        return None
    whole.agent.choose(options)
    return whole.agent


def agent_at(url: str) -> Result[AgentConfig]:
    """Return the agent at a URL, or an error. A secret in it is one: files will contain the URL."""
    if any(secret_parts(url)):
        return Err(secret_in_url())
    if found := re.search(r"\{\{(?!env\.).*?\}\}", url):
        message = f"kindlm does not fill in {shown(found[0])} in the URL of an agent."
        return Err(misuse(message, "It sends the message in the body of the request."))
    reporter = Reporter("", Document(), TOML)
    config = agent_config({"type": "http", "url": url}, reporter)
    if config is not None:
        return Ok(config)
    first = reporter.diagnostics[0].error
    return Err(misuse(f"The URL of the agent is invalid: {first.message}.", first.hint))


def secret_in_url() -> KindlmError:
    """Return the error that the URL of an agent has a secret."""
    return misuse(
        "The URL of the agent holds a secret, which would be written into a file.",
        "Name the agent in kindlm.toml, with ${env.NAME} for that.",
    )


def sandboxed(raw: Mapping[str, Any], sandbox: SandboxTable) -> dict[str, Any]:
    """Return the table of an agent, with `sandbox` if it is a program without its own."""
    table = {str(key): value for key, value in raw.items()}
    is_program = "subprocess" in (table.get("type"), table.get("adapter"))
    if is_program and sandbox.type != "local" and "sandbox" not in table:
        table["sandbox"] = sandbox.type
        if sandbox.snapshot is not None:
            table.setdefault("snapshot", sandbox.snapshot)
    return table


class _AgentTable(AgentConfig):
    """An agent with the keys of kindlm.toml."""

    model_config = ConfigDict(alias_generator=to_snake)

    id: Text = Field(default=AGENT, validation_alias=AliasChoices("name", "id"))
    adapter: Text = Field(validation_alias=AliasChoices("type", "adapter"))
    endpoint: Maybe[Text] = Field(default=None, validation_alias=AliasChoices("url", "endpoint"))


class _Whole(Described):
    """The table of an agent in its place, so that errors have their place in the file."""

    agent: _AgentTable


def read_configuration(
    document: Document, file: Path, environ: Mapping[str, str]
) -> LoadedConfiguration:
    """Return the configuration in the document of a file."""
    reporter = Reporter(str(file), document, TOML)
    value = document.value
    reporter.hide(entry_secrets(section(value, AGENT)))
    config = agent = None
    rest = {key: it for key, it in value.items() if key != AGENT}
    if not _missing(rest, environ, reporter):
        put = partial(put_in, environ=environ)
        config = fit(ProjectConfiguration, value | filled(rest, put), reporter)
    if config is not None and config.agent is not None:
        found = agent_config(config.agent, reporter, config.sandbox, environ)
        agent = None if found is None else compile_agent(found, file.parent)
    if config is not None and config.llm is not None and (fault := provider_fault(config.llm)):
        reporter.error(("llm", "provider"), *fault, reason="unknown_provider")
    if config is not None and config.sandbox.snapshot and config.sandbox.type == "local":
        message = "`sandbox.snapshot` has no meaning without a sandbox"
        reporter.error(("sandbox", "snapshot"), message, 'Add type = "daytona"')
    reporter.sort_phase()
    usable = None if reporter.has_errors else config
    return LoadedConfiguration(usable, agent, file, tuple(reporter.diagnostics))


def _missing(value: Any, environ: Mapping[str, str], reporter: Reporter) -> bool:
    found = False
    for path, text in texts(value, ()):
        for name in unset_in(text, environ):
            found = True
            reporter.variable_not_set(path, name)
    return found


def load_configuration(root: Path, environ: Mapping[str, str]) -> LoadedConfiguration:
    """Load kindlm.toml of a project, else `[tool.kindlm]` of its pyproject.toml.

    A project with both gets a warning. Never raises for a mistake of the user.
    """
    file, pyproject = root / "kindlm.toml", root / "pyproject.toml"
    found = _load(file, environ) if file.is_file() else None
    second = _load(pyproject, environ) if pyproject.is_file() else None
    if found is None:
        return second or LoadedConfiguration(ProjectConfiguration(), None, None)
    if second is None or second.file is None:
        return found
    message = f"[tool.kindlm] of {pyproject.name} is ignored: there is a kindlm.toml"
    where = SourceLocation(str(pyproject))
    error = misuse(message, "Keep one of the two.", where, "two_configurations")
    ignored = Diagnostic(error, "warning", "tool.kindlm")
    return replace(found, diagnostics=(*found.diagnostics, ignored))


def _load(file: Path, environ: Mapping[str, str]) -> LoadedConfiguration:
    """Load a file; `file` of the result is None for a pyproject.toml without `[tool.kindlm]`."""
    data = read_bytes(file)
    if isinstance(data, Err):
        return LoadedConfiguration(None, None, file, (Diagnostic(data.error),))
    document = read_toml(data.value)
    whole = Reporter(str(file), document)
    is_pyproject = file.name == "pyproject.toml"
    without_table = LoadedConfiguration(ProjectConfiguration(), None, None)
    if is_pyproject and not document.readable and b"kindlm" not in data.value:
        return without_table  # the errors of such a file are not kindlm's concern
    if is_pyproject and document.readable:
        table = section(document.value[0], "tool").get("kindlm")
        if table in (None, {}):
            return without_table
        if not isinstance(table, dict):
            message = "`tool.kindlm` must be a table"
            whole.error((0, "tool", "kindlm"), message, "Write [tool.kindlm]")
    whole.problems()
    if whole.has_errors:
        return LoadedConfiguration(None, None, file, tuple(whole.diagnostics))
    part = document.part(0)
    if is_pyproject:
        part = part.part("tool").part("kindlm")
    return read_configuration(part, file, environ)
