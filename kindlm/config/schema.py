"""The shape of kindlm.yaml: names, types, ranges and defaults.

camelCase in YAML, snake_case here. Strict: unknown keys, nulls where nothing may be empty, and
values of another type are errors; the only leniency is that 3.0 is an integer, since JSON has one
kind of number. What refers to something else (prompts, models, files) is checked in `references`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, model_validator

from kindlm.config.expect_schema import ExpectConfig
from kindlm.config.section import (
    EXTENSION,
    WHOLE,
    Count,
    Maybe,
    Milliseconds,
    Pattern,
    Positive,
    Repeat,
    Score,
    Section,
    Text,
    Url,
)
from kindlm.config.target_schema import ModelConfig, PriceConfig, ProviderConfig, ServeConfig
from kindlm.config.values import not_bool, refuse

__all__ = [
    "ComplianceConfig",
    "GatesConfig",
    "KindlmConfig",
    "PromptConfig",
    "TestConfig",
    "ToolConfig",
]

MAX_TESTS = 1_000
MAX_MODELS = 50


def _with_other_spelling(schema: dict[str, Any]) -> None:
    """Publish `system_prompt_file`, the error specification's name of `systemFile`."""
    properties = schema["properties"]
    properties["system_prompt_file"] = {**properties["systemFile"], "deprecated": True}


class SuiteConfig(Section):
    """What the suite is called."""

    name: Text
    description: Maybe[str] = None
    tags: list[str] = Field(default=[])
    """Every test of the suite has these tags too."""


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
    responses: list[ToolAnswerConfig] = Field(default=[])
    """The first that matches answers."""
    default_response: Any = None
    """The answer when nothing matches; null is an answer too."""


class TestConfig(Section):
    """One test."""

    __test__ = False

    name: Text
    prompt: Text
    """A key of `prompts`."""
    vars: dict[str, str] = Field(default={})
    models: Maybe[list[str]] = None
    """Ids of the models it runs on; all of them by default."""
    repeat: Maybe[Repeat] = None
    tools: list[ToolConfig] = Field(default=[])
    expect: ExpectConfig
    tags: list[str] = Field(default=[])
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
    redact_patterns: list[Pattern] = Field(default=[])
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
