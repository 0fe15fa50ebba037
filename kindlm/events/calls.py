"""Events of the calls to models, to agents under test, and to simulated tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from kindlm.errors import ErrorCode, KindlmError
from kindlm.events.codec import Payload
from kindlm.stored_form import Authored, AuthoredJson, Form, Key, Meaning, Name
from kindlm.transcript import (
    Cost,
    CostSource,
    FinishReason,
    Message,
    Step,
    ToolCall,
    ToolProblem,
    ToolUse,
    Usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswered(Payload):
    """What the answers of models and of agents have in common; itself it is never recorded."""

    OF_ATTEMPT: ClassVar[bool] = True

    call: int
    text: Authored
    model: Annotated[Name | None, Key("gen_ai.response.model")] = None
    input_tokens: Annotated[int | None, Key("gen_ai.usage.input_tokens")] = None
    output_tokens: Annotated[int | None, Key("gen_ai.usage.output_tokens")] = None
    latency_ms: float
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    recorded_in: Annotated[
        str | None,
        Meaning(
            "the call of an earlier run that was answered so (execution.attempt/call):"
            " nobody was called now"
        ),
    ] = None
    cost_then_usd: Annotated[float | None, Meaning("what that call cost")] = None
    raw: Annotated[Authored | None, Meaning("the body as received")] = None
    warnings: Sequence[str] = ()

    def _step(self, uses: Iterable[ToolUse], **more: Any) -> Step:
        """Return the answer as a step; it costs what it did when it was given first."""
        is_recorded = self.recorded_in is not None
        return Step(
            text=self.text,
            tool_uses=tuple(uses),
            usage=Usage(self.input_tokens, self.output_tokens),
            cost=Cost(self.cost_then_usd if is_recorded else self.cost_usd, self.cost_source),
            latency_ms=self.latency_ms,
            model=self.model,
            recorded=is_recorded,
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed(Payload):
    """What the failures of models and of agents have in common; itself it is never recorded."""

    OF_ATTEMPT: ClassVar[bool] = True

    call: int
    error_code: str
    error_number: int
    status: Annotated[int | None, Meaning("HTTP status, or the exit code of a command")] = None
    message: Authored
    raw: Annotated[Authored | None, Meaning("the body as received, if any")] = None
    latency_ms: float
    retry_in_ms: float | None = None

    @classmethod
    def of(
        cls,
        call: int,
        error: KindlmError,
        latency_ms: float,
        delay_s: float | None,
        *,
        keep_raw: bool,
    ) -> Self:
        """Return the event of a call that ended with an error and is made again after a delay."""
        body = error.details.get("body")
        return cls(
            call=call,
            error_code=error.code.name,
            error_number=error.code.value,
            status=error.details.get("status"),
            message=error.message,
            raw=body if body and keep_raw else None,
            latency_ms=round(latency_ms, 3),
            retry_in_ms=None if delay_s is None else round(delay_s * 1000, 3),
        )

    def failure(self) -> KindlmError:
        """Return the error that a call ended with, as one that is not worth another try."""
        details = {"status": self.status, "retryable": False}
        return KindlmError(ErrorCode.named(self.error_code), self.message, details=details)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequested(Payload):
    """A model was called: for a test, or to judge one.

    The whole request is the conversation up to the answer of call `after`, and then `messages`.
    """

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "provider.requested"
    purpose: Annotated[str, Meaning("test, judge, simulate, drift, generate")]
    provider: Annotated[str, Key("gen_ai.provider.name")]
    model: Annotated[str, Key("gen_ai.request.model")]
    call: Annotated[int, Meaning("number of the call in its execution, from 1, retries included")]
    attempt: Annotated[int, Meaning("which try of this request, from 1")] = 1
    fingerprint: Annotated[str, Meaning("identity of the whole request, without secrets")]
    parameters: Mapping[str, float | int | None] = field(default_factory=dict)
    stop_sequences: Annotated[AuthoredJson | None, Meaning("JSON")] = None
    response_schema: Annotated[str | None, Meaning("name of the demanded form")] = None
    assertion: Annotated[
        int | None, Meaning("index of the assertion that a judge is asked for")
    ] = None
    after: Annotated[
        int | None,
        Meaning(
            "the call whose answer this continues; 0 for the first messages of the"
            " execution, null for a question that stands alone"
        ),
    ] = None
    messages: Sequence[Message] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderResponded(CallAnswered):
    """A model answered the call of that number."""

    type: ClassVar[str] = "provider.responded"
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: Annotated[FinishReason | None, Key("gen_ai.response.finish_reason")] = None

    def step(self, uses: Iterable[ToolUse] = ()) -> Step:
        """Return the answer as a step of the transcript, once its tool calls have results."""
        return self._step(uses, finish_reason=self.finish_reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailed(CallFailed):
    """A call of a model failed. `retry_in_ms` is set when the engine tries again."""

    type: ClassVar[str] = "provider.failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPaced(Payload):
    """The pace towards a provider or an agent changed: calls start at another rate now.

    `calls_per_minute` is null while only the number of calls in flight is limited.
    """

    type: ClassVar[str] = "provider.paced"
    callee: Annotated[Name, Meaning("the name of the provider, or the id of the agent")]
    reason: Literal["refused", "quota", "recovered"]
    calls_per_minute: float | None = None
    in_flight: Annotated[int, Meaning("how many calls may be in flight at once")]
    pause_s: Annotated[float, Meaning("how long no call starts at all")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSent(Payload):
    """A message was sent to an agent under test."""

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "agent.sent"
    agent: str
    adapter: str
    call: Annotated[int, Meaning("number of the call in its execution, from 1, retries included")]
    attempt: Annotated[int, Meaning("which try of this request, from 1")] = 1
    after: Annotated[int, Meaning("the call whose answer this continues; 0 for the first messages")]
    messages: Sequence[Message] = ()
    context: Annotated[
        AuthoredJson | None, Meaning("JSON that was sent along with the message")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolUse:
    """A tool call of an agent. One that was `simulated` has its own `tool.*` events already.

    `index` is its position among the tool calls of the execution, from 0.
    """

    index: int
    use: Annotated[ToolUse, Form.FLAT]
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReplied(CallAnswered):
    """An agent under test answered the call of that number."""

    type: ClassVar[str] = "agent.replied"
    tool_calls: Sequence[AgentToolUse] = ()
    reported: Annotated[
        AuthoredJson, Meaning("numbers that it reported with its answer, by name, as JSON")
    ] = field(default_factory=dict)
    reports_tools: Annotated[
        bool | None,
        Meaning(
            "whether the answer shows that the agent reports its tool calls: it holds one,"
            " or its form has a place for them; null in events of earlier versions"
        ),
    ] = None

    def step(self) -> Step:
        """Return the answer as a step of the transcript."""
        is_unsaid = self.reports_tools is None
        return self._step(
            (placed.use for placed in self.tool_calls),
            reported=self.reported if isinstance(self.reported, dict) else {},
            reports_tools=bool(self.tool_calls) if is_unsaid else self.reports_tools,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFailed(CallFailed):
    """A call of an agent failed. `retry_in_ms` is set when the engine tries again."""

    type: ClassVar[str] = "agent.failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(Payload):
    """The model under test called a simulated tool."""

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "tool.called"
    index: Annotated[int, Meaning("position among the tool calls of the execution, from 0")]
    call: Annotated[int, Meaning("the call whose answer asked for it")]
    name: Annotated[Name, Key("gen_ai.tool.name")]
    call_id: Annotated[Name, Key("gen_ai.tool.call.id")]
    arguments: Authored


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSimulated(Payload):
    """A simulated tool answered."""

    OF_ATTEMPT: ClassVar[bool] = True
    type: ClassVar[str] = "tool.simulated"
    index: int
    call_id: Annotated[Name, Key("gen_ai.tool.call.id")]
    rule: Annotated[
        str,
        Meaning(
            "responses[n], with its fault if it has one, cassette, defaultResponse, or unknown tool"
        ),
    ]
    response: AuthoredJson
    problems: Sequence[ToolProblem] = ()
