"""The event vocabulary: one model for each type of event, in the order they usually happen.

Type strings are stable: they are stored, never renamed. A payload that changes its shape gets a
higher `SCHEMA` and an upcaster; stored events stay as they are. What authors wrote (prompts,
replies, arguments, reasons, configurations) is `Authored`: it is stored once, by reference, and
can be erased; ids, names, numbers and enums are in the event itself. Where OpenTelemetry has a
name for a fact (`gen_ai.…`), the stored key is that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from kindlm.outcome import FailureCode, Outcome, Status
from kindlm.transcript import CostSource, FinishReason, Role, ToolProblemKind
from kindlm_store import HeadOf, NewEvent, RecordedEvent, Text

__all__ = [
    "AgentFailed",
    "AgentReplied",
    "AgentSent",
    "AgentToolCallData",
    "AssertionEvaluated",
    "Authored",
    "BaselineRemoved",
    "BaselineSet",
    "ContentRef",
    "Event",
    "EvidenceData",
    "ExecutionFinished",
    "ExecutionStarted",
    "GateData",
    "GateVerdictData",
    "MessageData",
    "Payload",
    "PlannedTest",
    "ProviderFailed",
    "ProviderRequested",
    "ProviderResponded",
    "RunAborted",
    "RunFinished",
    "RunInterrupted",
    "RunLabelled",
    "RunOptions",
    "RunResumed",
    "RunSealed",
    "RunStarted",
    "SuiteSkipped",
    "SuiteStarted",
    "ToolCallData",
    "ToolCalled",
    "ToolProblemData",
    "ToolSimulated",
    "load_event",
    "new_event",
]


class Data(BaseModel):
    """A part of a payload."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, arbitrary_types_allowed=True
    )


class ContentRef(Data):
    """A text that is stored by reference, as it is read back from the log."""

    ref: str = Field(alias="$ref")


Authored = Text | ContentRef
"""A text that somebody wrote: `Text` when it is recorded, `ContentRef` when it is read back."""


class Payload(Data):
    """What all events have in common: they are immutable and know their type and schema."""

    SCHEMA: ClassVar[int] = 1

    type: str


class GitState(Data):
    """The commit that was tested, and whether the working tree had changes beside it."""

    commit: str
    branch: str | None = None
    dirty: bool = False


class RunOptions(Data):
    """What a run was asked for on the command line; a key that is absent was left to the suites."""

    paths: list[str] = []
    suite: str | None = None
    tests: list[str] = []
    tags: list[str] = []
    models: list[str] = []
    repeat: int | None = None
    gate: str | None = None
    concurrency: int | None = None
    timeout_ms: int | None = None
    failed: bool = False
    fail_fast: bool = False
    shard: str | None = None
    max_cost_usd: float | None = None
    max_rpm: float | None = None


class RunStarted(Payload):
    """A run began. First event of a run's stream."""

    type: Literal["run.started"] = "run.started"
    project: str
    mode: Literal["live", "rescored", "replayed", "settled", "generation", "imported"] = "live"
    planned: int = Field(description="number of executions that the plan holds")
    label: str | None = None
    group: str | None = Field(default=None, description="what the shards of one run share")
    shard: str | None = Field(default=None, description="which shard this is, as `i/n`")
    git: GitState | None = None
    ci: str | None = Field(default=None, description="the CI service that ran it")
    versions: dict[str, str] = Field(description="kindlm, Python and the provider SDKs")
    options: RunOptions | None = Field(default=None, description="what the user asked for")
    source_run: str | None = Field(default=None, description="the run this one was derived from")


class GateData(Data):
    """A gate in force; `written` tells the user's own from defaults."""

    name: str
    threshold: float
    written: bool


class PlannedTest(Data):
    """The identity of a test (case x target), and whether this run selected it."""

    name: str
    target: str
    tags: list[str] = []
    selected: bool = True
    skip: bool = False
    repeat: int = 1
    pass_rate: float = 1.0
    line: int | None = None


class SuiteStarted(Payload):
    """A suite of the run began; holds its configuration as it was resolved."""

    type: Literal["suite.started"] = "suite.started"
    suite: str
    ordinal: int = Field(description="position of the suite in the run, from 0")
    project: str
    front_end: str = Field(description="the format it was written in: kindlm, evalview, scenario")
    path: str
    config_hash: str
    config: Authored
    gates: list[GateData] = Field(description="gates in force, after command-line overrides")
    baseline_run: str | None = None
    tags: list[str] = []
    tests: list[PlannedTest]


class SuiteSkipped(Payload):
    """A suite could not be loaded; nothing of it was called, other suites ran."""

    type: Literal["suite.skipped"] = "suite.skipped"
    suite: str
    ordinal: int
    path: str
    tests: int = Field(description="how many tests it holds, where they could be counted")
    error_code: str
    error_number: int
    message: Authored
    hint: Authored | None = None
    line: int | None = None
    column: int | None = None


class RunResumed(Payload):
    """An interrupted run goes on, in a new process."""

    type: Literal["run.resumed"] = "run.resumed"
    by: str = Field(description="host and process id")
    planned: int = Field(description="number of executions that the plan holds now")
    changed: list[str] = Field(
        default=[], description="suites whose configuration is not that of the run so far"
    )


class RunInterrupted(Payload):
    """A run was stopped before its plan was complete; it can be resumed."""

    type: Literal["run.interrupted"] = "run.interrupted"
    reason: str


class RunAborted(Payload):
    """A run could not go on (budget used up, fatal error); it can be resumed."""

    type: Literal["run.aborted"] = "run.aborted"
    reason: str


class GateVerdictData(Data):
    """What a gate said when the run ended; `actual` is null where nothing was measured."""

    suite: str
    name: str
    threshold: float
    actual: float | None
    passed: bool
    written: bool
    message: str


class RunFinished(Payload):
    """The plan is complete. Holds the verdict as it was told to the user; seals the stream."""

    type: Literal["run.finished"] = "run.finished"
    passed: bool
    exit_code: int
    gates: list[GateVerdictData]
    tests: dict[str, int] = Field(description="number of tests by status")
    executions: dict[str, int] = Field(description="number of executions by status")
    duration_ms: float


class ToolCallData(Data):
    """A tool call that a model asked for. `arguments` is JSON, or the text that was no JSON."""

    id: str
    name: str
    arguments: Authored
    malformed: bool = False


class MessageData(Data):
    """One message that was sent."""

    role: Role
    text: Authored
    tool_calls: list[ToolCallData] = []
    tool_call_id: str | None = None
    prefill: bool = False


class ExecutionStarted(Payload):
    """One execution (test × target × repeat) began, or began anew as a later attempt.

    Subject: the execution. Its first messages are here; requests name what they continue.
    """

    type: Literal["execution.started"] = "execution.started"
    suite: int = Field(description="ordinal of the suite in the run")
    test: str
    target: str
    repeat: int = Field(description="which repeat, from 1")
    attempt: int = Field(description="from 1; a resumed or retried execution has several")
    tags: list[str] = []
    messages: list[MessageData]
    tools: Authored | None = Field(default=None, description="tool definitions as JSON")


class ProviderRequested(Payload):
    """A model was called: for a test, or to judge one.

    The whole request is the conversation up to the answer of call `after`, and then `messages`.
    """

    type: Literal["provider.requested"] = "provider.requested"
    purpose: str = Field(description="test, judge, drift")
    provider: str = Field(alias="gen_ai.provider.name")
    model: str = Field(alias="gen_ai.request.model")
    call: int = Field(description="number of the call in its execution, from 1, retries included")
    attempt: int = Field(default=1, description="from 1; the engine's retries count up")
    fingerprint: str = Field(description="identity of the whole request, without secrets")
    parameters: dict[str, float | int | None] = {}
    stop_sequences: Authored | None = Field(default=None, description="JSON")
    response_schema: str | None = Field(default=None, description="name of the demanded form")
    assertion: int | None = Field(
        default=None, description="index of the assertion that a judge is asked for"
    )
    after: int | None = Field(
        default=None,
        description="the call whose answer this continues; 0 for the first messages of the"
        " execution, null for a question that stands alone",
    )
    messages: list[MessageData] = []


class ProviderResponded(Payload):
    """A model answered the call of that number."""

    type: Literal["provider.responded"] = "provider.responded"
    call: int
    text: Authored
    tool_calls: list[ToolCallData] = []
    finish_reason: FinishReason | None = Field(default=None, alias="gen_ai.response.finish_reason")
    model: str | None = Field(default=None, alias="gen_ai.response.model")
    input_tokens: int | None = Field(default=None, alias="gen_ai.usage.input_tokens")
    output_tokens: int | None = Field(default=None, alias="gen_ai.usage.output_tokens")
    latency_ms: float
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    raw: Authored | None = Field(default=None, description="the body as received")
    warnings: list[str] = []


class ProviderFailed(Payload):
    """A call of a model failed. `retry_in_ms` is set when the engine tries again."""

    type: Literal["provider.failed"] = "provider.failed"
    call: int
    error_code: str
    error_number: int
    status: int | None = Field(default=None, description="HTTP status")
    message: Authored
    raw: Authored | None = Field(default=None, description="the body as received, if any")
    latency_ms: float
    retry_in_ms: float | None = None


class ToolCalled(Payload):
    """The model under test called a simulated tool."""

    type: Literal["tool.called"] = "tool.called"
    index: int = Field(description="position among the tool calls of the execution, from 0")
    call: int = Field(description="the call whose answer asked for it")
    name: str = Field(alias="gen_ai.tool.name")
    call_id: str = Field(alias="gen_ai.tool.call.id")
    arguments: Authored


class ToolProblemData(Data):
    """What was wrong with a call of a simulated tool."""

    kind: ToolProblemKind
    message: Authored


class ToolSimulated(Payload):
    """A simulated tool answered."""

    type: Literal["tool.simulated"] = "tool.simulated"
    index: int
    call_id: str = Field(alias="gen_ai.tool.call.id")
    rule: str = Field(description="responses[n], cassette, defaultResponse, or unknown tool")
    response: Authored
    problems: list[ToolProblemData] = []


class AgentSent(Payload):
    """A message was sent to an agent under test."""

    type: Literal["agent.sent"] = "agent.sent"
    agent: str
    adapter: str
    call: int = Field(description="number of the call in its execution, from 1, retries included")
    attempt: int = Field(default=1, description="from 1; the engine's retries count up")
    after: int = Field(description="the call whose answer this continues; 0 for the first messages")
    messages: list[MessageData] = []


class AgentToolCallData(Data):
    """A tool call that an agent reports. Arguments and response are JSON."""

    index: int
    id: str
    name: str
    arguments: Authored
    response: Authored


class AgentReplied(Payload):
    """An agent under test answered the call of that number."""

    type: Literal["agent.replied"] = "agent.replied"
    call: int
    text: Authored
    tool_calls: list[AgentToolCallData] = []
    model: str | None = Field(default=None, alias="gen_ai.response.model")
    input_tokens: int | None = Field(default=None, alias="gen_ai.usage.input_tokens")
    output_tokens: int | None = Field(default=None, alias="gen_ai.usage.output_tokens")
    latency_ms: float
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    raw: Authored | None = Field(default=None, description="the body as received")
    warnings: list[str] = []


class AgentFailed(Payload):
    """A call of an agent failed. `retry_in_ms` is set when the engine tries again."""

    type: Literal["agent.failed"] = "agent.failed"
    call: int
    error_code: str
    error_number: int
    status: int | None = Field(default=None, description="HTTP status or exit code")
    message: Authored
    raw: Authored | None = Field(default=None, description="the body as received, if any")
    latency_ms: float
    retry_in_ms: float | None = None


class EvidenceData(Data):
    """Where a finding is: characters [start, end) of a text of the transcript."""

    source: str
    start: int
    end: int
    name: str | None = None
    excerpt: str | None = None


class AssertionEvaluated(Payload):
    """One assertion was evaluated."""

    type: Literal["assertion.evaluated"] = "assertion.evaluated"
    index: int = Field(description="position among the assertions of the execution, from 0")
    kind: str = Field(alias="gen_ai.evaluation.name")
    label: str
    outcome: Outcome = Field(alias="gen_ai.evaluation.score.label")
    score: float | None = Field(default=None, alias="gen_ai.evaluation.score.value")
    threshold: float | None = None
    failure_code: FailureCode | None = None
    message: Authored | None = None
    expected: Authored | None = Field(default=None, description="JSON")
    actual: Authored | None = Field(default=None, description="JSON")
    evidence: list[EvidenceData] = []
    reasoning: Authored | None = Field(default=None, alias="gen_ai.evaluation.explanation")
    trace: Authored | None = Field(default=None, description="traceback of a check that crashed")
    duration_ms: float = 0.0
    line: int | None = Field(default=None, description="line of the file that asked for it")
    turn: int | None = Field(
        default=None, description="it looked at the conversation up to this message of the user"
    )


class ExecutionFinished(Payload):
    """One execution ended. Once this is on disk, it is never run again."""

    type: Literal["execution.finished"] = "execution.finished"
    status: Status
    error_code: str | None = None
    error_number: int | None = None
    error: Authored | None = None
    hint: str | None = None
    trace: Authored | None = Field(default=None, description="traceback of a crash")
    output: Authored | None = None
    answers: int = Field(default=0, description="answers of the target, tool rounds included")
    latency_ms: float = 0.0
    input_tokens: int | None = Field(default=None, alias="gen_ai.usage.input_tokens")
    output_tokens: int | None = Field(default=None, alias="gen_ai.usage.output_tokens")
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    finish_reason: FinishReason | None = Field(default=None, alias="gen_ai.response.finish_reason")
    warnings: list[str] = []


class RunLabelled(Payload):
    """A run was given a name. Journal."""

    type: Literal["run.labelled"] = "run.labelled"
    run: str
    label: str
    by: str


class RunSealed(Payload):
    """A run's stream was sealed; `head` is its last hash. Journal."""

    type: Literal["run.sealed"] = "run.sealed"
    run: str
    head: str | HeadOf


class BaselineSet(Payload):
    """A run was made the baseline of a suite. Journal."""

    type: Literal["baseline.set"] = "baseline.set"
    project: str
    suite: str
    run: str
    label: str | None = None
    by: str


class BaselineRemoved(Payload):
    """A baseline of a suite was removed; the runs stay. Journal."""

    type: Literal["baseline.removed"] = "baseline.removed"
    project: str
    suite: str
    label: str | None = None
    by: str


Event = Annotated[
    RunStarted
    | SuiteStarted
    | SuiteSkipped
    | RunResumed
    | RunInterrupted
    | RunAborted
    | RunFinished
    | ExecutionStarted
    | ProviderRequested
    | ProviderResponded
    | ProviderFailed
    | ToolCalled
    | ToolSimulated
    | AgentSent
    | AgentReplied
    | AgentFailed
    | AssertionEvaluated
    | ExecutionFinished
    | BaselineSet
    | BaselineRemoved
    | RunLabelled
    | RunSealed,
    Field(discriminator="type"),
]
"""Any event, told apart by its `type`."""

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


def new_event(payload: Payload, *, subject: str | None = None) -> NewEvent:
    """Return the event to append for a payload."""
    return NewEvent(
        type=payload.type, data=_stored(payload), schema=payload.SCHEMA, subject=subject
    )


def load_event(recorded: RecordedEvent) -> Event:
    """Return the payload of a stored event; raise `ValidationError` if it is none of ours."""
    return _ADAPTER.validate_python({"type": recorded.type, **recorded.data})


def _stored(payload: Payload) -> dict[str, Any]:
    """Return what is stored of a payload: no type (a column has it), no nulls, no defaults lost."""
    data = _plain(payload)
    del data["type"]
    return data  # type: ignore[no-any-return]


_LEAVES = frozenset({str, int, float, bool, Text, Outcome, Status, CostSource, FinishReason, Role})
"""Types of which most values are, so that one look tells that nothing is to be done."""


def _plain(value: Any) -> Any:
    # Not model_dump: `Text` and `HeadOf` must reach the store as they are.
    if isinstance(value, BaseModel):
        items = value.__dict__
        return {
            stored: item if type(item) in _LEAVES else _plain(item)
            for name, stored in _stored_names(type(value))
            if (item := items[name]) is not None
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


@cache
def _stored_names(model: type[BaseModel]) -> tuple[tuple[str, str], ...]:
    """Return the names of a model's fields, and by which name each is stored."""
    return tuple((name, field.alias or name) for name, field in model.model_fields.items())
