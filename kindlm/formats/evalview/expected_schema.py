"""What an EvalView case expects: of tools, of the answer, of numbers, of what a judge says.

Also what all sections of the format have in common. Numbers may be written as texts, since
`${NAME}` gives texts.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from kindlm.values import refuse


class EvalviewSection(BaseModel):
    """A mapping of the file. Only strings are strings; numbers and booleans may be written so."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def no_bool(value: Any) -> Any:
    """Refuse true and false where a number is meant."""
    # Python takes true for 1.
    if isinstance(value, bool):
        raise refuse(f"must be a number, but is the boolean {str(value).lower()}")
    return value


def _boolean(value: Any) -> Any:
    """Refuse what is neither true nor false, nor one of these as a text."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return value
    raise refuse("must be true or false")


def lowered(value: Any) -> Any:
    """Trim a text, and write it small."""
    return value.strip().lower() if isinstance(value, str) else value


def _metric(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        example = f"{{value: {value:g}, tolerance: {value / 10:g}}}"
        raise refuse("must be a mapping with `value` and `tolerance`", f"Write `{example}`")
    return value


def _output(value: Any) -> Any:
    if isinstance(value, (str, list)):
        raise refuse("must be a mapping", "Write `output: {contains: [...]}`")
    return value


Boolean = Annotated[bool, BeforeValidator(_boolean)]
Number = Annotated[float, BeforeValidator(no_bool)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(no_bool)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(no_bool)]


class OutputConfig(EvalviewSection):
    """What is expected of the text of the answer."""

    contains: list[str] | None = None
    """Texts that the answer holds; upper and lower case are alike."""
    not_contains: list[str] | None = None
    """Texts that it does not hold."""
    regex_patterns: list[str] | None = None
    """Patterns that are found in it: upper and lower case are alike, and a dot is any character."""
    json_schema: dict[str, Any] | None = None
    """What the answer keeps to: all of it as JSON, else the first object in the text."""
    must_acknowledge_uncertainty: Boolean | None = None
    """The answer says that it is not sure: by the words that are known for it, or the judge."""
    no_pii: Boolean | None = None
    """No personal data is in the answer."""


class MetricConfig(EvalviewSection):
    """A number that has to come out, and how far it may be off."""

    value: Number
    """What is expected."""
    tolerance: Annotated[float, Field(ge=0), BeforeValidator(no_bool)]
    """How far it may be off; as far as that passes."""


class HallucinationConfig(EvalviewSection):
    """Whether claims of the answer are held against what tools returned."""

    check: Boolean = False
    """Whether it is checked; the judge is asked."""
    allow: Boolean = False
    """What is found is reported, and passes."""
    confidence_threshold: Share = 0.8
    """From this confidence on, what is found fails."""


class SafetyConfig(EvalviewSection):
    """Whether the answer is looked through for what is harmful."""

    check: Boolean = False
    """Whether it is checked: by patterns, and by the judge."""
    allow_harmful: Boolean = False
    """What is found is reported, and passes."""
    categories: list[str] | None = None
    """The kinds of harm that count; all of them where none is named."""
    severity_threshold: Annotated[str, BeforeValidator(lowered)] = "medium"
    """From this severity on it fails: `low`, `medium` or `high`."""


class ExpectedConfig(EvalviewSection):
    """What is expected of a conversation, or of one turn of it."""

    tools: list[str] | None = None
    """Tools that are called, in any order."""
    tool_categories: list[str] | None = None
    """Categories of which any tool is called."""
    tool_sequence: list[str] | None = None
    """Tools that are called in this order; `adapter_config.sequence_mode` tells how strictly."""
    sequence: list[str] | None = None
    """Another name of `tool_sequence`, which counts where both are there."""
    output: Annotated[OutputConfig | None, BeforeValidator(_output)] = None
    """Of the text of the answer."""
    metrics: dict[str, Annotated[MetricConfig, BeforeValidator(_metric)]] | None = None
    """Numbers, by name: `latency` (ms), `cost` (US dollars), `tokens`, `input_tokens`,
    `output_tokens`, `tool_calls`, `steps`, or one that the agent reports under that name.
    A step is a call of a tool."""
    hallucination: HallucinationConfig | None = None
    """Whether the answer makes something up."""
    safety: SafetyConfig | None = None
    """Whether the answer is harmful."""
    forbidden_tools: list[str] | None = None
    """Tools that are not called, however their names are written."""
