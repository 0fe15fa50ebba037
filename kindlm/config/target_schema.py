"""What is tested, and where it is: providers, models, and programs to start."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from kindlm.config.section import EXTENSION, WHOLE, Maybe, Score, Section, Text, Url
from kindlm.config.values import (
    LIST,
    MAPPING,
    TEXT,
    check_command,
    check_env_name,
    form_of,
    refuse,
)

__all__ = ["ModelConfig", "PriceConfig", "ProviderConfig", "ReadyConfig", "ServeConfig"]

Command = Annotated[str, Field(min_length=1), BeforeValidator(check_command)]
Words = Annotated[list[Text], Field(min_length=1)]
EnvName = Annotated[str, Field(min_length=1), BeforeValidator(check_env_name)]


class ScriptedCallConfig(Section):
    """A tool call that a scripted provider makes."""

    name: Text
    arguments: dict[str, Any] = Field(default={})


class ReplyConfig(Section):
    """One answer of a scripted provider: a text, tool calls, or an error."""

    text: Maybe[str] = None
    """{{message}} stands for the last message of the user."""
    tool_calls: Maybe[list[ScriptedCallConfig]] = None
    error: Maybe[Literal["rate_limit", "timeout", "auth", "api", "network"]] = None
    retry_after: Maybe[Annotated[float, Field(ge=0)]] = None
    """Seconds, with the error rate_limit."""
    delay_ms: Maybe[Annotated[float, Field(ge=0)]] = None

    @model_validator(mode="after")
    def _says_something(self) -> ReplyConfig:
        if self.error is not None and (self.text is not None or self.tool_calls is not None):
            raise refuse("is an error and an answer at once", "Remove one of them")
        if self.error is None and self.text is None and self.tool_calls is None:
            raise refuse("holds no answer", "Add `text:`, `toolCalls:` or `error:`")
        return self


class ProviderConfig(Section):
    """How to reach a provider."""

    type: Maybe[Literal["openai", "anthropic", "ollama", "scripted"]] = Field(
        default=None, json_schema_extra=EXTENSION
    )
    """The wire format, for a provider with a name of your own."""
    api_key_env: Maybe[EnvName] = None
    """Name of the environment variable that holds the API key. Never the key itself."""
    base_url: Maybe[Url] = None
    """Base URL of a compatible API; may hold {{env.NAME}} and {{serve.NAME.port}}."""
    organization: Maybe[str] = None
    """Organization id (OpenAI)."""
    replies: Maybe[Annotated[list[ReplyConfig], Field(min_length=1)]] = Field(
        default=None, json_schema_extra=EXTENSION
    )
    """What a scripted provider answers, in order."""


class ParamsConfig(Section):
    """Sampling parameters."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.2
    max_tokens: Annotated[int, Field(ge=1, le=128_000), WHOLE] = 1024
    top_p: Maybe[Score] = None
    stop_sequences: Maybe[list[str]] = None
    seed: Maybe[Annotated[int, WHOLE]] = None


class ModelConfig(Section):
    """A model to test, or one that judges."""

    id: Text
    """Your name for this model, used in reports."""
    provider: Text
    """A key of `providers`."""
    model: Text
    """The model's name at its provider."""
    params: ParamsConfig = ParamsConfig()
    role: Maybe[Literal["judge"]] = Field(default=None, json_schema_extra=EXTENSION)
    """`judge`: this model only judges, tests do not run on it."""


class PriceConfig(Section):
    """US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class ReadyConfig(Section):
    """A service is ready when it prints a line that contains `line`."""

    line: Text


class ServeConfig(Section):
    """A program to start before the tests, on a free port: {{serve.NAME.port}} and PORT."""

    name: Annotated[str, Field(pattern=r"^\w+$")]
    command: Annotated[
        Annotated[Command, Tag(TEXT)] | Annotated[Words, Tag(LIST)],
        Discriminator(
            form_of,
            custom_error_type="refused",
            custom_error_message="must be a text or a list of texts",
        ),
    ]
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
    ] = None
    """URL that answers once the service is ready, or the line it prints."""
    env: dict[str, str] = Field(default={})
    timeout_ms: Annotated[int, Field(ge=1), WHOLE] = 20_000
