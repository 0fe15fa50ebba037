"""The `expect` section of a test."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kindlm.config.section import WHOLE, Count, Maybe, Pattern, Score, Section, Text
from kindlm.config.values import refuse

__all__ = ["DriftConfig", "ExpectConfig", "GuardrailsConfig", "OutputConfig", "ToolCallConfig"]


class OutputConfig(Section):
    """What is expected of the final text."""

    format: Literal["text", "json"] = "text"
    schema_file: Maybe[Text] = None
    """JSON Schema that the output must fit, relative to this file. Required with format json."""
    contains: list[str] = Field(default=[])
    not_contains: list[str] = Field(default=[])
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
    deny_patterns: list[Pattern] = Field(
        default=[
            r"\b\d{3}-\d{2}-\d{4}\b",
            r"\b\d{4}[\s-]?\d{4}[\s-]?\d{4}[\s-]?\d{4}\b",
            r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b",
        ]
    )
    """Replaces the defaults: US social security, credit card, e-mail."""
    custom_patterns: list[NamedPattern] = Field(default=[])


class KeywordsConfig(Section):
    """Words that must, or must not, be in the output; case does not matter."""

    deny: list[str] = Field(default=[])
    allow: list[str] = Field(default=[])
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
    judge: list[JudgeConfig] = Field(default=[])
    tool_calls: list[ToolCallConfig] = Field(default=[])
    baseline: Maybe[BaselineConfig] = None
