"""What may stand in `.evalview/config.yaml`: what the cases of a project have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from kindlm.config.target_schema import ServeConfig
from kindlm.formats.evalview.schema import EvalviewSection, Number, Positive, ScoreWeights

__all__ = ["PACE", "JudgeConfig", "ProjectConfig"]

PACE = ("base_delay", "max_delay", "exponential", "jitter")
"""What EvalView lets users set of `retry`, and kindlm finds out by itself."""


class PricingConfig(EvalviewSection):
    """US dollars for a million tokens."""

    input_per_1m: Annotated[Number, Field(ge=0)]
    output_per_1m: Annotated[Number, Field(ge=0)]
    cached_per_1m: Number | None = None


class ModelConfig(EvalviewSection):
    """The model that agents report, and what it costs."""

    name: str | None = None
    pricing: PricingConfig | None = None


class ScoringConfig(EvalviewSection):
    """How the weighted score is put together."""

    weights: ScoreWeights | None = None


class RetryConfig(EvalviewSection):
    """How often a call that failed is made again; the pace is found by kindlm itself."""

    max_retries: Annotated[int, Field(ge=0, le=10)] | None = None
    base_delay: Any = None
    max_delay: Any = None
    exponential: Any = None
    jitter: Any = None


class JudgeConfig(EvalviewSection):
    """The model that judges. `base_url` is that of a service with the API of OpenAI."""

    provider: str
    model: str
    base_url: str | None = None


def _model(value: Any) -> Any:
    """Take the name of a model for a model of that name."""
    return {"name": value} if isinstance(value, str) else value


class ProjectConfig(EvalviewSection):
    """The configuration of a project. What kindlm has no use for is known, too."""

    adapter: str | None = None
    endpoint: str | None = None
    timeout: Positive | None = None
    headers: dict[str, str] | None = None
    model: Annotated[ModelConfig | None, BeforeValidator(_model)] = None
    scoring: ScoringConfig | None = None
    retry: RetryConfig | None = None
    judge: JudgeConfig | None = None
    tool_categories: dict[str, list[str]] | None = None
    serve: list[ServeConfig] | None = None
    allow_private_urls: Any = None
    budget: Any = None
    ci: Any = None
    diff: Any = None
    monitor: Any = None
