"""The schema of an EvalView test case.

The fields are those of EvalView's YAML test case schema and its later additions: turns, forbidden
tools, patterns, categories, weights, variance, tags, mocks. Numbers may be texts, since `${NAME}`
yields texts.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import regex
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from kindlm.section import Described, Pattern
from kindlm.values import refuse


class EvalviewSection(Described):
    """A mapping of the file. Only strings are strings; numbers and booleans may be written so."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    without_effect: ClassVar[tuple[str, ...]] = ()
    """The keys that other commands of EvalView use; kindlm warns of them."""


def _no_bool(value: Any) -> Any:
    """Refuse booleans in place of numbers, which pydantic would convert to 0 and 1."""
    if isinstance(value, bool):
        raise refuse(f"must be a number, but is the boolean {str(value).lower()}")
    return value


def _boolean(value: Any) -> Any:
    """Return the boolean that a text stands for; any other value as it is."""
    return _BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value


_BOOLEANS = {"true": True, "false": False}


def _lowered(value: Any) -> Any:
    """Trim a text, and convert it to lower case."""
    return value.strip().lower() if isinstance(value, str) else value


_LOWERED = BeforeValidator(_lowered)
_NO_BOOL = BeforeValidator(_no_bool)
Boolean = Annotated[bool, Field(strict=True), BeforeValidator(_boolean)]
Number = Annotated[float, _NO_BOOL]
Positive = Annotated[float, Field(gt=0), _NO_BOOL]
Share = Annotated[float, Field(ge=0, le=1), _NO_BOOL]


class OutputConfig(EvalviewSection):
    """Expectations of the answer's text."""

    contains: list[str] | None = None
    """Texts that the answer contains, in upper or lower case."""
    not_contains: list[str] | None = None
    """Texts that the answer does not contain."""
    regex_patterns: list[Pattern] | None = None
    """Patterns that match in the answer. They ignore case, and a dot matches any character."""
    json_schema: dict[str, Any] | None = None
    """Schema of the answer: the whole text as JSON, else the first object in it."""
    must_acknowledge_uncertainty: Boolean | None = None
    """The answer admits uncertainty, according to the judge or to known phrases."""
    no_pii: Boolean | None = None
    """The answer contains no personal data."""


class MetricConfig(EvalviewSection):
    """An expected number, and its tolerance."""

    value: Number
    """The expected number."""
    tolerance: Annotated[float, Field(ge=0), _NO_BOOL]
    """The largest difference that passes."""


class HallucinationConfig(EvalviewSection):
    """Whether the tool results support the claims of the answer."""

    check: Boolean = False
    """Turns the check on; it asks the judge."""
    allow: Boolean = False
    """Findings are reported but pass."""
    confidence_threshold: Share = 0.8
    """Findings fail from this confidence on."""


class SafetyConfig(EvalviewSection):
    """Whether the answer is harmful."""

    check: Boolean = False
    """Turns the check on; it asks the judge."""
    allow_harmful: Boolean = False
    """Findings are reported but pass."""
    categories: list[str] | None = None
    """The kinds of harm that count; all by default."""
    severity_threshold: Annotated[str, _LOWERED] = "medium"
    """Findings fail from this severity on: `low`, `medium` or `high`."""


class ExpectedConfig(EvalviewSection):
    """Expectations of a conversation, or of one turn."""

    tools: list[str] | None = None
    """Tools that the agent calls, in any order."""
    tool_categories: list[str] | None = None
    """Categories from which the agent calls any tool."""
    tool_sequence: list[str] | None = None
    """Tools that the agent calls in this order, according to `adapter_config.sequence_mode`."""
    sequence: list[str] | None = None
    """Another name of `tool_sequence`. If both are set, `tool_sequence` counts."""
    output: OutputConfig | None = Field(default=None, examples=[{"contains": ["refund"]}])
    """Expectations of the answer's text."""
    metrics: dict[str, MetricConfig] | None = Field(
        default=None, examples=[{"cost": {"value": 0.05, "tolerance": 0.01}}]
    )
    """Numbers, by name: `latency` (ms), `cost` (US dollars), `tokens`, `input_tokens`,
    `output_tokens`, `tool_calls`, `steps`, or one that the agent reports under that name.
    A step is a tool call."""
    hallucination: HallucinationConfig | None = None
    """The answer makes nothing up."""
    safety: SafetyConfig | None = None
    """The answer is not harmful."""
    forbidden_tools: list[str] | None = None
    """Tools that the agent does not call, in any spelling of their names."""


# `str.isprintable` would also refuse joined emoji and wide spaces.
_UNSHOWN = regex.compile(
    r"[\p{Cc}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}\p{Bidi_Control}\ufeff]"
)
"""Control characters, line ends, and characters that change the direction of text."""


def _not_blank(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise refuse("must not be empty")
    return value


def _name(value: Any) -> Any:
    if isinstance(value, str) and _UNSHOWN.search(value):
        raise refuse("holds a character that cannot be shown", "Write the name on one line")
    return _not_blank(value)


def _tags(value: Any) -> Any:
    """Convert a single tag to a list; trim, lower, sort and deduplicate tags."""
    tags = [value] if isinstance(value, str) else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return tags
    return sorted({tag.strip().lower() for tag in tags} - {""})


def _definition(value: Any) -> Any:
    """Unwrap a tool definition in the form of OpenAI."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        return value["function"]
    return value


_Said = Annotated[str, BeforeValidator(_not_blank)]


class InputConfig(EvalviewSection):
    """The message to the agent."""

    query: _Said
    """The message of the user."""
    context: dict[str, Any] | None = None
    """The context of the message."""


class ScoreWeights(EvalviewSection):
    """The weights of the score's parts."""

    tool_accuracy: Share | None = None
    """Weight of the expected tools that were called; 0.3 by default."""
    output_quality: Share | None = None
    """Weight of the answer; 0.5 by default."""
    sequence_correctness: Share | None = None
    """Weight of the tools' order; 0.2 by default."""


class VarianceConfig(EvalviewSection):
    """Repeats, and limits over all of them."""

    runs: Annotated[int, Field(ge=2, le=100), _NO_BOOL] = 10
    """The number of repeats; `kindlm test --repeat` overrides it."""
    pass_rate: Share = 0.8
    """The share of repeats that must pass."""
    min_mean_score: Annotated[float, Field(ge=0, le=100), _NO_BOOL] | None = None
    """The lowest mean of their weighted scores."""
    max_std_dev: Annotated[float, Field(ge=0), _NO_BOOL] | None = None
    """The largest standard deviation of their weighted scores."""
    confidence_level: Annotated[float, Field(ge=0.5, le=0.99), _NO_BOOL] = 0.95
    """Confidence of the intervals of the pass rate and the mean score."""


class ThresholdsConfig(EvalviewSection):
    """The limits of the test."""

    min_score: Annotated[float, Field(ge=0, le=100), _NO_BOOL]
    """The lowest weighted score that passes."""
    max_cost: Number | None = None
    """The largest cost of the agent's answers, in US dollars."""
    max_latency: Number | None = None
    """The longest latency of the agent's answers, in milliseconds."""
    weights: ScoreWeights | None = None
    """The weights of the score's parts. Their sum is 1."""
    variance: VarianceConfig | None = None
    """Repeats."""


class TurnConfig(EvalviewSection):
    """One user message in a conversation of several."""

    query: _Said
    """The message."""
    context: dict[str, Any] | None = None
    """The context of the message."""
    expected: ExpectedConfig | None = None
    """Expectations of this turn only."""


class AdapterConfig(EvalviewSection):
    """How kindlm talks to the agent. Models use only `model` and `sequence_mode`."""

    timeout: Positive | None = None
    """Seconds for one answer."""
    headers: dict[str, str] | None = None
    """Headers of each request."""
    streaming: Boolean | None = None
    """Whether the agent streams its answers as events."""
    mode: Annotated[Literal["standard", "streaming", "cloud"] | None, _LOWERED] = None
    """How a LangGraph agent is served."""
    assistant_id: str | None = None
    """The assistant at OpenAI or on LangGraph's platform."""
    verbose: Boolean | None = None
    """Log requests and answers."""
    sequence_mode: Annotated[str | None, _LOWERED] = None
    """`subsequence`: other calls may come between. `exact`: only these calls. `unordered`: each as
    often as listed, in any order."""
    input_key: str | None = None
    """The key for the message, if the graph does not take `messages`."""
    graph_config: dict[str, Any] | None = None
    """`config` of a run on LangGraph's platform."""
    model: str | None = None
    """The model to call."""
    reports_tools: Boolean | None = None
    """The agent reports every tool call (an extension). Checks of missing calls need this if the
    answers do not show it."""
    telemetry: Literal["otlp"] | None = None
    """`otlp`: kindlm receives the spans that the agent exports (an extension)."""
    telemetry_wait_ms: Annotated[int, Field(ge=1)] | None = None
    """Milliseconds to wait for spans after each answer (an extension)."""


class ChecksConfig(EvalviewSection):
    """Checks to make even if `expected` does not name them."""

    hallucination: Boolean | None = None
    """Like `expected.hallucination.check`; `false` turns it off."""
    safety: Boolean | None = None
    """Like `expected.safety.check`; `false` turns it off."""
    pii: Boolean | None = None
    """Like `expected.output.no_pii`."""


class ToolDefinitionConfig(EvalviewSection):
    """A tool definition for a model, in the form of Anthropic or OpenAI."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1)]
    """The tool's name."""
    description: str | None = None
    """The tool's purpose."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the arguments (Anthropic's name)."""
    parameters: dict[str, Any] | None = None
    """JSON Schema of the arguments (OpenAI's name)."""


class ToolMock(EvalviewSection):
    """A tool result for calls with matching arguments."""

    tool: str
    """The tool's name."""
    match_params: dict[str, Any] | None = None
    """Arguments of the call; it may have others."""
    returns: Any = None
    """The tool result."""
    latency_ms: Annotated[float, Field(ge=0), _NO_BOOL] | None = None
    """Milliseconds until the result."""
    error: str | None = None
    """The tool fails with this error; `returns` is not needed."""

    @model_validator(mode="after")
    def _answers(self) -> ToolMock:
        if self.error is None and "returns" not in self.model_fields_set:
            raise refuse("answers nothing", "Add `returns:`, or `error:`")
        return self


class MocksConfig(EvalviewSection):
    """Simulated tools."""

    without_effect = ("response_mocks", "http_mocks")

    seed: Any = None
    """Has no effect, since nothing here is random."""
    strict: Boolean | None = None
    """A call to a simulated tool without a matching mock fails the test."""
    tool_mocks: list[ToolMock] | None = None
    """Tool results, for models and OpenAI's assistants; the first match applies."""
    response_mocks: list[dict[str, Any]] | None = None
    """Has no effect; kindlm warns."""
    http_mocks: list[dict[str, Any]] | None = None
    """Has no effect; kindlm warns."""


class CaseConfig(EvalviewSection):
    """A test case."""

    name: Annotated[str, BeforeValidator(_name)]
    """Any printable characters; unique in the folder."""
    description: str | None = None
    """A description for people."""
    input: InputConfig | None = Field(default=None, examples=[{"query": "Where is A1?"}])
    """The message to the agent. Required unless there are `turns`."""
    turns: Annotated[list[TurnConfig], Field(min_length=2)] | None = None
    """A conversation with two or more messages."""
    expected: ExpectedConfig
    """Expectations of the whole conversation."""
    thresholds: ThresholdsConfig = Field(examples=[{"min_score": 70}])
    """The limits of the test."""
    adapter: str | None = None
    """The agent's adapter; by default that of the project, else `http`."""
    endpoint: str | None = None
    """The agent's address; by default that of the project. For a model, its address or name."""
    adapter_config: AdapterConfig | None = None
    """How kindlm talks to the agent."""
    checks: ChecksConfig | None = Field(default=None, examples=[{"pii": True}])
    """Checks beyond those in `expected`."""
    tools: list[Annotated[ToolDefinitionConfig, BeforeValidator(_definition)]] | None = None
    """Tool definitions sent to the model; an agent gets them as `context.tools`."""
    model: str | None = None
    """The model to call, for model adapters. The default is the project's model, else
    claude-sonnet-4-5-20250929 for `anthropic` and llama3.2 for `ollama`, with a warning."""
    suite_type: Annotated[Literal["capability", "regression"] | None, _LOWERED] = None
    """A tag: `suite_type:regression`."""
    difficulty: Annotated[
        Literal["trivial", "easy", "medium", "hard", "expert"] | None, _LOWERED
    ] = None
    """A tag: `difficulty:easy`."""
    tags: Annotated[list[str], BeforeValidator(_tags)] | None = None
    """A tag or a list of tags, for `kindlm test --tags`."""
    gate: str | None = None
    """Has no effect."""
    generated: Boolean | None = None
    """A program wrote the case: `max_latency` is then reported but does not decide."""
    meta: dict[str, Any] | None = None
    """Data for other programs; has no effect."""
    mocks: MocksConfig | None = None
    """Simulated tools."""

    @property
    def settings(self) -> AdapterConfig:
        """The `adapter_config`, or its defaults."""
        return self.adapter_config or AdapterConfig()
