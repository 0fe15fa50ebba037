"""What to test, independent of the file format.

Every front end (kindlm.yaml, EvalView, scenarios) makes a `Suite`, and the engine runs it. The
front end has resolved all paths and read all referenced files, so nothing after it touches the
user's files.
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
from kindlm.stored_form import AuthoredJson, Meaning


@dataclass(frozen=True, slots=True)
class ModelParams:
    """Sampling parameters of a model.

    `written` names those that the user wrote: a model that refuses one of them makes the call
    fail, while a refused default is dropped with a warning.
    """

    temperature: float | None = 0.2
    max_tokens: int = 1024
    top_p: float | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    written: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """How to reach a provider. `api_key_env` names a variable; a key itself is never held here.

    `type` is the wire format: a provider of kindlm, such as `openai`, or one of a package.
    `options` is its `plugins.Provider`, which values know nothing of, so that the type cannot be
    named here; None stands for its defaults.
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
    """A configured model: `id` is the user's name for it, `model` the provider's."""

    id: str
    provider: str
    model: str
    params: ModelParams = ModelParams()


TELEMETRY_WAIT_MS = 10_000


@dataclass(frozen=True, slots=True)
class AgentTarget:
    """A live agent as a target. `options` is its `plugins.Adapter`: what it takes besides.

    Values know nothing of adapters, so that the type cannot be named here; None stands for the
    defaults of the adapter.

    `endpoint` is a URL, or what else the adapter reaches the agent by. Values of headers may hold
    `{{env.NAME}}` until they are bound. `directory` is the folder of the file that names it.
    `timeout_ms` is the time for one answer, that of the suite by default. With `verbose`, what is
    sent to it and comes back is logged. `model` is the one it is known to run, whose price counts
    where it names none itself. With `reports_tools`, it reports every tool call that it makes; with
    `gateway`, it calls its models through kindlm. `instance` is the agent itself, or what makes it,
    where a test hands it over as an object. With `telemetry`, it exports spans of what it does, and
    kindlm waits `telemetry_wait_ms` for those of an answer.
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
    def prints_calls(self) -> bool:
        """Whether it is a program that reports its tool calls in lines, as a `Command` does."""
        return self.options is not None and bool(self.options.prints_calls())

    @property
    def starts_program(self) -> bool:
        """Whether a program is started for each conversation alone."""
        return self.options is not None and self.instance is None and self.options.starts_program


@dataclass(frozen=True, slots=True)
class Command:
    """A program that is the agent under test: its words, and the folder it runs in.

    With `reports_tools`, it reports every tool call that it makes.
    """

    words: tuple[str, ...]
    directory: str
    reports_tools: bool = False

    @property
    def prints_calls(self) -> bool:
        """Whether it reports its tool calls in lines that it prints."""
        return True


@dataclass(frozen=True, slots=True)
class Prompt:
    """The first messages of a conversation, rendered; `prefill` begins the model's answer."""

    user: str
    system: str | None = None
    prefill: str | None = None


class Fault(StrEnum):
    """What a simulated tool does instead of answering properly."""

    TIMEOUT = "timeout"
    ERROR = "error"
    MALFORMED = "malformed"


TOOL_PLACEHOLDER = re.compile(r"\{\{[ \t]*((?:args|state)(?:\.[\w-]+|\[[0-9]+\])+)[ \t]*\}\}")
"""What is filled in when a tool answers: `{{args.order_id}}`, `{{state.items[0].price}}`."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool answers when a call matches.

    A call matches when its arguments match `when` and the state of the execution matches
    `when_state`; None matches everything. Texts in `then` and `set_state` may hold what fits
    `TOOL_PLACEHOLDER`. With a `sequence`, the nth matching call gets the nth of it, and the last
    one stays. `fault` answers with a failure instead.
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
    """An answer that a tool gave in an earlier run, in the order of that run."""

    arguments: Mapping[str, Any]
    response: Any


@dataclass(frozen=True, slots=True)
class SimulatedTool:
    """A tool as the model sees it, and how its calls are answered.

    The first of `answers` that matches wins. Then come those `recorded` in the run that the user
    names as its `cassette`, for a call with equal arguments. Then comes `default`, if there is one:
    null, 0 and "" are answers too, hence `has_default`. Arguments are checked against `parameters`
    and answers against `result_schema`; both are JSON Schemas. The calls to a tool of an MCP server
    (`server` is its id) go there, if nothing here answers them.
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
    """Tools of an MCP server that a case gives to models; `server` is the id of its agent.

    `only` names them, None stands for all. With `simulate` no call of them reaches the server.
    """

    server: str
    only: tuple[str, ...] | None = None
    simulate: bool = False


@dataclass(frozen=True, slots=True)
class ListedTools:
    """The tools that an MCP server listed when a run began, in the words of the protocol.

    `identity` is the name and version of the server, `hash` tells whether two lists are the same,
    whatever their order.
    """

    server: Annotated[str, Meaning("its id in the suite")]
    identity: str | None
    hash: Annotated[str, Meaning("first part of a digest of the tools, ordered by name")]
    tools: AuthoredJson


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that is expected of a transcript.

    `check` says what, and evaluates it: a `checks.Check`, which values know nothing of, so that the
    type cannot be named here. It is None where a script says itself what it found. Documents that
    a check refers to (JSON Schemas) are inside it already. `turn` bounds what the check sees to the
    transcript up to that turn, counted from 1; with `since`, to the turns from that one on. The
    result of one that is `advisory` is recorded and shown, and decides nothing. `weight` is what it
    counts for in the score of the execution, and for nothing else.
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
    """A test that is code: it says what it wants to an agent, and checks what comes back."""

    async def run(self, stage: Any) -> KindlmError | None:
        """Hold one trial; return the error that makes its execution errored.

        `stage` is a `ports.Stage`: values know no ports, so that the type can't be named here.
        """
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """One test. It runs on each of `targets`, `repeat` times.

    `follow_ups` are further messages of the user, each sent after the answer to the one before.
    `contexts` are JSON objects that go to an agent with these messages, the first one included;
    None where a message has none, and fewer than there are messages where the rest has none. With
    a `command`, the one target is `command`; with an `agent` of its own, that agent's id. With
    `confidence`, the intervals of its repeats that are shown hold what they are of. `written`
    is the case before values of the environment were put in, if there were any. A case with a
    `script` has no prompt: the script says it all. `title` is another name that it is selected by.
    `timeout_ms` is the time for one execution, that of the suite by default. With a `fault` it can
    not be run, and its executions are errored: the others of its suite can. What `server_tools` ask
    for is among `tools` once the run has begun.
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
    """Price in US dollars per million tokens.

    `cached_usd` is that of input which a provider reads from its cache, if it is known.
    """

    input_usd: float
    output_usd: float
    cached_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A program to start before the suite runs: `serve` of the extensions.

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
    """How runs are sent to a history server.

    `url` is None unless the user named a server. Without `include_texts`, content stays here; what
    one of `patterns` matches does so always.
    """

    enabled: bool = False
    url: str | None = None
    include_texts: bool = False
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suite:
    """A set of cases with everything that is needed to run them.

    `config_text` is the resolved configuration in canonical JSON, as it is recorded, and
    `config_hash` its identity, `upload` apart; neither holds values of environment variables or
    port numbers.
    `retries` is how often a call that failed is made again, `reruns` how often an execution is run
    again that did not pass.
    With `has_document`, a compliance report is written after each run of it; `document_folder` is
    where, relative to its file, if it says so.
    `listed` are the tools of its MCP servers, once the run has begun.
    `unread` are files of it that could not be loaded, from the project's root: what they define is
    not known.
    Placeholders for those stand in `providers` and `cases` until they are bound, at run time.
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

    def all_agents(self) -> tuple[AgentTarget, ...]:
        """Return the agents of the suite and those of its cases."""
        own = (case.agent for case in self.cases if case.agent is not None)
        return (*self.agents.values(), *own)

    def judge(self, model: str | None = None) -> ModelTarget | None:
        """Return the model that judges: the one that is named, else `judge_model`, else the first.

        It is None where there is no such model.
        """
        chosen = model or self.judge_model or next(iter(self.models), None)
        return None if chosen is None else self.models.get(chosen)
