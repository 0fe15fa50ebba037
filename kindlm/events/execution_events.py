"""Events of one execution, and the fold of these events into its transcript.

`Conversation` is the fold. Live checks use it, and so do rescored, replayed and cached runs. Pages
and reports read the tables `provider_calls`, `tool_calls` and `agent_spans` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Literal, Self

from kindlm.dataclass import dataclass, replace
from kindlm.errors import ErrorCode, KindlmError
from kindlm.events.codec import OfAttempt, Payload, Stored
from kindlm.outcome import CheckResult, Demands, Outcome, Status
from kindlm.stored_form import Authored, AuthoredJson, Form, Key, Name, Note
from kindlm.suite import Expectation
from kindlm.transcript import (
    SYSTEM_NOT_SENT,
    Cost,
    CostSource,
    FinishReason,
    Message,
    PaidBefore,
    Role,
    Step,
    ToolCall,
    ToolProblem,
    ToolUse,
    Transcript,
    Usage,
)
from kindlm_store.new_event import scrub


class ExecutionStarted(OfAttempt, type="execution.started"):
    """An attempt of an execution (test × target × repeat) began.

    Holds the first messages. Later requests name the call that they continue.
    """

    suite: Annotated[int, "ordinal of the suite in the run"]
    test: str
    target: str
    repeat: Annotated[int, "number of the repeat, from 1"]
    attempt: Annotated[int, "from 1; a resumed or retried execution has several"]
    tags: Sequence[str] = ()
    messages: Sequence[Message]
    tools: Annotated[AuthoredJson | None, "tool definitions as JSON"] = None
    source: Annotated[str | None, "attempt whose conversation is checked again"] = None


class AssertionEvaluated(OfAttempt, type="assertion.evaluated", schema=2):
    """One assertion was evaluated."""

    index: Annotated[int, "position among the assertions of the execution, from 0"]
    result: Annotated[CheckResult, Form.FLAT]
    duration_ms: float = 0.0
    line: Annotated[int | None, "line of the check in its file"] = None
    turn: Annotated[int | None, "the last user message that it checked"] = None
    advisory: Annotated[bool, "it does not affect the result"] = False
    demands: Annotated[Demands | None, "what it demands; absent if it passed, or for safety"] = None
    only_numbers: Annotated[bool, Form.UNSTORED] = False

    @classmethod
    def of(
        cls, result: CheckResult, index: int, expectation: Expectation, *, duration_ms: float
    ) -> Self:
        """Return the event for the result of an expectation."""
        check, demands = expectation.check, None
        is_undecided = result.outcome is Outcome.INCONCLUSIVE
        if check is not None and (is_undecided or result.outcome is Outcome.FAILED):
            demands = None if check.demands is Demands.SAFETY else check.demands
        return cls(
            index=index,
            result=result,
            duration_ms=round(duration_ms, 3),
            line=expectation.where.line if expectation.where else None,
            turn=expectation.turn,
            advisory=expectation.advisory,
            demands=demands,
            # The reason why a check is undecided, such as a crash, may quote an answer.
            only_numbers=check is not None and check.only_numbers and not is_undecided,
        )


class ExecutionFinished(OfAttempt, type="execution.finished", schema=2):
    """An attempt of an execution ended. The execution runs again only with `retried`."""

    status: Status
    error_code: str | None = None
    error_number: int | None = None
    error: Authored | None = None
    hint: str | None = None
    trace: Annotated[Authored | None, "traceback of a crash"] = None
    output: Authored | None = None
    answers: Annotated[int, "answers of the target, tool rounds included"] = 0
    latency_ms: Annotated[float | None, "absent if imported results do not name it"] = None
    input_tokens: Annotated[int | None, Key("gen_ai.usage.input_tokens")] = None
    output_tokens: Annotated[int | None, Key("gen_ai.usage.output_tokens")] = None
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    cost_then_usd: Annotated[float | None, "original cost of recorded answers"] = None
    finish_reason: Annotated[FinishReason | None, Key("gen_ai.response.finish_reason")] = None
    warnings: Sequence[Note] = ()
    score: Annotated[float | None, "weighted mean of decided checks, 0 to 1"] = None
    retried: Annotated[bool, "it did not pass; a later attempt decides"] = False

    @property
    def failure(self) -> KindlmError | None:
        """The error that ended the execution, None without one."""
        if self.error_code is None:
            return None
        code = ErrorCode.named(self.error_code)
        return KindlmError(code, self.error or "", self.hint, trace=self.trace)


RAW_BODY = "raw"
"""The key under which events hold the body of an answer as received.

It is only evidence: if a text of the event is hidden, withheld or erased, so is the body.
"""


class CallAnswered(OfAttempt, schema=2):
    """The common fields of answers of models and agents; this class itself is never recorded."""

    call: int
    text: Authored
    model: Annotated[Name | None, Key("gen_ai.response.model")] = None
    input_tokens: Annotated[int | None, Key("gen_ai.usage.input_tokens")] = None
    output_tokens: Annotated[int | None, Key("gen_ai.usage.output_tokens")] = None
    latency_ms: float
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    recorded_in: Annotated[
        str | None, "the call of an earlier run (execution.attempt/call) that had this answer"
    ] = None
    cost_then_usd: Annotated[
        float | None, "cost of that call; earlier versions added the tries of a judge that failed"
    ] = None
    failed_then_usd: Annotated[float | None, "cost of tries and attempts that failed"] = None
    unknown_then: Annotated[int | None, "number of calls of unknown cost among these"] = None
    raw: Annotated[Authored | None, "the body as received"] = None
    warnings: Sequence[Note] = ()

    def _step(self, uses: Iterable[ToolUse], *, is_recorded: bool, **more: Any) -> Step:
        """Return the answer as a step, with its original cost.

        `is_recorded` means that answers of an earlier run, paid for then, were used.
        """
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


class CallFailed(OfAttempt):
    """The common fields of failed calls to models and agents; this class is never recorded."""

    call: int
    error_code: str
    error_number: int
    status: Annotated[int | None, "HTTP status, or the exit code of a command"] = None
    message: Authored
    raw: Annotated[Authored | None, "the body as received, if any"] = None
    latency_ms: float
    retry_in_ms: float | None = None
    model: Annotated[Name | None, Key("gen_ai.response.model")] = None
    input_tokens: Annotated[int | None, Key("gen_ai.usage.input_tokens")] = None
    output_tokens: Annotated[int | None, Key("gen_ai.usage.output_tokens")] = None
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cost_then_usd: Annotated[float | None, "cost of its tries in an earlier run"] = None
    unknown_then: Annotated[int | None, "number of these calls of unknown cost"] = None

    @classmethod
    def of(
        cls,
        call: int,
        error: KindlmError,
        latency_ms: float,
        delay_s: float | None,
        *,
        keep_raw: bool,
        **spent: Any,
    ) -> Self:
        """Return the event of a failed call.

        `delay_s` is the time until the next try, None without one. `spent` are the fields about the
        cost of the call.
        """
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
            cost_then_usd=error.details.get("cost_then_usd"),
            unknown_then=error.details.get("unknown_then"),
            **spent,
        )

    def failure(self, before: PaidBefore) -> KindlmError:
        """Return the error of the call, not retryable.

        Its details include the cost of the call and of what was paid before it.
        """
        then_usd = (self.cost_usd or 0.0) + (self.cost_then_usd or 0.0)
        unknown = (self.unknown_then or 0) + (self.cost_source is CostSource.UNKNOWN)
        then = before + PaidBefore(then_usd, unknown)
        details = {
            "status": self.status,
            "retryable": False,
            "cost_then_usd": then.usd or None,
            "unknown_then": then.unknown or None,
        }
        return KindlmError(ErrorCode.named(self.error_code), self.message, details=details)


class ProviderRequested(OfAttempt, type="provider.requested"):
    """A model call began: to run or to judge a test, for an embedding, or for a user's message.

    The whole request is the conversation up to the answer to call `after`, and then `messages`.
    """

    purpose: Annotated[str, "test, agent, judge, simulate, drift, generate"]
    provider: Annotated[str, Key("gen_ai.provider.name")]
    model: Annotated[str, Key("gen_ai.request.model")]
    call: Annotated[int, "number of the call in its execution, from 1, retries included"]
    attempt: Annotated[int, "number of the try of this request, from 1"] = 1
    fingerprint: Annotated[str, "identity of the whole request, without secrets"]
    parameters: Mapping[str, float | int | None] = field(default_factory=dict)
    stop_sequences: Annotated[AuthoredJson | None, "JSON"] = None
    response_schema: Annotated[str | None, "name of the demanded schema"] = None
    assertion: Annotated[int | None, "for a judge: index of the assertion"] = None
    after: Annotated[int | None, "0: the first messages; null: an independent question"] = None
    messages: Sequence[Message] = ()
    path: Annotated[str | None, "for a call by an agent: provider and path"] = None
    body: Annotated[Authored | None, "for a call by an agent: without `items`"] = None
    items: Annotated[
        Sequence[Authored], "for a call by an agent: its messages after those of `base`, as JSON"
    ] = ()
    base: Annotated[int | None, "for a call by an agent: the call whose messages come first"] = None


class ProviderResponded(CallAnswered, type="provider.responded"):
    """A model answered a call."""

    tool_calls: Sequence[ToolCall] = ()
    finish_reason: Annotated[FinishReason | None, Key("gen_ai.response.finish_reason")] = None
    content_type: Annotated[str | None, "for a call by an agent"] = None

    def step(self, uses: Iterable[ToolUse] = ()) -> Step:
        """Return the answer as a step of the transcript, once its tool calls have results."""
        is_recorded = self.recorded_in is not None
        return self._step(uses, is_recorded=is_recorded, finish_reason=self.finish_reason)


class ProviderFailed(CallFailed, type="provider.failed"):
    """A model call failed. `retry_in_ms` is set if the engine tries again.

    Tokens and cost are there if an answer reported them that could not be used. If `cost_source` is
    `unknown`, the call cost more, or may have done.
    """


PaceReason = Literal["refused", "quota", "recovered"]
"""Why a pace changed."""


class ProviderPaced(Payload, type="provider.paced"):
    """The pace towards a provider or an agent changed.

    `calls_per_minute` is null if only the number of calls in flight is limited.
    """

    callee: Annotated[Name, "the name of the provider, or the id of the agent"]
    reason: PaceReason
    calls_per_minute: float | None = None
    in_flight: Annotated[int, "limit of calls in flight"]
    pause_s: Annotated[float, "seconds in which no call starts"] = 0.0


class AgentSent(OfAttempt, type="agent.sent"):
    """A message was sent to an agent under test."""

    agent: str
    adapter: str
    call: Annotated[int, "number of the call in its execution, from 1, retries included"]
    attempt: Annotated[int, "number of the try of this request, from 1"] = 1
    after: Annotated[int, "the call whose answer this continues; 0 for the first messages"]
    messages: Sequence[Message] = ()
    context: Annotated[AuthoredJson | None, "JSON sent with the message"] = None


class TracedSpan(Stored):
    """A span of an agent's trace. kindlm cuts texts after 20,000 characters."""

    id: Annotated[str, "16 hexadecimal digits"]
    parent: Annotated[str | None, "the parent span, if it is among these"] = None
    kind: Annotated[str, "chat, tool, agent or other"]
    name: Annotated[Authored, "name of the tool or model, else of the span"]
    start_ms: Annotated[float, "since the start of the first span"]
    duration_ms: float
    failed: bool = False
    message: Annotated[Authored | None, "its status message"] = None
    input: Annotated[Authored | None, "arguments of a tool"] = None
    output: Annotated[Authored | None, "result of a tool, messages of a model"] = None
    input_tokens: Annotated[int | None, Key("gen_ai.usage.input_tokens")] = None
    output_tokens: Annotated[int | None, Key("gen_ai.usage.output_tokens")] = None


class AgentTraced(OfAttempt, type="agent.traced"):
    """Spans of an agent under test arrived, for the message of call `call`.

    They are in tree order: parents before children. `agent.replied` has the tool calls and tokens
    that kindlm read from them.
    """

    call: int
    spans: Sequence[TracedSpan]
    more: Annotated[int, "number of spans that were not recorded"] = 0


class AgentToolUse(Stored):
    """A tool call of an agent. A `simulated` one has its own `tool.*` events.

    `index` is its position among the tool calls of the execution, from 0.
    """

    index: int
    use: Annotated[ToolUse, Form.FLAT]
    simulated: bool = False


class AgentReplied(CallAnswered, type="agent.replied"):
    """An agent under test answered a call."""

    tool_calls: Sequence[AgentToolUse] = ()
    reported: Annotated[AuthoredJson, "numbers in the agent's answer, by name, as JSON"] = field(
        default_factory=dict
    )
    reports_tools: Annotated[
        bool | None, "whether it shows that the agent reports tool calls; null in older events"
    ] = None
    unseen: Annotated[Authored | None, "why observers may have missed calls"] = None
    models_of: Annotated[str | None, "the earlier attempt whose models answered the agent"] = None

    def step(self) -> Step:
        """Return the answer as a step of the transcript."""
        is_unsaid = self.reports_tools is None
        return self._step(
            (placed.use for placed in self.tool_calls),
            is_recorded=self.recorded_in is not None or self.models_of is not None,
            reported=self.reported if isinstance(self.reported, dict) else {},
            reports_tools=bool(self.tool_calls) if is_unsaid else self.reports_tools,
            unseen=self.unseen,
            lacks_system=any(each.startswith(SYSTEM_NOT_SENT) for each in self.warnings),
        )


class AgentFailed(CallFailed, type="agent.failed"):
    """A call to an agent failed. `retry_in_ms` is set if the engine tries again.

    Tokens and cost are there if the agent reported them beside its error, or before it in a stream.
    What kindlm saw of its model calls is not among them.
    """


class ToolCalled(OfAttempt, type="tool.called"):
    """The model or agent under test called a tool that kindlm answers."""

    index: Annotated[int, "position among the tool calls of the execution, from 0"]
    call: Annotated[int, "the call to the model or agent that led to it"]
    name: Annotated[Name, Key("gen_ai.tool.name")]
    call_id: Annotated[Name, Key("gen_ai.tool.call.id")]
    arguments: Authored


class ToolSimulated(OfAttempt, type="tool.simulated"):
    """A simulated tool or a tool of an MCP server returned its result.

    `rule` names the source of the result: `responses[n]` or one of its answers,
    `responses[n].sequence[m]`; `defaultResponse`, `cassette`, or `mcp` for a tool of a server, also
    if its result is recorded. Without a result, it is `no response`, `unknown tool` or
    `malformed arguments`. `, fault: …` follows if the rule has a fault.
    """

    index: int
    call_id: Annotated[Name, Key("gen_ai.tool.call.id")]
    rule: Annotated[str, "source of the result"]
    response: AuthoredJson
    problems: Sequence[ToolProblem] = ()


@dataclass(eq=False)
class Conversation:
    """Folds the events of a conversation with the target into its `transcript` so far.

    Calls to judges are not part of it. The transcript holds texts in the form that is stored.
    """

    transcript: Transcript = Transcript()
    _waiting: ProviderResponded | None = field(default=None, init=False)
    _uses: list[ToolUse] = field(default_factory=list, init=False)

    def add(self, event: Payload) -> None:
        """Add the next event; events without messages, answers or results change nothing."""
        match event:
            # The first message of a scenario comes with its first call. Retries repeat no message.
            case ExecutionStarted() | ProviderRequested(attempt=1) | AgentSent(attempt=1):
                for message in event.messages:
                    if message.role is Role.USER:
                        self.transcript = self.transcript.with_turn(scrub(message.text))
                    elif message.role is Role.SYSTEM:
                        self.transcript = replace(self.transcript, system=scrub(message.text))
            # A blank answer is an error, and no step.
            case ProviderResponded() | AgentReplied() if not (
                event.tool_calls or event.text.strip()
            ):
                self._waiting = None
            case AgentReplied() | ProviderResponded(tool_calls=()):
                self.transcript, self._waiting = self.transcript.with_step(event.step()), None
            case ProviderResponded():
                self._waiting, self._uses = event, []
            case ToolSimulated() if self._waiting is not None:
                asked = self._waiting
                call = asked.tool_calls[len(self._uses)]
                self._uses.append(ToolUse(call, event.response, event.rule, tuple(event.problems)))
                if len(self._uses) == len(asked.tool_calls):
                    self.transcript = self.transcript.with_step(asked.step(self._uses))
                    self._waiting = None
