"""The schema of kindlm.yaml: names, types, ranges and defaults.

Keys are camelCase in YAML and snake_case here. Unknown keys, nulls and values of another type are
errors, but 3.0 is an integer, since JSON has one kind of number. `references` checks references to
prompts, models and files.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kindlm.config.target_schema import (
    AgentConfig,
    ModelConfig,
    PriceConfig,
    ProviderConfig,
    ServeConfig,
)
from kindlm.config.test_schema import PromptConfig, TestConfig
from kindlm.section import (
    WHOLE,
    Concurrency,
    Count,
    Extension,
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
from kindlm.values import check_no_nul, not_bool

MAX_TESTS = 1_000
MAX_MODELS = 50


class SuiteConfig(Section):
    """Name and tags of the suite."""

    main = "name"

    name: Text = Field(examples=["support"])
    """Name of the suite in reports and baselines. By default that of the file."""
    description: Maybe[str] = Field(default=None, examples=["What the support agent must do"])
    """Description of the suite."""
    tags: list[str] = Field(default=[], examples=[["support"]])
    """Tags of all tests in the suite."""


class GatesConfig(Section):
    """Limits over the whole suite. They decide the exit code."""

    pass_rate_min: Score = Field(default=0.95, examples=[0.9])
    """Minimum share of executions that pass. If you write it, it decides how many failures are
    tolerated."""
    schema_failures_max: Count = Field(default=0, examples=[0])
    """Maximum number of outputs that violate their schema."""
    judge_avg_min: Maybe[Score] = Field(default=None, examples=[0.8])
    """Minimum mean score of all criteria."""
    drift_score_max: Maybe[Score] = Field(default=None, examples=[0.15])
    """Maximum drift of any test."""
    pii_failures_max: Count = Field(default=0, examples=[0])
    """Maximum number of outputs with personal data."""
    keyword_failures_max: Count = Field(default=0, examples=[0])
    """Maximum number of keyword violations."""
    cost_max_usd: Maybe[Positive] = Field(default=None, examples=[2.5])
    """Maximum US dollars for the suite, with judges. Then kindlm makes no further call."""
    latency_max_ms: Maybe[Positive] = Field(default=None, examples=[8000])
    """Maximum mean latency of an execution, in milliseconds."""


class ComplianceMetadata(Section):
    """Details of the system under test, for the compliance report."""

    system_name: Maybe[str] = Field(default=None, examples=["ACME Support Agent"])
    """Name of the system."""
    system_version: Maybe[str] = Field(default=None, examples=["2.1.0"])
    """Tested version."""
    risk_level: Maybe[Literal["high", "limited", "minimal"]] = Field(
        default=None, examples=["limited"]
    )
    """Risk class of the system."""
    operator: Maybe[str] = Field(default=None, examples=["ACME Corp"])
    """Operator of the system."""
    intended_purpose: Maybe[str] = Field(default=None, examples=["Answers order inquiries"])
    """Purpose of the system."""
    data_governance_notes: Maybe[str] = Field(default=None, examples=["No customer data is kept"])
    """How the system handles its data."""


class ComplianceConfig(Section):
    """The compliance report."""

    enabled: bool = Field(default=False, examples=[True])
    """Write the report after a run."""
    framework: Literal["eu-ai-act", "custom"] = Field(default="eu-ai-act", examples=["custom"])
    """Structure of the report. `custom` leaves out the articles, and can have a `template`."""
    template: Extension[Maybe[str]] = Field(default=None, examples=["reports/template.md"])
    """Markdown template with Jinja placeholders, for the framework `custom`: see [Evidence for
    audits](../how-to/compliance.md)."""
    output_dir: Annotated[str, AfterValidator(check_no_nul)] = Field(
        default="./compliance-reports", examples=["reports"]
    )
    """Folder for the reports, relative to this file."""
    metadata: Maybe[ComplianceMetadata] = None
    """Details of the system for the report."""


NO_SERVER = "https://api.kindlm.com/v1"
"""The default of `apiUrl`, which nothing is ever sent to."""


class UploadConfig(Section):
    """Sending runs to the history server of a team."""

    enabled: bool = Field(default=False, examples=[False])
    """Send each run while it goes on, as `kindlm test --push` does. Needs `apiUrl`."""
    include_artifacts: bool = Field(default=False, examples=[False])
    """Also send content: prompts, answers, tool calls. By default, content stays here."""
    redact_patterns: list[Pattern] = Field(default=[], examples=[[r"\bC-\d{6}\b"]])
    """Regular expressions. Content that one of them matches is never sent."""
    api_url: Url = Field(default=NO_SERVER, examples=["https://history.example.com/v1"])
    """Address of your history server. Nothing is sent to the default."""


class DefaultsConfig(Section):
    """Defaults of all tests."""

    repeat: Repeat = Field(default=1, examples=[3])
    """Number of repeats of a test on each of its targets."""
    concurrency: Concurrency = Field(default=4, examples=[8])
    """Number of executions at the same time."""
    timeout_ms: Milliseconds = Field(default=60_000, examples=[30_000])
    """Time limit of one call to a provider, an agent or a command, in milliseconds."""
    judge_model: Maybe[str] = Field(default=None, examples=["judge"])
    """Id of the model that judges. By default the first model."""
    retries: Extension[Annotated[int, Field(ge=0, le=10), WHOLE]] = Field(default=2, examples=[0])
    """Number of retries of a failed call."""
    pass_rate: Extension[Score] = Field(default=1.0, examples=[0.8])
    """Share of a test's repeats that must pass."""
    execution_timeout_ms: Extension[Milliseconds] = Field(default=300_000, examples=[120_000])
    """Time limit of a whole execution, in milliseconds. Waits that a provider asks for do not
    count."""
    strict_tools: Extension[bool] = Field(default=False, examples=[True])
    """A call to a simulated tool must have a matching result and valid arguments."""


class RecordConfig(Section):
    """Settings of the recording."""

    redact_pii: bool = Field(default=False, examples=[True])
    """Redact personal data before it is recorded."""
    raw_bodies: bool = Field(default=True, examples=[False])
    """Record the bodies of answers byte for byte."""


class KindlmConfig(Section):
    """A kindlm test suite."""

    kindlm: Annotated[Literal[1], BeforeValidator(not_bool)] = Field(examples=[1])
    """Version of this format; 1 by default."""
    project: Text = Field(examples=["acme-support"])
    """The project of the suite. By default `project` of kindlm.toml, else the name of the remote
    repository, else that of the folder."""
    suite: SuiteConfig
    """Name of the suite. By default that of the file; for a `kindlm.yaml`, that of its folder."""
    providers: dict[str, ProviderConfig] = Field(
        default={}, examples=[{"openai": {"apiKeyEnv": "OPENAI_API_KEY"}}]
    )
    """How to reach models, by name: a `type`, or a name of your own with a `type`. A type that
    needs no more than its usual key needs no entry."""
    models: Annotated[list[ModelConfig], Field(max_length=MAX_MODELS)] = Field(
        default=[], examples=[[{"id": "gpt", "provider": "openai", "model": "gpt-4o"}]]
    )
    """Models to test, and judges. Required unless the suite tests only agents or commands. `model`
    takes a single one."""
    agents: Extension[Annotated[list[AgentConfig], Field(max_length=MAX_MODELS)]] = Field(
        default=[],
        examples=[[{"id": "shop", "adapter": "http", "endpoint": "http://127.0.0.1:8000/chat"}]],
    )
    """Live agents to test. With agents, a test runs on models only if its `models` names them.
    `agent` takes a single one: `agent: http://localhost:8000/chat`."""
    prompts: dict[str, PromptConfig] = Field(
        default={}, examples=[{"support": {"user": "{{message}}"}}]
    )
    """The messages that begin conversations, by name, for tests without an `input`."""
    tests: Annotated[list[TestConfig], Field(min_length=1, max_length=MAX_TESTS)] = Field(
        examples=[[{"name": "greets", "prompt": "support", "expect": {}}]]
    )
    """The tests."""
    gates: GatesConfig = GatesConfig()
    """Limits over the whole suite. They decide the exit code."""
    compliance: Maybe[ComplianceConfig] = None
    """The compliance report."""
    upload: UploadConfig = UploadConfig()
    """Sending runs to the history server of a team."""
    defaults: DefaultsConfig = DefaultsConfig()
    """Defaults of all tests."""
    serve: Extension[list[ServeConfig]] = Field(default=[])
    """Programs to start before the tests."""
    prices: Extension[dict[str, PriceConfig]] = Field(
        default={}, examples=[{"my-model": {"input": 0.5, "output": 1.5}}]
    )
    """Prices by model, in addition to the built-in ones or instead of them. kindlm looks for the
    model name that the provider reports, else for the one in `models`. For an agent that names no
    model with a price, use its id; for a command, `command`."""
    record: Extension[RecordConfig] = RecordConfig()
    """Settings of the recording."""
