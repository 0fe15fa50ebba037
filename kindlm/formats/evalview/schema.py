"""What may stand in an EvalView test case.

The fields are those of the YAML test case schema of EvalView, and what its later versions added:
turns, forbidden tools, patterns, categories, weights, variance, tags, mocks. Numbers may be written
as texts, since `${NAME}` gives texts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from kindlm.config.values import refuse

__all__ = [
    "AdapterConfig",
    "CaseConfig",
    "EvalviewSection",
    "ExpectedConfig",
    "HeadersConfig",
    "MocksConfig",
    "Number",
    "OutputConfig",
    "Positive",
    "ScoreWeights",
    "ThresholdsConfig",
    "ToolMock",
    "TurnConfig",
]

_TOTAL_TOLERANCE = 0.001


class EvalviewSection(BaseModel):
    """A mapping of the file. Only strings are strings; numbers and booleans may be written so."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def _no_bool(value: Any) -> Any:
    # Python takes true for 1.
    if isinstance(value, bool):
        raise refuse(f"must be a number, but is the boolean {str(value).lower()}")
    return value


def _name(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise refuse("must not be empty")
    if isinstance(value, str) and not value.isprintable():
        raise refuse("holds a character that can not be shown", "Write the name on one line")
    return value


def _tags(value: Any) -> Any:
    """Take one tag for a list of one; trim, lower and sort them, each once."""
    tags = [value] if isinstance(value, str) else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return tags
    return sorted({tag.strip().lower() for tag in tags} - {""})


def _turns(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1:
        raise refuse("has one message, and needs two at least", "Write a single one as `input`")
    if value == []:
        raise refuse("is empty", "Write the messages of the user, or `input` for a single one")
    return value


def _lowered(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _definition(value: Any) -> Any:
    """Take a definition of a tool in the form of OpenAI, where all is one level deeper."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        return value["function"]
    return value


Number = Annotated[float, BeforeValidator(_no_bool)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(_no_bool)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_no_bool)]
_Whole = BeforeValidator(_no_bool)


class InputConfig(EvalviewSection):
    """What the agent is asked."""

    query: str
    context: dict[str, Any] | None = None


class OutputConfig(EvalviewSection):
    """What is expected of the text of the answer."""

    contains: list[str] | None = None
    not_contains: list[str] | None = None
    regex_patterns: list[str] | None = None
    json_schema: dict[str, Any] | None = None
    must_acknowledge_uncertainty: bool | None = None
    no_pii: bool | None = None


class MetricConfig(EvalviewSection):
    """A number that has to come out, and how far it may be off."""

    value: Number
    tolerance: Annotated[float, Field(ge=0), BeforeValidator(_no_bool)]


class HallucinationConfig(EvalviewSection):
    """Whether claims of the answer are held against what tools returned."""

    check: bool = False
    allow: bool = False
    confidence_threshold: Share = 0.8


class SafetyConfig(EvalviewSection):
    """Whether the answer is looked through for what is harmful."""

    check: bool = False
    allow_harmful: bool = False
    categories: list[str] | None = None
    severity_threshold: Annotated[str, BeforeValidator(_lowered)] = "medium"


class ExpectedConfig(EvalviewSection):
    """What is expected of a conversation, or of one turn of it."""

    tools: list[str] | None = None
    tool_categories: list[str] | None = None
    tool_sequence: list[str] | None = None
    sequence: list[str] | None = None
    output: OutputConfig | None = None
    metrics: dict[str, MetricConfig] | None = None
    hallucination: HallucinationConfig | None = None
    safety: SafetyConfig | None = None
    forbidden_tools: list[str] | None = None


class ScoreWeights(EvalviewSection):
    """The parts of the weighted score; what is not written has its default."""

    tool_accuracy: Share | None = None
    output_quality: Share | None = None
    sequence_correctness: Share | None = None

    def over(self, defaults: dict[str, float]) -> dict[str, float]:
        """Return the weights that are written, and those of the defaults for the others."""
        written = {
            name: value for name in defaults if (value := getattr(self, name, None)) is not None
        }
        return {**defaults, **written}

    @staticmethod
    def is_whole(weights: dict[str, float]) -> bool:
        """Tell whether weights total 1."""
        return abs(sum(weights.values()) - 1) <= _TOTAL_TOLERANCE


class VarianceConfig(EvalviewSection):
    """How often the test runs, and what all its runs have to keep to."""

    runs: Annotated[int, Field(ge=2, le=100), _Whole] = 10
    pass_rate: Share = 0.8
    min_mean_score: Annotated[float, Field(ge=0, le=100), _Whole] | None = None
    max_std_dev: Annotated[float, Field(ge=0), _Whole] | None = None
    confidence_level: Annotated[float, Field(ge=0.5, le=0.99), _Whole] = 0.95


class ThresholdsConfig(EvalviewSection):
    """From where on the test passes."""

    min_score: Annotated[float, Field(ge=0, le=100), BeforeValidator(_no_bool)]
    max_cost: Number | None = None
    max_latency: Number | None = None
    weights: ScoreWeights | None = None
    variance: VarianceConfig | None = None


class TurnConfig(EvalviewSection):
    """One message of the user in a conversation of several."""

    query: str
    context: dict[str, Any] | None = None
    expected: ExpectedConfig | None = None


HeadersConfig = dict[str, str]


class AdapterConfig(EvalviewSection):
    """How the agent is talked to."""

    timeout: Positive | None = None
    headers: HeadersConfig | None = None
    streaming: bool | None = None
    mode: Annotated[Literal["standard", "streaming", "cloud"] | None, BeforeValidator(_lowered)] = (
        None
    )
    assistant_id: str | None = None
    verbose: bool | None = None
    sequence_mode: Annotated[str | None, BeforeValidator(_lowered)] = None
    input_key: str | None = None
    graph_config: dict[str, Any] | None = None
    model: str | None = None


class ChecksConfig(EvalviewSection):
    """Which checks are made although `expected` does not say so."""

    hallucination: bool | None = None
    safety: bool | None = None
    pii: bool | None = None


class ToolDefinitionConfig(EvalviewSection):
    """A tool as a model is told of it, in the form of Anthropic or OpenAI."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None


class ToolMock(EvalviewSection):
    """What a tool answers when its arguments match."""

    tool: str
    match_params: dict[str, Any] | None = None
    returns: Any = None
    latency_ms: Annotated[float, Field(ge=0), BeforeValidator(_no_bool)] | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _answers(self) -> ToolMock:
        if self.error is None and "returns" not in self.model_fields_set:
            raise refuse("answers nothing", "Add `returns:`, or `error:`")
        return self


class MocksConfig(EvalviewSection):
    """What stands in for the world."""

    seed: Any = None
    strict: bool | None = None
    tool_mocks: list[ToolMock] | None = None
    response_mocks: list[dict[str, Any]] | None = None
    http_mocks: list[dict[str, Any]] | None = None


class CaseConfig(EvalviewSection):
    """A test case."""

    name: Annotated[str, BeforeValidator(_name)]
    description: str | None = None
    input: InputConfig | None = None
    turns: Annotated[list[TurnConfig] | None, BeforeValidator(_turns)] = None
    expected: ExpectedConfig
    thresholds: ThresholdsConfig
    adapter: str | None = None
    endpoint: str | None = None
    adapter_config: AdapterConfig | None = None
    checks: ChecksConfig | None = None
    tools: list[Annotated[ToolDefinitionConfig, BeforeValidator(_definition)]] | None = None
    model: str | None = None
    suite_type: Annotated[Literal["capability", "regression"] | None, BeforeValidator(_lowered)] = (
        None
    )
    difficulty: Annotated[
        Literal["trivial", "easy", "medium", "hard", "expert"] | None, BeforeValidator(_lowered)
    ] = None
    tags: Annotated[list[str], BeforeValidator(_tags)] | None = None
    gate: str | None = None
    generated: bool | None = None
    meta: dict[str, Any] | None = None
    mocks: MocksConfig | None = None
