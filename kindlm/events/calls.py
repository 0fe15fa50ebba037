"""Events of the calls of models and of agents under test."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kindlm.events.base import Authored, Data, Payload
from kindlm.events.messages import MessageData, ToolCallData
from kindlm.events.tools import ToolProblemData
from kindlm.transcript import CostSource, FinishReason

__all__ = [
    "AgentFailed",
    "AgentReplied",
    "AgentSent",
    "AgentToolCallData",
    "CallAnswered",
    "CallFailed",
    "ProviderFailed",
    "ProviderPaced",
    "ProviderRequested",
    "ProviderResponded",
]


class CallAnswered(Payload):
    """What the answers of models and of agents have in common; itself it is never recorded."""

    call: int
    text: Authored
    model: str | None = Field(default=None, alias="gen_ai.response.model")
    input_tokens: int | None = Field(default=None, alias="gen_ai.usage.input_tokens")
    output_tokens: int | None = Field(default=None, alias="gen_ai.usage.output_tokens")
    latency_ms: float
    cost_usd: float | None = None
    cost_source: CostSource = CostSource.UNKNOWN
    recorded_in: str | None = Field(
        default=None,
        description="the call of an earlier run that was answered so (execution.attempt/call):"
        " nobody was called now",
    )
    cost_then_usd: float | None = Field(default=None, description="what that call cost")
    raw: Authored | None = Field(default=None, description="the body as received")
    warnings: list[str] = []


class CallFailed(Payload):
    """What the failures of models and of agents have in common; itself it is never recorded."""

    call: int
    error_code: str
    error_number: int
    status: int | None = Field(
        default=None, description="HTTP status, or the exit code of a command"
    )
    message: Authored
    raw: Authored | None = Field(default=None, description="the body as received, if any")
    latency_ms: float
    retry_in_ms: float | None = None


class ProviderRequested(Payload):
    """A model was called: for a test, or to judge one.

    The whole request is the conversation up to the answer of call `after`, and then `messages`.
    """

    type: Literal["provider.requested"] = "provider.requested"
    purpose: str = Field(description="test, judge, simulate, drift, generate")
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


class ProviderResponded(CallAnswered):
    """A model answered the call of that number."""

    type: Literal["provider.responded"] = "provider.responded"
    tool_calls: list[ToolCallData] = []
    finish_reason: FinishReason | None = Field(default=None, alias="gen_ai.response.finish_reason")


class ProviderFailed(CallFailed):
    """A call of a model failed. `retry_in_ms` is set when the engine tries again."""

    type: Literal["provider.failed"] = "provider.failed"


class ProviderPaced(Payload):
    """The pace towards a provider or an agent changed: calls start at another rate now.

    `calls_per_minute` is null while only the number of calls in flight is limited.
    """

    type: Literal["provider.paced"] = "provider.paced"
    callee: str = Field(description="the name of the provider, or the id of the agent")
    reason: Literal["refused", "quota", "recovered"]
    calls_per_minute: float | None = None
    in_flight: int = Field(description="how many calls may be in flight at once")
    pause_s: float = Field(default=0.0, description="how long no call starts at all")


class AgentSent(Payload):
    """A message was sent to an agent under test."""

    type: Literal["agent.sent"] = "agent.sent"
    agent: str
    adapter: str
    call: int = Field(description="number of the call in its execution, from 1, retries included")
    attempt: int = Field(default=1, description="from 1; the engine's retries count up")
    after: int = Field(description="the call whose answer this continues; 0 for the first messages")
    messages: list[MessageData] = []
    context: Authored | None = Field(
        default=None, description="JSON that was sent along with the message"
    )


class AgentToolCallData(Data):
    """A tool call that an agent made. Its response is JSON, and so are its arguments.

    Arguments that are no JSON object are `malformed`, and there as the agent reported them. Of a
    call that was `simulated`, `tool.called` and `tool.simulated` have told already.
    """

    index: int
    id: str
    name: str
    arguments: Authored
    malformed: bool = False
    response: Authored
    rule: str | None = Field(
        default=None, description="who answered: `agent`, or a rule as in `tool.simulated`"
    )
    simulated: bool = False
    problems: list[ToolProblemData] = []


class AgentReplied(CallAnswered):
    """An agent under test answered the call of that number."""

    type: Literal["agent.replied"] = "agent.replied"
    tool_calls: list[AgentToolCallData] = []
    reported: Authored | None = Field(
        default=None, description="numbers that it told of its answer, by name, as JSON"
    )
    reports_tools: bool | None = Field(
        default=None,
        description="whether the answer shows that the agent reports its tool calls: it holds one,"
        " or its form has a place for them; null in events of earlier versions",
    )


class AgentFailed(CallFailed):
    """A call of an agent failed. `retry_in_ms` is set when the engine tries again."""

    type: Literal["agent.failed"] = "agent.failed"
