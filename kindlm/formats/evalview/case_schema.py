"""What may stand in an EvalView test case.

The fields are those of the YAML test case schema of EvalView, and what its later versions added:
turns, forbidden tools, patterns, categories, weights, variance, tags, mocks. Numbers may be written
as texts, since `${NAME}` gives texts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import regex
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from kindlm.section import Described
from kindlm.values import refuse
from kindlm.wording import shown


class EvalviewSection(Described):
    """A mapping of the file. Only strings are strings; numbers and booleans may be written so."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
    A step is a tool call."""
    hallucination: HallucinationConfig | None = None
    """Whether the answer makes something up."""
    safety: SafetyConfig | None = None
    """Whether the answer is harmful."""
    forbidden_tools: list[str] | None = None
    """Tools that are not called, however their names are written."""


_HEADER = regex.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

# Not all that `str.isprintable` refuses: emoji are joined by formats, and spaces may be wide.
_UNSHOWN = regex.compile(
    r"[\p{Cc}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}\p{Bidi_Control}\ufeff]"
)
"""Characters of control, line ends, and what turns the direction of the text around it."""


def _name(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise refuse("must not be empty")
    if isinstance(value, str) and _UNSHOWN.search(value):
        raise refuse("holds a character that cannot be shown", "Write the name on one line")
    return value


def _query(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise refuse("must not be empty", "Write the question to the agent")
    return value


def _headers(value: Any) -> Any:
    names = value if isinstance(value, dict) else ()
    if (wrong := next((name for name in names if not _HEADER.fullmatch(name)), None)) is not None:
        raise refuse(
            f"contain an invalid header name: {shown(wrong)}",
            "Header names consist of letters, digits and -",
        )
    return value


def _tags(value: Any) -> Any:
    """Take one tag for a list of one; trim, lower and sort them, each once."""
    tags = [value] if isinstance(value, str) else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return tags
    return sorted({tag.strip().lower() for tag in tags} - {""})


def _turns(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1:
        raise refuse("has one message, but needs at least two", "Write a single one as `input`")
    if value == []:
        raise refuse("is empty", "Write the messages of the user, or `input` for a single one")
    return value


def _input(value: Any) -> Any:
    if isinstance(value, str):
        raise refuse("must be a mapping with `query`", "Write `input:`, and below it `query:`")
    return value


def _expected(value: Any) -> Any:
    if value is None:
        raise refuse("is empty", "Write `expected: {}` where nothing but the score is expected")
    return value


def _thresholds(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise refuse("must be a mapping", f"Write `thresholds: {{min_score: {value:g}}}`")
    return value


def _checks(value: Any) -> Any:
    if isinstance(value, list):
        raise refuse("must be a mapping", "Write `checks: {pii: true}`")
    return value


def _definition(value: Any) -> Any:
    """Take a definition of a tool in the form of OpenAI, where all is one level deeper."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        return value["function"]
    return value


_Said = Annotated[str, BeforeValidator(_query)]
_Whole = BeforeValidator(no_bool)


class InputConfig(EvalviewSection):
    """What the agent is asked."""

    query: _Said
    """The message of the user."""
    context: dict[str, Any] | None = None
    """What goes along with it."""


class ScoreWeights(EvalviewSection):
    """The parts of the weighted score; what is not written has its default."""

    tool_accuracy: Share | None = None
    """Of the tools that are expected, and called; 0.3 by default."""
    output_quality: Share | None = None
    """Of the answer; 0.5 by default."""
    sequence_correctness: Share | None = None
    """Of the order of the tools; 0.2 by default."""

    def over(self, defaults: dict[str, float]) -> dict[str, float]:
        """Return the weights that are written, and those of the defaults for the others."""
        written = {
            name: value for name in defaults if (value := getattr(self, name, None)) is not None
        }
        return {**defaults, **written}


class VarianceConfig(EvalviewSection):
    """How often the test runs, and what all its runs have to keep to."""

    runs: Annotated[int, Field(ge=2, le=100), _Whole] = 10
    """How often it runs; `kindlm test --repeat` goes first."""
    pass_rate: Share = 0.8
    """The share of its runs that have to pass."""
    min_mean_score: Annotated[float, Field(ge=0, le=100), _Whole] | None = None
    """The least mean of their weighted scores."""
    max_std_dev: Annotated[float, Field(ge=0), _Whole] | None = None
    """The largest standard deviation of their weighted scores."""
    confidence_level: Annotated[float, Field(ge=0.5, le=0.99), _Whole] = 0.95
    """How sure the intervals of its pass rate and of its mean score are."""


class ThresholdsConfig(EvalviewSection):
    """From where on the test passes."""

    min_score: Annotated[float, Field(ge=0, le=100), BeforeValidator(no_bool)]
    """The least weighted score; it passes, too."""
    max_cost: Number | None = None
    """The most that the answers of the agent may cost, in US dollars."""
    max_latency: Number | None = None
    """The longest that they may take, in milliseconds."""
    weights: ScoreWeights | None = None
    """What counts how much for the weighted score. They total 1."""
    variance: VarianceConfig | None = None
    """Repeats."""


class TurnConfig(EvalviewSection):
    """One message of the user in a conversation of several."""

    query: _Said
    """The message."""
    context: dict[str, Any] | None = None
    """What goes along with it."""
    expected: ExpectedConfig | None = None
    """What is expected of this turn alone."""


HeadersConfig = Annotated[dict[str, str], BeforeValidator(_headers)]


class AdapterConfig(EvalviewSection):
    """How the agent is talked to. For a model only `model` and `sequence_mode` have an effect."""

    timeout: Positive | None = None
    """Seconds for one answer."""
    headers: HeadersConfig | None = None
    """Headers of each request."""
    streaming: Boolean | None = None
    """Whether answers come as a stream of events."""
    mode: Annotated[Literal["standard", "streaming", "cloud"] | None, BeforeValidator(lowered)] = (
        None
    )
    """How a LangGraph agent is reached."""
    assistant_id: str | None = None
    """The assistant of OpenAI, or of LangGraph's platform."""
    verbose: Boolean | None = None
    """Log what is sent and received."""
    sequence_mode: Annotated[str | None, BeforeValidator(lowered)] = None
    """`subsequence`: others may come between. `exact`: these tools and no others. `unordered`:
    each as often as it is written, in any order."""
    input_key: str | None = None
    """Where a graph takes the message, if it takes no messages."""
    graph_config: dict[str, Any] | None = None
    """`config` of a run of LangGraph's platform."""
    model: str | None = None
    """The model that is called."""
    reports_tools: Boolean | None = None
    """The agent reports every tool call that it makes: an extension. Checks of calls that were not
    made need this where its answers do not show it."""
    telemetry: Literal["otlp"] | None = None
    """`otlp`: kindlm receives the spans that the agent exports: an extension."""
    telemetry_wait_ms: Annotated[int, Field(ge=1)] | None = None
    """Milliseconds to wait for spans after each answer: an extension."""


class ChecksConfig(EvalviewSection):
    """Which checks are made although `expected` does not say so."""

    hallucination: Boolean | None = None
    """As `expected.hallucination.check`; `false` turns it off."""
    safety: Boolean | None = None
    """As `expected.safety.check`; `false` turns it off."""
    pii: Boolean | None = None
    """As `expected.output.no_pii`."""


class ToolDefinitionConfig(EvalviewSection):
    """A tool definition for a model, in the form of Anthropic or OpenAI."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1)]
    """What it is called by."""
    description: str | None = None
    """What it does."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of its arguments, as Anthropic calls it."""
    parameters: dict[str, Any] | None = None
    """The same, as OpenAI calls it."""


class ToolMock(EvalviewSection):
    """What a tool answers when its arguments match."""

    tool: str
    """Its name."""
    match_params: dict[str, Any] | None = None
    """Arguments that a call has; it may have others."""
    returns: Any = None
    """The answer."""
    latency_ms: Annotated[float, Field(ge=0), BeforeValidator(no_bool)] | None = None
    """Milliseconds that it takes."""
    error: str | None = None
    """The tool fails with this; no `returns` is needed."""

    @model_validator(mode="after")
    def _answers(self) -> ToolMock:
        if self.error is None and "returns" not in self.model_fields_set:
            raise refuse("answers nothing", "Add `returns:`, or `error:`")
        return self


class MocksConfig(EvalviewSection):
    """What stands in for the world."""

    seed: Any = None
    """Nothing here is left to chance: it has no effect."""
    strict: Boolean | None = None
    """A call that no mock answers fails the test. For tools that are simulated, as `tool_mocks`."""
    tool_mocks: list[ToolMock] | None = None
    """Tool results, for models and for assistants of OpenAI; the first that matches is used."""
    response_mocks: list[dict[str, Any]] | None = None
    """Has no effect, and gets a warning."""
    http_mocks: list[dict[str, Any]] | None = None
    """Has no effect, and gets a warning."""


class CaseConfig(EvalviewSection):
    """A test case."""

    name: Annotated[str, BeforeValidator(_name)]
    """Of any printable characters. No two cases of a folder have the same."""
    description: str | None = None
    """For people."""
    input: Annotated[InputConfig | None, BeforeValidator(_input)] = None
    """What the agent is asked. Required unless there are `turns`."""
    turns: Annotated[list[TurnConfig] | None, BeforeValidator(_turns)] = None
    """A conversation of two messages or more."""
    expected: Annotated[ExpectedConfig, BeforeValidator(_expected)]
    """What is expected of the conversation as a whole."""
    thresholds: Annotated[ThresholdsConfig, BeforeValidator(_thresholds)]
    """From where on the test passes."""
    adapter: str | None = None
    """How the agent is reached; that of the project, else `http`."""
    endpoint: str | None = None
    """Where it is reached; that of the project by default. For a model, its address or its name."""
    adapter_config: AdapterConfig | None = None
    """How the agent is talked to."""
    checks: Annotated[ChecksConfig | None, BeforeValidator(_checks)] = None
    """Checks that `expected` does not speak of."""
    tools: list[Annotated[ToolDefinitionConfig, BeforeValidator(_definition)]] | None = None
    """Tool definitions sent to the model; an agent gets them as `context.tools`."""
    model: str | None = None
    """The model that is called; for adapters of models. Without one it is that of the project, else
    claude-sonnet-4-5-20250929 for `anthropic` and llama3.2 for `ollama`, with a warning."""
    suite_type: Annotated[Literal["capability", "regression"] | None, BeforeValidator(lowered)] = (
        None
    )
    """A tag: `suite_type:regression`."""
    difficulty: Annotated[
        Literal["trivial", "easy", "medium", "hard", "expert"] | None, BeforeValidator(lowered)
    ] = None
    """A tag: `difficulty:easy`."""
    tags: Annotated[list[str], BeforeValidator(_tags)] | None = None
    """A text or a list of them, for `kindlm test --tags`."""
    gate: str | None = None
    """Has no effect here."""
    generated: Boolean | None = None
    """Whether a program wrote the case: then `max_latency` decides nothing, and is reported."""
    meta: dict[str, Any] | None = None
    """For programs; has no effect."""
    mocks: MocksConfig | None = None
    """What stands in for the world."""
