"""The schema of `.evalview/config.yaml`: the common settings of a project's cases."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from kindlm.config.target_schema import ServeConfig
from kindlm.formats.evalview.case_schema import (
    Boolean,
    EvalviewSection,
    Number,
    Positive,
    ScoreWeights,
)
from kindlm.values import refuse


class PricingConfig(EvalviewSection):
    """Prices in US dollars per million tokens."""

    input_per_1m: Annotated[Number, Field(ge=0)]
    """The price of input."""
    output_per_1m: Annotated[Number, Field(ge=0)]
    """The price of output."""
    cached_per_1m: Annotated[Number, Field(ge=0)] | None = None
    """The price of input that is read from a cache; by default, see
    [costs](../reference/costs.md)."""


class ModelConfig(EvalviewSection):
    """The model that agents use, and its price; or only its name."""

    name: str | None = None
    """Its name, for agents that do not report one. Model adapters call it."""
    pricing: PricingConfig | None = None
    """Its price, if agents report tokens but no cost; by default the known price."""

    @model_validator(mode="after")
    def _is_of_a_model(self) -> ModelConfig:
        if self.pricing is not None and not self.name:
            raise refuse("is priced and has no name", "Add `name:`, the model that agents run")
        return self


class ScoringConfig(EvalviewSection):
    """The weighted score."""

    weights: ScoreWeights | None = None
    """The weights of its parts. A case can override them."""


class RetryConfig(EvalviewSection):
    """Retries of failed calls; kindlm finds the pace by itself."""

    without_effect = ("base_delay", "max_delay", "exponential", "jitter")

    max_retries: Annotated[int, Field(ge=0, le=10)] | None = None
    """The number of retries; 2 by default."""
    base_delay: Any = None
    """Has no effect; kindlm warns."""
    max_delay: Any = None
    """Has no effect; kindlm warns."""
    exponential: Any = None
    """Has no effect; kindlm warns."""
    jitter: Any = None
    """Has no effect; kindlm warns."""


class JudgeConfig(EvalviewSection):
    """The judge. Its key is in the usual variable of its provider."""

    provider: str
    """`openai`, `anthropic` or `ollama`."""
    model: str
    """The model's name."""
    base_url: str | None = None
    """Address of another service with the provider's API."""


_NAME_ALONE = BeforeValidator(lambda it: {"name": it} if isinstance(it, str) else it)


class ProjectConfig(EvalviewSection):
    """The common settings of a project's cases, including those that kindlm does not use."""

    without_effect = ("budget", "ci", "diff")

    adapter: str | None = None
    """The agents' adapter; `http` by default."""
    endpoint: str | None = None
    """The agents' address."""
    timeout: Positive | None = None
    """Seconds for one answer; 120 by default."""
    headers: dict[str, str] | None = None
    """Headers of each request; a case can override them."""
    model: Annotated[ModelConfig | None, _NAME_ALONE] = None
    """The model that agents use."""
    scoring: ScoringConfig | None = None
    """The weighted score."""
    retry: RetryConfig | None = None
    """Retries of failed calls."""
    judge: JudgeConfig | None = None
    """The judge; without one, kindlm judges nothing."""
    tool_categories: dict[str, list[str]] | None = None
    """Categories of tools, which add to the built-in ones or replace them."""
    reports_tools: Boolean | None = None
    """The agents report every tool call (an extension). A case can override it in its
    `adapter_config`."""
    gateway: Boolean | None = None
    """The agents call their models through kindlm (an extension); see
    [The gateway](../how-to/agents.md#the-gateway)."""
    telemetry: Literal["otlp"] | None = None
    """`otlp`: kindlm receives the spans that the agents export (an extension). A case can set it in
    its `adapter_config`."""
    telemetry_wait_ms: Annotated[int, Field(ge=1)] | None = None
    """Milliseconds to wait for spans after each answer, 10,000 by default (an extension)."""
    serve: list[ServeConfig] | None = None
    """Programs to start before the cases (an extension). The keys are those of
    [`serve` in kindlm.yaml](../reference/configuration.md#serve)."""
    allow_private_urls: Any = None
    """Has no effect, since most agents under test run on your machine."""
    budget: Any = None
    """Has no effect; kindlm warns. Use `kindlm test --max-cost`."""
    ci: Any = None
    """Has no effect; kindlm warns. Use `kindlm diff --fail-on`."""
    diff: Any = None
    """Has no effect; kindlm warns. `kindlm diff` has its own thresholds."""
    monitor: Any = None
    """Has no effect."""
