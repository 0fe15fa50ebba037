"""What is tested, and where it is: providers, models, and programs to start."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
)

from kindlm.packages import as_written
from kindlm.plugins import Adapter, Provider
from kindlm.section import (
    EXTENSION,
    WHOLE,
    CommandLine,
    Maybe,
    Milliseconds,
    Open,
    Score,
    Section,
    Text,
    Url,
)
from kindlm.values import (
    MAPPING,
    TEXT,
    check_env_name,
    form_of,
)

EnvName = Annotated[str, Field(min_length=1), BeforeValidator(check_env_name)]


class Chosen(Open):
    """An entry whose kind one of its keys says; `options` is the model of that kind."""

    _options: Any = PrivateAttr(default=None)

    def choose(self, options: Provider | Adapter) -> None:
        """Take the options, before anything reads the section."""
        self._options = options
        self.add(as_written(options))


class ProviderConfig(Chosen):
    """How to reach a provider."""

    type: Maybe[Text] = Field(default=None, examples=["openai"], json_schema_extra=EXTENSION)
    """The wire format, for a provider with a name of your own; the name itself by default."""
    api_key_env: Maybe[EnvName] = Field(default=None, examples=["OPENAI_API_KEY"])
    """Name of the environment variable that holds the API key. Never the key itself. Required
    for `openai` and `anthropic`."""
    base_url: Maybe[Url] = Field(default=None, examples=["https://llm.example.com/v1"])
    """Base URL of a compatible API; may hold {{env.NAME}} and {{serve.NAME.port}}."""
    organization: Maybe[str] = Field(default=None, examples=["org-acme"])
    """Organization id (OpenAI)."""

    @property
    def options(self) -> Provider | None:
        """What a provider of this type takes besides; None if that has an error."""
        options: Provider | None = self._options
        return options


class ParamsConfig(Section):
    """Sampling parameters."""

    temperature: Annotated[float, Field(ge=0, le=2)] = Field(default=0.2, examples=[0])
    """How freely the model chooses its words."""
    max_tokens: Annotated[int, Field(ge=1, le=128_000), WHOLE] = Field(
        default=1024, examples=[2048]
    )
    """Most tokens of one answer."""
    top_p: Maybe[Score] = Field(default=None, examples=[0.9])
    """Share of probability that the model chooses from."""
    stop_sequences: Maybe[list[str]] = Field(default=None, examples=[["END"]])
    """Texts that end the answer."""
    seed: Maybe[Annotated[int, WHOLE]] = Field(default=None, examples=[42])
    """For providers that can repeat themselves: all but Anthropic."""


class ModelConfig(Section):
    """A model to test, or one that judges."""

    main = "model"

    id: Text = Field(examples=["gpt"])
    """Your name for this model, used in reports; what `model` says by default."""
    provider: Text = Field(examples=["openai"])
    """A key of `providers`. Required, unless `model` names it or there is only one."""
    model: Text = Field(examples=["gpt-4o"])
    """The model's name at its provider; `openai/gpt-4o` names the provider, too."""
    params: ParamsConfig = ParamsConfig()
    """How it is asked. A default that the model does not take is left out with a warning."""
    role: Maybe[Literal["judge"]] = Field(
        default=None, examples=["judge"], json_schema_extra=EXTENSION
    )
    """`judge`: this model only judges, tests do not run on it."""


def _with_other_names(schema: dict[str, Any]) -> None:
    """Publish `type` and `url`, which mean the same as `adapter` and `endpoint`."""
    properties = schema["properties"]
    for name, other in (("type", "adapter"), ("url", "endpoint")):
        properties[name] = {**properties[other], "description": f"The same as `{other}`."}


class AgentConfig(Chosen):
    """A live agent that is tested."""

    main = "endpoint"

    model_config = ConfigDict(json_schema_extra=_with_other_names)

    id: Text = Field(examples=["shop"])
    """Your name for this agent, used in reports; `agent` by default, then `agent-2`."""
    adapter: Text = Field(
        validation_alias=AliasChoices("adapter", "type"),
        serialization_alias="adapter",
        examples=["http"],
    )
    """How it is talked to: `http`, `langgraph`, `crewai`, `openai-assistants`, `tapescope` or
    `streaming`, each with a wire format of its own; `mcp` for an MCP server, whose tools tests call
    or models get; `subprocess` for a program; or `python` for code that is called directly. That
    code runs in processes of its own, each for one conversation at a time; what a process has
    imported is kept for the next one. By default `http` for a URL, and `python` for
    `package.module:name`. Code and programs have the environment of the run, `.env`
    included. `openai-assistant` and `jsonl` are other names of `openai-assistants` and
    `tapescope`."""
    endpoint: Maybe[Text] = Field(
        default=None,
        validation_alias=AliasChoices("endpoint", "url"),
        serialization_alias="endpoint",
        examples=["http://127.0.0.1:8000/chat"],
    )
    """Its URL; for `python` its `package.module:name`. Required, except for `openai-assistants`,
    `subprocess`, and an MCP server with a `command`.
    Like all texts of an agent, it may hold
    {{env.NAME}} and {{serve.NAME.port}}. A
    password or key in it belongs into the environment: it is refused where it is written out."""
    timeout_ms: Maybe[Milliseconds] = Field(default=None, examples=[120_000])
    """Milliseconds for one answer; those of `defaults.timeoutMs` by default."""
    reports_tools: Maybe[bool] = Field(default=None, examples=[True])
    """It reports every tool call that it makes. Checks of calls that were not made need this where
    its answers do not show it: see [Agents](../how-to/agents.md)."""
    gateway: Maybe[bool] = Field(default=None, examples=[True])
    """It calls its models through kindlm, which records these calls and sees its tool calls in
    them: see [The gateway](../how-to/agents.md#the-gateway)."""
    telemetry: Maybe[Literal["otlp"]] = Field(default=None, examples=["otlp"])
    """`otlp`: it exports OpenTelemetry spans of its tool calls and model calls, and kindlm receives
    them: see [OpenTelemetry](../how-to/agents.md#opentelemetry)."""
    telemetry_wait_ms: Maybe[Annotated[int, Field(ge=1), WHOLE]] = Field(
        default=None, examples=[30_000]
    )
    """Milliseconds that kindlm waits, after each answer, for spans that have not arrived; 10,000 by
    default."""
    verbose: bool = Field(default=False, examples=[True])
    """Write what is sent to it and what comes back into the log."""
    headers: dict[str, str] = Field(
        default={}, examples=[{"Authorization": "Bearer {{env.SHOP_TOKEN}}"}]
    )
    """HTTP headers. Credentials belong into the environment: {{env.NAME}}."""

    @property
    def options(self) -> Adapter | None:
        """What the adapter takes besides; None if that has an error."""
        options: Adapter | None = self._options
        return options


class PriceConfig(Section):
    """US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0)] = Field(examples=[0.5])
    """For what the model reads."""
    output: Annotated[float, Field(ge=0)] = Field(examples=[1.5])
    """For what the model writes."""


class ReadyConfig(Section):
    """A service is ready when it prints a line that contains `line`."""

    line: Text = Field(examples=["listening on"])
    """Part of the line."""


class ServeConfig(Section):
    """A program to start before the tests, on a free port: {{serve.NAME.port}} and PORT.

    It runs until the tests are done. One that ends by itself before stops the run, which does not
    pass: `kindlm test --resume` starts it again and goes on with the tests that are left.
    """

    name: Annotated[str, Field(pattern=r"^\w+$")] = Field(examples=["agent"])
    """What its port is called by."""
    command: CommandLine = Field(examples=["python agent.py --port {{serve.agent.port}}"])
    """No shell: split as a shell would, or given as a list."""
    ready: Maybe[
        Annotated[
            Annotated[Url, Tag(TEXT)] | Annotated[ReadyConfig, Tag(MAPPING)],
            Discriminator(
                form_of,
                custom_error_type="refused",
                custom_error_message="must be a URL or a mapping with `line`",
            ),
        ]
    ] = Field(default=None, examples=["http://127.0.0.1:{{serve.agent.port}}/health"])
    """URL that answers once the service is ready, or the line it prints; the tests wait for it."""
    env: dict[str, str] = Field(default={}, examples=[{"MODE": "test"}])
    """Environment variables for it, beside those of kindlm."""
    timeout_ms: Annotated[int, Field(ge=1), WHOLE] = Field(default=20_000, examples=[5000])
    """Milliseconds it has to get ready."""
