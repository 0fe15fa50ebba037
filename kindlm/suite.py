"""What to test, independent of the file format.

Each front end (kindlm.yaml, EvalView, scenarios) makes a `Suite`, which the engine runs. The front
end resolves all paths and reads all files that the user's files refer to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol

from kindlm.dataclass import dataclass
from kindlm.errors import KindlmError, SourceLocation
from kindlm.outcome import Gate, ScoreLimits
from kindlm.stored_form import AuthoredJson


@dataclass(frozen=True, slots=True)
class ModelParams:
    """Sampling parameters of a model.

    `written` are the names of those in the suite. If a model refuses one of them, the call fails; a
    refused default is dropped with a warning.
    """

    temperature: float | None = 0.2
    max_tokens: int = 1024
    top_p: float | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    written: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """How to reach a provider. `api_key_env` is the name of a variable, not the key itself.

    `type` is the name of one of kindlm's providers, such as `openai`, or of one in a package.
    `options` is its `plugins.Provider`, which this module may not import; None for the defaults.
    """

    name: str
    type: str
    api_key_env: str | None = None
    base_url: str | None = None
    organization: str | None = None
    options: Any = None


FORWARDED = ("openai", "anthropic")
"""The types of providers that agents can call through the gateway."""


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """A configured model: `id` is the user's name for it, `model` that of the provider."""

    id: str
    provider: str
    model: str
    params: ModelParams = ModelParams()


TELEMETRY_WAIT_MS = 10_000


@dataclass(frozen=True, slots=True)
class AgentTarget:
    """An agent as a target.

    Attributes:
        endpoint: A URL, or another address for the adapter.
        headers: HTTP headers; values may contain `{{env.NAME}}` until variables are resolved.
        options: Its `plugins.Adapter`, which this module may not import; None for the defaults.
        directory: The folder of the file that defines it.
        timeout_ms: The time for one answer, None for that of the suite.
        verbose: Whether to log its messages.
        model: The model whose price counts if the agent reports none.
        reports_tools: Whether it reports all of its tool calls.
        gateway: Whether it calls its models through kindlm.
        instance: The agent as an object, or a factory of it, if a test passes one.
        telemetry: The format of the spans that it exports.
        telemetry_wait_ms: How long to wait for the spans of an answer.
    """

    id: str
    adapter: str
    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict)
    options: Any = None
    directory: str | None = None
    timeout_ms: int | None = None
    verbose: bool = False
    model: str | None = None
    reports_tools: bool = False
    gateway: bool = False
    instance: Any = field(default=None, compare=False, repr=False)
    telemetry: Literal["otlp"] | None = None
    telemetry_wait_ms: int = TELEMETRY_WAIT_MS

    @property
    def starts_program(self) -> bool:
        """Whether a program is started for each conversation."""
        return self.options is not None and self.instance is None and self.options.starts_program


@dataclass(frozen=True, slots=True)
class Command:
    """A program that is the agent under test: its words, and the folder that it runs in.

    With `reports_tools`, it reports all of its tool calls.
    """

    words: tuple[str, ...]
    directory: str
    reports_tools: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """The first messages of a conversation, rendered; `prefill` begins the model's answer."""

    user: str
    system: str | None = None
    prefill: str | None = None


class Fault(StrEnum):
    """How a simulated tool fails."""

    TIMEOUT = "timeout"
    ERROR = "error"
    MALFORMED = "malformed"


TOOL_PLACEHOLDER = re.compile(r"\{\{[ \t]*((?:args|state)(?:\.[\w-]+|\[[0-9]+\])+)[ \t]*\}\}")
"""Placeholders in a simulated result: `{{args.order_id}}`, `{{state.items[0].price}}`."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A simulated result of a tool, for calls that match.

    A call matches if its arguments match `when` and the state of the execution matches
    `when_state`; None matches everything. `then` and `set_state` may contain `TOOL_PLACEHOLDER`s.
    With a `sequence`, the nth matching call gets its nth result; further calls get the last one.
    """

    when: Mapping[str, Any] | None = None
    then: Any = None
    when_state: Mapping[str, Any] | None = None
    set_state: Mapping[str, Any] = field(default_factory=dict)
    sequence: tuple[ToolAnswer, ...] = ()
    fault: Fault | None = None
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """The result of a tool call in an earlier run."""

    arguments: Mapping[str, Any]
    response: Any


@dataclass(frozen=True, slots=True)
class SimulatedTool:
    """The definition of a tool for the model, and its simulated results.

    The first of `answers` that matches a call is its result, else one `recorded` with equal
    arguments in the run that `cassette` names, else `default` if `has_default` (it may be null).
    Other calls go to the MCP server with the id `server`, if it is set. `parameters` and
    `result_schema` are JSON Schemas.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    answers: tuple[ToolAnswer, ...] = ()
    default: Any = None
    has_default: bool = False
    result_schema: Mapping[str, Any] | None = None
    cassette: str | None = None
    recorded: tuple[RecordedAnswer, ...] = ()
    server: str | None = None


@dataclass(frozen=True, slots=True)
class ServerTools:
    """Tools of an MCP server that a case offers to models; `server` is the id of its agent.

    `only` are their names, None for all. With `simulate`, no call reaches the server.
    """

    server: str
    only: tuple[str, ...] | None = None
    simulate: bool = False


@dataclass(frozen=True, slots=True)
class ListedTools:
    """The tools that an MCP server listed when a run began, in the form of the protocol.

    `identity` is the name and version of the server. Lists of the same tools have the same `hash`.
    """

    server: Annotated[str, "its id in the suite"]
    identity: str | None
    hash: Annotated[str, "first part of a digest of the tools, ordered by name"]
    tools: AuthoredJson


@dataclass(frozen=True, slots=True)
class Expectation:
    """A check of a transcript.

    Attributes:
        check: A `checks.Check`, which this module may not import; it includes the files that it
            refers to. None if a script reports the result itself.
        turn: The last turn that the check sees, from 1; None for all.
        since: The first turn that the check sees, from 1.
        advisory: Whether the result is only recorded and shown.
        weight: Its weight in the score of the execution.
    """

    kind: str
    label: str
    check: Any = None
    where: SourceLocation | None = None
    turn: int | None = None
    since: int = 1
    advisory: bool = False
    weight: float = 1.0


class Script(Protocol):
    """A test that is code: it talks to an agent and checks its answers."""

    async def run(self, stage: Any) -> KindlmError | None:
        """Run one trial; return the error if its execution errored.

        `stage` is a `ports.Stage`, which this module may not import.
        """
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """One test. It runs on each of `targets`, `repeat` times.

    Attributes:
        prompt: The first message; unused with a `script`.
        server_tools: Tools of MCP servers, which are added to `tools` when the run begins.
        follow_ups: Further messages of the user, each sent after an answer.
        contexts: JSON objects that an agent gets with each message, the first one included. There
            may be fewer than messages; None for a message without one.
        command: The program that is the only target, with the id `command`.
        agent: The case's own agent, the only target.
        confidence: The confidence level of the intervals of its repeats.
        title: Another name for selecting it.
        timeout_ms: The time for one execution, None for that of the suite.
        fault: Why it cannot be run: its executions error, unlike those of other cases.
        written: The case before variables were resolved, if it has any.
    """

    name: str
    prompt: Prompt
    targets: tuple[str, ...]
    expectations: tuple[Expectation, ...] = ()
    tools: tuple[SimulatedTool, ...] = ()
    server_tools: tuple[ServerTools, ...] = ()
    follow_ups: tuple[str, ...] = ()
    contexts: tuple[Mapping[str, Any] | None, ...] = ()
    command: Command | None = None
    agent: AgentTarget | None = None
    repeat: int = 1
    pass_rate: float = 1.0
    score_limits: ScoreLimits | None = None
    confidence: float = 0.95
    max_turns: int = 10
    tags: tuple[str, ...] = ()
    skip: bool = False
    where: SourceLocation | None = None
    script: Script | None = None
    title: str | None = None
    timeout_ms: int | None = None
    fault: KindlmError | None = None
    written: Case | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """A price in US dollars per million tokens.

    `cached_usd` is that of input from a provider's cache, if it is known.
    """

    input_usd: float
    output_usd: float
    cached_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A program to start before the suite runs, from the key `serve`.

    It is ready when `ready_url` answers, or when it prints a line that contains `ready_line`.
    """

    name: str
    command: tuple[str, ...]
    directory: str
    ready_url: str | None = None
    ready_line: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int = 20_000


@dataclass(frozen=True, slots=True)
class Upload:
    """How runs are pushed to a history server.

    Without `include_texts`, no content is pushed; text that matches one of `patterns` never is.
    """

    enabled: bool = False
    url: str | None = None
    include_texts: bool = False
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suite:
    """A set of cases with everything that is needed to run them.

    `providers` and `cases` may contain placeholders for variables until the run begins.

    Attributes:
        config_text: The recorded configuration as canonical JSON, without values of variables and
            port numbers.
        config_hash: The hash of the configuration, without `upload`.
        retries: How often a failed call is tried again.
        reruns: How often an execution that did not pass is run again.
        has_document: Whether to write a compliance report after each run.
        document_folder: Its folder, relative to the suite's file.
        unread: Files that could not be loaded, relative to the project's root; their tests are
            unknown.
        listed: The tools of MCP servers, when the run has begun.
        cassettes: The runs of its cassettes by the names in the suite, when the run has begun.
    """

    name: str
    project: str
    front_end: str
    path: str
    config_hash: str
    config_text: str
    providers: Mapping[str, ProviderSettings]
    models: Mapping[str, ModelTarget]
    cases: tuple[Case, ...]
    gates: tuple[Gate, ...]
    tags: tuple[str, ...] = ()
    agents: Mapping[str, AgentTarget] = field(default_factory=dict)
    judge_model: str | None = None
    concurrency: int = 4
    timeout_ms: int = 60_000
    execution_timeout_ms: int = 300_000
    retries: int = 2
    reruns: int = 0
    services: tuple[Service, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)
    record_raw_bodies: bool = True
    redact_pii: bool = False
    has_document: bool = False
    document_folder: str | None = None
    upload: Upload = Upload()
    unread: tuple[str, ...] = ()
    listed: tuple[ListedTools, ...] = ()
    cassettes: Mapping[str, str] = field(default_factory=dict)

    def all_agents(self) -> tuple[AgentTarget, ...]:
        """Return the agents of the suite and those of its cases."""
        own = (case.agent for case in self.cases if case.agent is not None)
        return (*self.agents.values(), *own)

    def judge(self, model: str | None = None) -> ModelTarget | None:
        """Return the given model, else `judge_model`, else the first; None if there is none."""
        chosen = model or self.judge_model or next(iter(self.models), None)
        return None if chosen is None else self.models.get(chosen)
