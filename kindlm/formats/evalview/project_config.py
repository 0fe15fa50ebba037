"""What may stand in `.evalview/config.yaml`: what the cases of a project have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from kindlm.config.target_schema import ServeConfig
from kindlm.formats.evalview.case_schema import (
    Boolean,
    EvalviewSection,
    HeadersConfig,
    Number,
    Positive,
    ScoreWeights,
)
from kindlm.values import refuse

PACE = ("base_delay", "max_delay", "exponential", "jitter")
"""What EvalView lets users set of `retry`, and kindlm finds out by itself."""


class PricingConfig(EvalviewSection):
    """US dollars for a million tokens."""

    input_per_1m: Annotated[Number, Field(ge=0)]
    """For what the model reads."""
    output_per_1m: Annotated[Number, Field(ge=0)]
    """For what it writes."""
    cached_per_1m: Number | None = None
    """Has no effect, and gets a warning: what was read from a cache is charged as what is read."""


class ModelConfig(EvalviewSection):
    """The model that agents run, and what it costs. May be its name alone."""

    name: str | None = None
    """Its name. It counts for agents that report none, and adapters of models call it."""
    pricing: PricingConfig | None = None
    """What it costs where agents report tokens and no cost; else the price that is known counts."""

    @model_validator(mode="after")
    def _is_of_a_model(self) -> ModelConfig:
        if self.pricing is not None and not self.name:
            raise refuse("is priced and has no name", "Add `name:`, the model that agents run")
        return self


class ScoringConfig(EvalviewSection):
    """How the weighted score is put together."""

    weights: ScoreWeights | None = None
    """What counts how much. A case may say otherwise."""


class RetryConfig(EvalviewSection):
    """How often a call that failed is made again; the pace is found by kindlm itself."""

    max_retries: Annotated[int, Field(ge=0, le=10)] | None = None
    """How often; 2 by default."""
    base_delay: Any = None
    """Has no effect, and gets a warning."""
    max_delay: Any = None
    """Has no effect, and gets a warning."""
    exponential: Any = None
    """Has no effect, and gets a warning."""
    jitter: Any = None
    """Has no effect, and gets a warning."""


class JudgeConfig(EvalviewSection):
    """The model that judges. Its key is in the variable that is usual for its provider."""

    provider: str
    """`openai`, `anthropic` or `ollama`."""
    model: str
    """Its name."""
    base_url: str | None = None
    """Of a service with the API of its provider."""


def _model(value: Any) -> Any:
    """Take the name of a model for a model of that name."""
    return {"name": value} if isinstance(value, str) else value


class ProjectConfig(EvalviewSection):
    """What the cases of a project have in common. What kindlm has no use for is known, too."""

    adapter: str | None = None
    """How agents are reached; `http` by default."""
    endpoint: str | None = None
    """Where they are."""
    timeout: Positive | None = None
    """Seconds for one answer; 120 by default."""
    headers: HeadersConfig | None = None
    """Headers of each request; those of a case go first."""
    model: Annotated[ModelConfig | None, BeforeValidator(_model)] = None
    """The model behind the agents."""
    scoring: ScoringConfig | None = None
    """The weighted score."""
    retry: RetryConfig | None = None
    """Calls that failed."""
    judge: JudgeConfig | None = None
    """The model that judges; without one nothing is judged."""
    tool_categories: dict[str, list[str]] | None = None
    """Categories of tools, beside those that are built in or instead of them."""
    reports_tools: Boolean | None = None
    """The agents report every tool call that they make: an extension. A case may say otherwise, in
    its `adapter_config`."""
    gateway: Boolean | None = None
    """The agents call their models through kindlm: an extension; see
    [The gateway](../how-to/agents.md#the-gateway)."""
    telemetry: Literal["otlp"] | None = None
    """`otlp`: kindlm receives the spans that the agents export: an extension. A case may say it for
    itself, in its `adapter_config`."""
    telemetry_wait_ms: Annotated[int, Field(ge=1)] | None = None
    """Milliseconds to wait for spans after each answer, 10,000 by default: an extension."""
    serve: list[ServeConfig] | None = None
    """Programs that are started before the cases: an extension. Its keys are those of
    [`serve` in kindlm.yaml](../reference/configuration.md#serve)."""
    allow_private_urls: Any = None
    """Has no effect: agents under test are on this machine more often than not."""
    budget: Any = None
    """Has no effect: `kindlm test --max-cost` stops a run."""
    ci: Any = None
    """Has no effect: `kindlm diff --fail-on` decides."""
    diff: Any = None
    """Has no effect: `kindlm diff` has its own thresholds."""
    monitor: Any = None
    """Has no effect."""
