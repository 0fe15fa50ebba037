"""The schema of `providers`, `models`, `agents` and `serve`."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AfterValidator, AliasChoices, Field, PrivateAttr, Tag

from kindlm.packages import as_written
from kindlm.plugins import Adapter, Provider
from kindlm.section import (
    WHOLE,
    CommandLine,
    Extension,
    Maybe,
    Milliseconds,
    Open,
    Score,
    Section,
    Text,
    Url,
    Variables,
    by_form,
)
from kindlm.values import MAPPING, TEXT, check_env_name

EnvName = Annotated[str, Field(min_length=1), AfterValidator(check_env_name)]


K = TypeVar("K", Provider, Adapter)


class Chosen(Open, Generic[K]):
    """An entry of a provider or an agent; its kind has `options` of its own."""

    _options: K | None = PrivateAttr(default=None)

    @property
    def options(self) -> K | None:
        """The options of its type or adapter; None if they have an error."""
        return self._options

    def choose(self, options: K | None) -> None:
        """Set the options, before anything reads the section; None if they have an error."""
        self._options = options
        self.add(as_written(options))


class ProviderConfig(Chosen[Provider]):
    """How to reach a provider."""

    type: Extension[Maybe[Text]] = Field(default=None, examples=["openai"])
    """The wire format, for a provider with a name of your own. By default the name itself."""
    api_key_env: Maybe[EnvName] = Field(default=None, examples=["OPENAI_API_KEY"])
    """Name of the environment variable that holds the API key. Never the key itself. Required
    for `openai` and `anthropic`; other types have a usual one."""
    base_url: Maybe[Url] = Field(default=None, examples=["https://llm.example.com/v1"])
    """Base URL of a compatible API. By default that of the provider. May contain {{env.NAME}} and
    {{serve.NAME.port}}."""
    organization: Maybe[str] = Field(default=None, examples=["org-acme"])
    """Organization id (OpenAI)."""


class ParamsConfig(Section):
    """Sampling parameters."""

    temperature: Annotated[float, Field(ge=0, le=2)] = Field(default=0.2, examples=[0])
    """Randomness of the answer."""
    max_tokens: Annotated[int, Field(ge=1, le=128_000), WHOLE] = Field(
        default=1024, examples=[2048]
    )
    """Maximum tokens of an answer."""
    top_p: Maybe[Score] = Field(default=None, examples=[0.9])
    """Nucleus sampling: the share of probability to sample from."""
    stop_sequences: Maybe[list[str]] = Field(default=None, examples=[["END"]])
    """Strings that end the answer."""
    seed: Maybe[Annotated[int, WHOLE]] = Field(default=None, examples=[42])
    """Seed, for providers that support one: all except Anthropic."""


class ModelConfig(Section):
    """A model to test, or a judge."""

    main = "model"

    id: Text = Field(examples=["gpt"])
    """Your name for this model in reports. By default the value of `model`."""
    provider: Text = Field(examples=["openai"])
    """A key of `providers`. Required, unless `model` names it or there is only one."""
    model: Text = Field(examples=["gpt-4o"])
    """Name of the model at its provider. `openai/gpt-4o` names the provider, too."""
    params: ParamsConfig = ParamsConfig()
    """Sampling parameters. kindlm omits defaults that a model does not support, and warns."""
    role: Extension[Maybe[Literal["judge"]]] = Field(default=None, examples=["judge"])
    """`judge`: this model only judges. Tests do not run on it."""


class AgentConfig(Chosen[Adapter]):
    """A live agent to test."""

    main = "endpoint"

    id: Text = Field(examples=["shop"])
    """Your name for this agent in reports. By default `agent`, then `agent-2`."""
    adapter: Text = Field(
        validation_alias=AliasChoices("adapter", "type"),
        serialization_alias="adapter",
        examples=["http"],
    )
    """How kindlm talks to the agent. `http`, `langgraph`, `crewai`, `openai-assistants`,
    `tapescope` and `streaming` have wire formats of their own. `mcp` is for an MCP server,
    `subprocess` for a program, and `python` for Python code. By default `http` for a URL, and
    `python` for `package.module:name`. Python code runs in separate processes, each for one
    conversation at a time; a process keeps its imports for the next one. Code and programs get the
    environment of the run, with `.env`. `openai-assistant` and `jsonl` are aliases of
    `openai-assistants` and `tapescope`."""
    endpoint: Maybe[Text] = Field(
        default=None,
        validation_alias=AliasChoices("endpoint", "url"),
        serialization_alias="endpoint",
        examples=["http://127.0.0.1:8000/chat"],
    )
    """URL of the agent; for `python`, `package.module:name`. Required, except for
    `openai-assistants`, `subprocess`, and an MCP server with a `command`. Like all strings of an
    agent, it may contain {{env.NAME}} and {{serve.NAME.port}}. kindlm refuses a literal password or
    key: put it into the environment."""
    timeout_ms: Maybe[Milliseconds] = Field(default=None, examples=[120_000])
    """Time limit of one answer in milliseconds. By default `defaults.timeoutMs`."""
    reports_tools: Maybe[bool] = Field(default=None, examples=[True])
    """The agent reports every tool call. Tool checks need this if its answers do not show it: see
    [Agents](../how-to/agents.md)."""
    gateway: Maybe[bool] = Field(default=None, examples=[True])
    """The agent calls its models through kindlm, which records these calls and finds tool calls in
    them: see [The gateway](../how-to/agents.md#the-gateway)."""
    telemetry: Maybe[Literal["otlp"]] = Field(default=None, examples=["otlp"])
    """`otlp`: the agent exports OpenTelemetry spans of its tool calls and model calls, and kindlm
    receives them: see [OpenTelemetry](../how-to/agents.md#opentelemetry)."""
    telemetry_wait_ms: Maybe[Annotated[int, Field(ge=1), WHOLE]] = Field(
        default=None, examples=[30_000]
    )
    """Milliseconds to wait for missing spans after each answer. By default 10,000."""
    verbose: bool = Field(default=False, examples=[True])
    """Write all requests and answers to the log."""
    headers: dict[str, str] = Field(
        default={}, examples=[{"Authorization": "Bearer {{env.SHOP_TOKEN}}"}]
    )
    """HTTP headers. Put credentials into the environment: {{env.NAME}}."""


class PriceConfig(Section):
    """Price in US dollars per million tokens."""

    input: Annotated[float, Field(ge=0)] = Field(examples=[0.5])
    """Price of input tokens."""
    output: Annotated[float, Field(ge=0)] = Field(examples=[1.5])
    """Price of output tokens."""


class ReadyConfig(Section):
    """The program is ready when it prints a line that contains `line`."""

    line: Text = Field(examples=["listening on"])
    """Part of the line."""


class ServeConfig(Section):
    """A program to start before the tests, with a free port: {{serve.NAME.port}} and PORT.

    It runs until the tests are done. If it ends earlier, kindlm stops the run, which then does not
    pass; `kindlm test --resume` starts the program again and runs the remaining tests.
    """

    name: Annotated[str, Field(pattern=r"^\w+$")] = Field(examples=["agent"])
    """Name of the program, for {{serve.NAME.port}}."""
    command: CommandLine = Field(examples=["python agent.py --port {{serve.agent.port}}"])
    """Program with its arguments: a string that is split like a shell would, or a list. No shell
    runs it."""
    ready: Maybe[
        Annotated[
            Annotated[Url, Tag(TEXT)] | Annotated[ReadyConfig, Tag(MAPPING)],
            by_form("must be a URL or a mapping with `line`"),
        ]
    ] = Field(default=None, examples=["http://127.0.0.1:{{serve.agent.port}}/health"])
    """URL that answers when the program is ready, or a line that it then prints. The tests wait for
    it."""
    env: Variables = Field(default={}, examples=[{"MODE": "test"}])
    """Environment variables for the program, added to those of kindlm."""
    timeout_ms: Annotated[int, Field(ge=1), WHOLE] = Field(default=20_000, examples=[5000])
    """Milliseconds until the program must be ready."""
