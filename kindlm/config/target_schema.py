"""What is tested, and where it is: providers, models, and programs to start."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from kindlm.section import EXTENSION, WHOLE, Maybe, Open, Score, Section, Text, Url
from kindlm.values import (
    LIST,
    MAPPING,
    TEXT,
    check_command,
    check_env_name,
    form_of,
    refuse,
)

Command = Annotated[str, Field(min_length=1), BeforeValidator(check_command)]
Words = Annotated[list[Text], Field(min_length=1)]
CommandLine = Annotated[
    Annotated[Command, Tag(TEXT)] | Annotated[Words, Tag(LIST)],
    Discriminator(
        form_of,
        custom_error_type="refused",
        custom_error_message="must be a text or a list of texts",
    ),
]
EnvName = Annotated[str, Field(min_length=1), BeforeValidator(check_env_name)]


class ScriptedCallConfig(Section):
    """A tool call that a scripted provider makes."""

    name: Text = Field(examples=["lookup_order"])
    """Name of the tool."""
    arguments: dict[str, Any] = Field(default={}, examples=[{"order_id": "A1"}])
    """What it is called with."""


class ReplyConfig(Section):
    """One answer of a scripted provider: a text, tool calls, or an error."""

    text: Maybe[str] = Field(default=None, examples=["You said: {{message}}"])
    """{{message}} stands for the last message of the user."""
    tool_calls: Maybe[list[ScriptedCallConfig]] = None
    """Tools that it calls."""
    error: Maybe[Literal["rate_limit", "timeout", "auth", "api", "network"]] = Field(
        default=None, examples=["rate_limit"]
    )
    """Fails like this instead of answering."""
    retry_after: Maybe[Annotated[float, Field(ge=0)]] = Field(default=None, examples=[1])
    """Seconds to wait, with the error rate_limit."""
    delay_ms: Maybe[Annotated[float, Field(ge=0)]] = Field(default=None, examples=[200])
    """Milliseconds that the answer takes."""

    @model_validator(mode="after")
    def _says_something(self) -> ReplyConfig:
        if self.error is not None and (self.text is not None or self.tool_calls is not None):
            raise refuse("is an error and an answer at once", "Remove one of them")
        if self.error is None and self.text is None and self.tool_calls is None:
            raise refuse("holds no answer", "Add `text:`, `toolCalls:` or `error:`")
        return self


class ProviderConfig(Open):
    """How to reach a provider."""

    type: Maybe[Literal["openai", "anthropic", "ollama", "scripted"]] = Field(
        default=None, examples=["openai"], json_schema_extra=EXTENSION
    )
    """The wire format, for a provider with a name of your own; the name itself by default."""
    api_key_env: Maybe[EnvName] = Field(default=None, examples=["OPENAI_API_KEY"])
    """Name of the environment variable that holds the API key. Never the key itself. Required
    for `openai` and `anthropic`."""
    base_url: Maybe[Url] = Field(default=None, examples=["https://llm.example.com/v1"])
    """Base URL of a compatible API; may hold {{env.NAME}} and {{serve.NAME.port}}."""
    organization: Maybe[str] = Field(default=None, examples=["org-acme"])
    """Organization id (OpenAI)."""
    replies: Maybe[Annotated[list[ReplyConfig], Field(min_length=1)]] = Field(
        default=None, json_schema_extra=EXTENSION
    )
    """What a scripted provider answers, in order."""


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

    id: Text = Field(examples=["gpt"])
    """Your name for this model, used in reports."""
    provider: Text = Field(examples=["openai"])
    """A key of `providers`."""
    model: Text = Field(examples=["gpt-4o"])
    """The model's name at its provider."""
    params: ParamsConfig = ParamsConfig()
    """How it is asked. A default that the model does not take is left out with a warning."""
    role: Maybe[Literal["judge"]] = Field(
        default=None, examples=["judge"], json_schema_extra=EXTENSION
    )
    """`judge`: this model only judges, tests do not run on it."""


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
