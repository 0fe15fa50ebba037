"""The shape of kindlm.yaml: names, types, ranges and defaults.

camelCase in YAML, snake_case here. Strict: unknown keys, nulls where nothing may be empty, and
values of another type are errors; the only leniency is that 3.0 is an integer, since JSON has one
kind of number. What refers to something else (prompts, models, files) is checked in `references`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic.alias_generators import to_camel

from kindlm.config.values import (
    LIST,
    MAPPING,
    TEXT,
    check_command,
    check_env_name,
    check_pattern,
    check_url,
    form_of,
    integral,
    not_bool,
    not_null,
    refuse,
)

__all__ = [
    "EXTENSION",
    "MAX_MODELS",
    "MAX_TESTS",
    "ComplianceConfig",
    "DriftConfig",
    "ExpectConfig",
    "GatesConfig",
    "KindlmConfig",
    "ModelConfig",
    "PiiConfig",
    "PromptConfig",
    "ProviderConfig",
    "Section",
    "ServeConfig",
    "TestConfig",
    "ToolCallConfig",
    "ToolConfig",
]

T = TypeVar("T")

MAX_TESTS = 1_000
MAX_MODELS = 50
MAX_REPEAT = 100

EXTENSION: dict[str, Any] = {"x-kindlm-extension": True}
"""Marks what the published JSON Schema has beyond the KindLM config schema v1."""

Maybe = Annotated[T | None, BeforeValidator(not_null)]
"""A value that may be left out, but not be empty."""

Text = Annotated[str, Field(min_length=1)]
Score = Annotated[float, Field(ge=0, le=1)]
WHOLE = BeforeValidator(integral)
Count = Annotated[int, Field(ge=0), WHOLE]
Repeat = Annotated[int, Field(ge=1, le=MAX_REPEAT), WHOLE]
Milliseconds = Annotated[int, Field(ge=1000), WHOLE]
Positive = Annotated[float, Field(gt=0)]
Url = Annotated[str, BeforeValidator(check_url)]
Pattern = Annotated[str, BeforeValidator(check_pattern)]
Command = Annotated[str, Field(min_length=1), BeforeValidator(check_command)]
Words = Annotated[list[Text], Field(min_length=1)]
EnvName = Annotated[str, Field(min_length=1), BeforeValidator(check_env_name)]


class Section(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


def _with_other_spelling(schema: dict[str, Any]) -> None:
    """Publish `system_prompt_file`, the error specification's name of `systemFile`."""
    properties = schema["properties"]
    properties["system_prompt_file"] = {**properties["systemFile"], "deprecated": True}


class SuiteConfig(Section):
    """What the suite is called."""

    name: Text
    description: Maybe[str] = None
    tags: list[str] = []
    """Every test of the suite has these tags too."""


class ScriptedCallConfig(Section):
    """A tool call that a scripted provider makes."""

    name: Text
    arguments: dict[str, Any] = {}


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


class PromptConfig(Section):
    """The messages that open a conversation; {{name}} stands for a variable of the test."""

    model_config = ConfigDict(json_schema_extra=_with_other_spelling)

    system: Maybe[str] = None
    system_file: Maybe[Text] = Field(
        default=None,
        validation_alias=AliasChoices("systemFile", "system_prompt_file"),
        serialization_alias="systemFile",
        json_schema_extra=EXTENSION,
    )
    """File with the system text, relative to this file."""
    user: Maybe[Text] = None
    user_file: Maybe[Text] = Field(default=None, json_schema_extra=EXTENSION)
    """File with the user's text, relative to this file."""
    assistant: Maybe[str] = None
    """The beginning of the answer, which the model continues (Anthropic)."""

    @model_validator(mode="after")
    def _one_source_each(self) -> PromptConfig:
        if self.user is None and self.user_file is None:
            raise refuse("a user text is missing", "Add `user:` or `userFile:`")
        if self.user is not None and self.user_file is not None:
            raise refuse("`user` and `userFile` exclude each other", "Remove one of them")
        if self.system is not None and self.system_file is not None:
            raise refuse("`system` and `systemFile` exclude each other", "Remove one of them")
        return self


class OutputConfig(Section):
    """What is expected of the final text."""

    format: Literal["text", "json"] = "text"
    schema_file: Maybe[Text] = None
    """JSON Schema that the output must fit, relative to this file. Required with format json."""
    contains: list[str] = []
    not_contains: list[str] = []
    max_length: Maybe[Annotated[int, Field(gt=0), WHOLE]] = None
    """Most characters the output may have."""

    @model_validator(mode="after")
    def _json_needs_a_schema(self) -> OutputConfig:
        if self.format == "json" and self.schema_file is None:
            raise refuse(
                "schemaFile is required when format is json", "Add `schemaFile: ./schema.json`"
            )
        return self


class NamedPattern(Section):
    """A pattern of personal data with a name for reports."""

    name: Text
    pattern: Pattern


class PiiConfig(Section):
    """No personal data in the output."""

    enabled: bool = True
    deny_patterns: list[Pattern] = [
        r"\b\d{3}-\d{2}-\d{4}\b",
        r"\b\d{4}[\s-]?\d{4}[\s-]?\d{4}[\s-]?\d{4}\b",
        r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b",
    ]
    """Replaces the defaults: US social security, credit card, e-mail."""
    custom_patterns: list[NamedPattern] = []


class KeywordsConfig(Section):
    """Words that must, or must not, be in the output; case does not matter."""

    deny: list[str] = []
    allow: list[str] = []
    """At least one of these must be in the output."""


class GuardrailsConfig(Section):
    """What must never happen."""

    pii: Maybe[PiiConfig] = None
    keywords: Maybe[KeywordsConfig] = None


class JudgeConfig(Section):
    """A criterion that a model judges."""

    criteria: Text
    min_score: Score = 0.7
    model: Maybe[str] = None
    """Id of the model that judges this criterion."""
    rubric: Maybe[str] = None


class ToolCallConfig(Section):
    """A tool call that is expected, or must not happen. All that is written holds of one call."""

    tool: Text
    should_not_call: bool = False
    args_match: Maybe[dict[str, Any]] = None
    """Arguments that must be there; more are allowed, at every level."""
    args_schema: Maybe[Text] = None
    """JSON Schema file for the arguments, relative to this file."""
    order: Maybe[Count] = None
    """Position among all tool calls, from 0."""
    response_contains: Maybe[str] = None


class DriftConfig(Section):
    """How far the output may be from the baseline's."""

    max_score: Score = 0.15
    method: Literal["judge", "embedding", "field-diff"] = "judge"
    fields: Maybe[list[str]] = None
    """Paths that field-diff compares, such as `response.action`."""


class BaselineConfig(Section):
    """Comparison with the baseline."""

    drift: Maybe[DriftConfig] = None


class ExpectConfig(Section):
    """What is expected of a conversation."""

    output: Maybe[OutputConfig] = None
    guardrails: Maybe[GuardrailsConfig] = None
    judge: list[JudgeConfig] = []
    tool_calls: list[ToolCallConfig] = []
    baseline: Maybe[BaselineConfig] = None


class ToolAnswerConfig(Section):
    """`then` is the answer to a call whose arguments match `when`."""

    when: dict[str, Any]
    then: Any


class ToolConfig(Section):
    """A simulated tool."""

    name: Text
    description: Maybe[str] = None
    parameters: Maybe[dict[str, Any]] = None
    """JSON Schema of the arguments."""
    responses: list[ToolAnswerConfig] = []
    """The first that matches answers."""
    default_response: Any = None
    """The answer when nothing matches; null is an answer too."""


class TestConfig(Section):
    """One test."""

    __test__ = False

    name: Text
    prompt: Text
    """A key of `prompts`."""
    vars: dict[str, str] = {}
    models: Maybe[list[str]] = None
    """Ids of the models it runs on; all of them by default."""
    repeat: Maybe[Repeat] = None
    tools: list[ToolConfig] = []
    expect: ExpectConfig
    tags: list[str] = []
    skip: bool = False
    pass_rate: Maybe[Score] = Field(default=None, json_schema_extra=EXTENSION)
    """Share of its repeats that must pass."""
    max_turns: Annotated[int, Field(ge=1, le=20), WHOLE] = Field(
        default=10, json_schema_extra=EXTENSION
    )
    """Most model calls in one conversation."""


class GatesConfig(Section):
    """Conditions on the suite as a whole."""

    pass_rate_min: Score = 0.95
    schema_failures_max: Count = 0
    judge_avg_min: Maybe[Score] = None
    drift_score_max: Maybe[Score] = None
    pii_failures_max: Count = 0
    keyword_failures_max: Count = 0
    cost_max_usd: Maybe[Positive] = None
    latency_max_ms: Maybe[Positive] = None


class ComplianceMetadata(Section):
    """What the compliance report says about the system under test."""

    system_name: Maybe[str] = None
    system_version: Maybe[str] = None
    risk_level: Maybe[Literal["high", "limited", "minimal"]] = None
    operator: Maybe[str] = None
    intended_purpose: Maybe[str] = None
    data_governance_notes: Maybe[str] = None


class ComplianceConfig(Section):
    """The compliance report."""

    enabled: bool = False
    framework: Literal["eu-ai-act", "custom"] = "eu-ai-act"
    output_dir: str = "./compliance-reports"
    metadata: Maybe[ComplianceMetadata] = None


class UploadConfig(Section):
    """Uploading of results."""

    enabled: bool = False
    include_artifacts: bool = False
    redact_patterns: list[Pattern] = []
    api_url: Url = "https://api.kindlm.com/v1"


class DefaultsConfig(Section):
    """What holds for every test that does not say otherwise."""

    repeat: Repeat = 1
    concurrency: Annotated[int, Field(ge=1, le=32), WHOLE] = 4
    timeout_ms: Milliseconds = 60_000
    """For one call of a provider."""
    judge_model: Maybe[str] = None
    """Id of the model that judges; the first model by default."""
    retries: Annotated[int, Field(ge=0, le=10), WHOLE] = Field(
        default=2, json_schema_extra=EXTENSION
    )
    """How often a call that failed is tried again."""
    pass_rate: Score = Field(default=1.0, json_schema_extra=EXTENSION)
    execution_timeout_ms: Milliseconds = Field(default=300_000, json_schema_extra=EXTENSION)
    """For one whole conversation."""


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
    env: dict[str, str] = {}
    timeout_ms: Annotated[int, Field(ge=1), WHOLE] = 20_000


class PriceConfig(Section):
    """US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class RecordConfig(Section):
    """What is recorded."""

    redact_pii: bool = False
    raw_bodies: bool = True


class KindlmConfig(Section):
    """A kindlm test suite."""

    kindlm: Annotated[Literal[1], BeforeValidator(not_bool)]
    """Version of this format."""
    project: Text
    suite: SuiteConfig
    providers: Annotated[dict[str, ProviderConfig], Field(min_length=1)]
    models: Annotated[list[ModelConfig], Field(min_length=1, max_length=MAX_MODELS)]
    prompts: Annotated[dict[str, PromptConfig], Field(min_length=1)]
    tests: Annotated[list[TestConfig], Field(min_length=1, max_length=MAX_TESTS)]
    gates: GatesConfig = GatesConfig()
    compliance: Maybe[ComplianceConfig] = None
    upload: UploadConfig = UploadConfig()
    defaults: DefaultsConfig = DefaultsConfig()
    serve: list[ServeConfig] = Field(default=[], json_schema_extra=EXTENSION)
    """Programs to start before the tests."""
    prices: dict[str, PriceConfig] = Field(default={}, json_schema_extra=EXTENSION)
    """Prices by model, beside or instead of the built-in ones."""
    record: RecordConfig = Field(default=RecordConfig(), json_schema_extra=EXTENSION)
