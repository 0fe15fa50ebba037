"""The `expect` section of a test, and of a turn of its conversation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kindlm.personal_data import DEFAULT_PATTERNS
from kindlm.section import (
    EXTENSION,
    WHOLE,
    Count,
    Maybe,
    Open,
    Pattern,
    Positive,
    Score,
    Section,
    Text,
)
from kindlm.values import refuse

MAX_PASSES = 20


class OutputConfig(Section):
    """What is expected of the final text."""

    format: Literal["text", "json"] = Field(default="text", examples=["json"])
    """With `json` the whole text must be JSON that fits `schemaFile`."""
    schema_file: Maybe[Text] = Field(default=None, examples=["schemas/answer.json"])
    """JSON Schema that the output must fit, relative to this file. Required with format json."""
    contains: list[str] = Field(default=[], examples=[["refund", "REF-5678"]])
    """Texts that must all be in the output; case does not matter."""
    not_contains: list[str] = Field(default=[], examples=[["error", "undefined"]])
    """Texts of which none may be in the output or in its normal form; case does not matter."""
    max_length: Maybe[Annotated[int, Field(gt=0), WHOLE]] = Field(default=None, examples=[500])
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

    name: Text = Field(examples=["customer number"])
    """What the report calls it."""
    pattern: Pattern = Field(examples=[r"\bC-\d{6}\b"])
    """Regular expression; case does not matter."""


class PiiConfig(Section):
    """No personal data in the output, nor in the arguments of tool calls."""

    enabled: bool = Field(default=True, examples=[False])
    """`false` switches the check off."""
    deny_patterns: list[Pattern] = Field(
        default=[*DEFAULT_PATTERNS],
        examples=[[r"\b\d{3}-\d{2}-\d{4}\b"]],
    )
    """Replaces the defaults: US social security, credit card, e-mail."""
    custom_patterns: list[NamedPattern] = Field(default=[])
    """Further patterns, with names."""


class KeywordsConfig(Section):
    """Words that must, or must not, be in the output; case does not matter."""

    deny: list[str] = Field(default=[], examples=[["not my problem"]])
    """None of these may be in the output."""
    allow: list[str] = Field(default=[], examples=[["sorry", "apologise"]])
    """At least one of these must be in the output."""


class GuardrailsConfig(Section):
    """What must never happen."""

    pii: Maybe[PiiConfig] = Field(default=None, examples=[{}])
    """No personal data. `pii: {}` checks with the defaults."""
    keywords: Maybe[KeywordsConfig] = None
    """Forbidden and required words."""


class JudgeConfig(Section):
    """A criterion that a model judges, with a score from 0 to 1."""

    criteria: Text = Field(examples=["Confirms the refund and is polite"])
    """What the judge looks at, in plain words."""
    min_score: Score = Field(default=0.7, examples=[0.9])
    """Least score with which it passes."""
    model: Maybe[str] = Field(default=None, examples=["judge"])
    """Id of the model that judges this criterion; `defaults.judgeModel` by default."""
    rubric: Maybe[str] = Field(default=None, examples=["1.0: both. 0.5: one of them. 0: none."])
    """How to score; a general rubric by default."""
    passes: Annotated[int, Field(ge=1, le=MAX_PASSES), WHOLE] = Field(
        default=1, examples=[3], json_schema_extra=EXTENSION
    )
    """How often the judge is asked; the median of its scores counts."""


class CallCountConfig(Section):
    """How many calls are expected: at least `min`, at most `max`."""

    min: Maybe[Count] = Field(default=None, examples=[1])
    """Least number of calls; 1 by default, or 0 with `max: 0` and in a `subset`."""
    max: Maybe[Count] = Field(default=None, examples=[2])
    """Largest number of calls; any number by default."""

    @model_validator(mode="after")
    def _is_a_range(self) -> CallCountConfig:
        if self.min is None and self.max is None:
            raise refuse("holds neither `min` nor `max`", "Add one of them")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise refuse(f"can never hold: min {self.min} is more than max {self.max}")
        return self


class ToolCallConfig(Section):
    """A tool call that is expected, or must not happen. All that is written holds of one call."""

    tool: Text = Field(examples=["lookup_order"])
    """Name of the tool."""
    should_not_call: bool = Field(default=False, examples=[True])
    """The tool must not be called; with `argsMatch`: not with such arguments. A call whose
    arguments are no JSON object leaves that undecided, and so does an agent that does not show that
    it reports its tool calls."""
    args_match: Maybe[dict[str, Any]] = Field(default=None, examples=[{"order_id": "A1"}])
    """Arguments that must be there; more are allowed, at every level."""
    args_schema: Maybe[Text] = Field(default=None, examples=["schemas/lookup.json"])
    """JSON Schema file for the arguments, relative to this file."""
    order: Maybe[Count] = Field(default=None, examples=[0])
    """Position among all tool calls, from 0."""
    response_contains: Maybe[str] = Field(default=None, examples=["delivered"])
    """Text that must be in the tool's answer."""
    before: Maybe[Text] = Field(
        default=None, examples=["issue_refund"], json_schema_extra=EXTENSION
    )
    """Name of a tool that is not called earlier than this; it need not be called at all."""
    after: Maybe[Text] = Field(default=None, examples=["log_in"], json_schema_extra=EXTENSION)
    """Name of a tool that must have been called earlier."""
    count: Maybe[CallCountConfig] = Field(default=None, json_schema_extra=EXTENSION)
    """How many calls are as this entry says; other calls of the tool do not count. By default at
    least one."""

    @model_validator(mode="after")
    def _is_about_another_tool(self) -> ToolCallConfig:
        for key, other in (("before", self.before), ("after", self.after)):
            if other == self.tool:
                raise refuse(f"can never hold: {key} names the tool itself", "Name another tool")
        return self


class TrajectoryCallConfig(Section):
    """A step of a trajectory."""

    tool: Text = Field(examples=["issue_refund"])
    """Name of the tool."""
    args_match: Maybe[dict[str, Any]] = Field(default=None, examples=[{"order_id": "A1"}])
    """Arguments that must be there; more are allowed, at every level."""
    count: Maybe[CallCountConfig] = None
    """How many calls are as this entry says. By default one (`strict`, `unordered`), at least one
    (`in-order`, `superset`), or any number (`subset`)."""


class TrajectoryConfig(Section):
    """The way through the tools as a whole."""

    mode: Literal["strict", "in-order", "unordered", "subset", "superset"] = Field(
        examples=["in-order"]
    )
    """`strict`: the calls are these, in this order. `in-order`: among the calls are these, in this
    order. `unordered`: the calls are these, in any order. `subset`: every call is one of these, any
    number of times. `superset`: among the calls are these, in any order."""
    calls: list[TrajectoryCallConfig]
    """The calls that are compared with those that were made."""


class DriftConfig(Section):
    """How far the output may be from the baseline's."""

    max_score: Score = Field(default=0.15, examples=[0.1])
    """Largest drift that passes: 0 is the same, 1 is something else."""
    method: Literal["judge", "embedding", "field-diff"] = Field(
        default="judge", examples=["field-diff"]
    )
    """`judge`: a model compares. `embedding`: distance of meaning. `field-diff`: share of JSON
    fields that differ."""
    fields: Maybe[list[str]] = Field(default=None, examples=[["response.action"]])
    """Paths that field-diff compares; all fields by default."""


class BaselineConfig(Section):
    """Comparison with the baseline."""

    drift: Maybe[DriftConfig] = None
    """Largest distance from the baseline's answer."""


class LatencyConfig(Section):
    """How long the answers may take."""

    max_ms: Positive = Field(examples=[5000])
    """Most milliseconds for all answers of one conversation together. Waits between retries and
    `delayMs` of simulated tools do not count."""


class CostConfig(Section):
    """What one conversation may cost."""

    max_usd: Annotated[float, Field(ge=0)] = Field(examples=[0.02])
    """Most US dollars, judges not counted. A cost that is not known is not taken for 0."""


class ExpectConfig(Open):
    """What is expected of a conversation."""

    output: Maybe[OutputConfig] = Field(default=None, examples=[{"contains": ["refund"]}])
    """The final text."""
    guardrails: Maybe[GuardrailsConfig] = Field(default=None, examples=[{"pii": {}}])
    """What must never happen. Texts are looked at as they are written and in their normal form:
    NFKC, without invisible characters."""
    judge: list[JudgeConfig] = Field(default=[])
    """Criteria that a model judges."""
    tool_calls: list[ToolCallConfig] = Field(default=[])
    """Calls that are expected, or must not happen."""
    baseline: Maybe[BaselineConfig] = None
    """Comparison with the baseline."""
    trajectory: Maybe[TrajectoryConfig] = Field(default=None, json_schema_extra=EXTENSION)
    """All tool calls, as one way."""
    latency: Maybe[LatencyConfig] = Field(default=None, json_schema_extra=EXTENSION)
    """How long the answers may take."""
    cost: Maybe[CostConfig] = Field(default=None, json_schema_extra=EXTENSION)
    """What the conversation may cost."""
