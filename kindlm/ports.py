"""The protocols between rooms, and the values that pass through them.

The engine gets clients, agents, a checker and a recorder that fit these protocols. It imports none
of the modules that implement them.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import field
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    runtime_checkable,
)

from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError, Ok, Raised, Result
from kindlm.outcome import CheckResult
from kindlm.plan import Execution
from kindlm.suite import AgentTarget, Command, Expectation, ModelParams, RecordedAnswer
from kindlm.transcript import (
    Cost,
    FinishReason,
    Message,
    PaidBefore,
    Step,
    ToolCall,
    ToolUse,
    Transcript,
    Usage,
)

if TYPE_CHECKING:
    # A process of a Python agent loads this module, and not the vocabulary of the log.
    from kindlm.events.codec import Payload

T = TypeVar("T")


class Recorder(Protocol):
    """Appends events to the stream of one run."""

    def about(self, subject: str) -> Recorder:
        """Return a recorder for events about `subject`: one attempt of an execution."""

    def record(self, payload: Payload) -> None:
        """Pass an event to the log, which writes it soon."""

    async def durable(self) -> None:
        """Wait until all events recorded so far are on disk."""


class Purpose(StrEnum):
    """Why a model is called. `AGENT` is a call of an agent under test that an observer saw."""

    TEST = "test"
    AGENT = "agent"
    JUDGE = "judge"
    SIMULATE = "simulate"
    DRIFT = "drift"
    GENERATE = "generate"


NO_PARAMETERS = {"type": "object", "properties": {}}
"""What is sent for a tool whose `parameters` are not given."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool definition sent to a model; `parameters` is a JSON Schema of type object."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseSchema:
    """A demand for structured output: the reply is JSON that fits `schema`."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call: the conversation so far, and what the user set for the answer.

    `model` is the name by which the provider knows it. `params` that are None are not set. The
    model may call `tools`; with a `response_schema`, its answer has to be JSON that fits it.
    `timeout_s` covers the whole call, body included.
    """

    model: str
    messages: tuple[Message, ...]
    params: ModelParams
    timeout_s: float
    tools: tuple[ToolDefinition, ...] = ()
    response_schema: ResponseSchema | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """The remaining quota of one of a provider's limits, as it reported it.

    `left` of `limit` requests (or tokens, or another unit) are available until the limit is
    restored in `reset_s` seconds. None is a value that it did not report.
    """

    kind: Literal["requests", "tokens"]
    left: int
    limit: int | None = None
    reset_s: float | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a recorded answer that is given again, and its cost then.

    `call` names the call: execution, attempt and number, such as `k3f9x2ab-17.1/3`. `before` is
    what was paid before it for tries of the call that failed, and at the first call for earlier
    attempts at the execution.
    """

    call: str
    cost: Cost
    before: PaidBefore = PaidBefore()


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The answer of a model.

    With a `response_schema` in the request, `text` is the JSON text, however the provider returns
    it. `raw` is the body as received, if it is kept. `warnings` tell the user about a parameter
    that had to be dropped. `quotas` are the provider's reported limits. Times are in ms. `echo`
    goes into the `Message` of the answer.
    """

    text: str
    raw: str | None
    latency_ms: float
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    reported_cost_usd: float | None = None
    finish_reason: FinishReason | None = None
    model: str | None = None
    warnings: tuple[str, ...] = ()
    quotas: tuple[Quota, ...] = ()
    recorded: Provenance | None = None
    echo: Mapping[str, Any] | None = None


@runtime_checkable
class ModelClient(Protocol):
    """A connection to one provider, shared by all executions of a run."""

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        """Make exactly one request, without retries.

        Errors have the 2xx codes. Their `details` hold `status` (HTTP), `retry_after` (seconds, if
        the provider named them), `retryable` (bool), `quotas` (of the provider's limits) and `body`
        (text, as received). `unpaid` (True, or absent) means that the account has to pay first, so
        that no wait helps. `resend` (True, or absent) means that the same request may be made again
        at once: the provider refused a parameter, or cut off an answer, in a way that the user did
        not ask for, and the client has adapted.
        """

    async def aclose(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vectors of some texts, in order, with the tokens that they took."""

    vectors: tuple[tuple[float, ...], ...]
    latency_ms: float
    usage: Usage = Usage()


class Embedder(Protocol):
    """A model that turns texts into vectors. `provider` is `local` for one that runs here."""

    provider: str
    model: str

    async def embed(self, texts: Sequence[str], timeout_s: float) -> Result[Embedding]:
        """Return the vectors of some texts; errors as those of `ModelClient.complete`."""

    async def aclose(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A tool call with its result; `text` is what the caller gets, after `delay_s`.

    It is the response as JSON, unless the answer is deliberately not JSON.
    """

    use: ToolUse
    text: str
    delay_s: float = 0.0


AnswerTool = Callable[[ToolCall, int], Awaitable[AnsweredCall]]
"""Answers a tool call with a simulated result, and records both.

The number counts the calls to the agent's own tools before this call, for the same message, so that
the record has all calls in order. Calls are answered in order; parallel calls take as long as the
slowest.
"""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One message to an agent under test.

    `messages` is the whole conversation with the new message at its end. `conversation` identifies
    it to agents with a memory. `timeout_s` covers the whole exchange. `context` is additional JSON
    that the test sends with the new message. `answer_tool` answers a tool call of an agent whose
    tools the caller runs; it is None if the test simulates no tools. The reply's `tool_uses`
    include these calls. `headers` are sent with the message, so that the agent's work on it can be
    assigned to this execution.
    """

    conversation: str
    messages: tuple[Message, ...]
    timeout_s: float
    context: Mapping[str, Any] | None = None
    answer_tool: AnswerTool | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The answer of an agent: its text, the tool calls that it reports, and the body as received.

    `reported` are numbers that it reports with its answer, by name. `recorded` is set if the answer
    is from an earlier run; `raw` is then None unless a script may ask for it, and it is still kept.
    `reports_tools` means that the form of the answer has a place for tool calls, even if it is
    empty; if it is None, only an answer with a call shows that. `unseen` says why tool calls may be
    missing although observers observe the agent.
    """

    text: str
    raw: str | None = None
    latency_ms: float = 0.0
    tool_uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    reported_cost_usd: float | None = None
    model: str | None = None
    warnings: tuple[str, ...] = ()
    recorded: Provenance | None = None
    reported: Mapping[str, float] = field(default_factory=dict)
    reports_tools: bool | None = None
    unseen: str | None = None


class ConversationSpoilt(Raised):
    """Reports, at the end of a conversation, that its answers are invalid: `error` says why."""


@runtime_checkable
class Agent(Protocol):
    """An agent under test; one instance holds one conversation, as `async with`."""

    async def __aenter__(self) -> Self:
        """Open what a conversation needs; by default nothing."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it; nothing stays open or running, however the conversation ended.

        Raises `ConversationSpoilt` if it turns out only now that answers were invalid.
        """

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message and wait for the answer.

        Errors have the 2xx codes and the `details` of `ModelClient.complete`. What was spent is in
        `tokens` (read, written), `cost_usd` and `model`.
        """


AgentFactory = Callable[[AgentTarget | Command, Mapping[str, str]], Result[Agent]]
"""Makes an agent for one conversation, or says why it can't: an unknown adapter, a bad option.

The mapping holds environment variables for a program that is started for this conversation."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An observer's record of an agent's work on one message.

    `tool_uses` are in the order of the calls. `missing` says why tool calls may be missing, and
    what to do about it: checks of tools are then undecided. With None, a tool call that is not here
    was not made. `cost` is None if no model call was seen.
    """

    tool_uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    cost: Cost | None = None
    model: str | None = None
    missing: str | None = None


class CallDesk(Protocol):
    """Receives the calls that an observer of one attempt sees; `subject` is such as `17.1`.

    In a replay, `models` has the answers to the calls.
    """

    subject: str
    models: ReplayedModels | None

    def record(self, event: Payload) -> None:
        """Record an event of this attempt."""

    def next_call(self) -> int:
        """Return the number of one more call of this attempt."""

    def price(self, provider: str | None, model: str | None, usage: Usage) -> Cost:
        """Return the cost of a call; see `pricing`."""

    def spend(self, model: str, cost: Cost) -> None:
        """Count the cost of a call against the limits of the run, at once."""

    def is_over(self) -> bool:
        """Return whether no more calls are allowed: a limit is passed, or the run is ending."""

    def leave_unfinished(self) -> None:
        """Note that a call was refused because of `is_over`. The attempt counts as cut off."""

    def waiting(self) -> AbstractContextManager[None]:
        """Pause the deadline of the execution while it waits for others."""

    def paced(self, provider: str) -> AbstractAsyncContextManager[None]:
        """Wait until `--max-rpm` allows a call to a provider; the call ends with the context."""

    def unassigned(self) -> CallDesk:
        """Return the desk for calls of this run that may belong to any attempt."""


class Observation(Protocol):
    """Observes one conversation with an agent from outside."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables for a program that is started for this conversation alone."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers for each message."""

    async def begin(self, call: int) -> None:
        """Begin to observe: a message is about to be sent, as this call of the attempt."""

    async def seen(self) -> Seen:
        """Return the record since the last time, now that the agent answered; it may wait."""

    async def trouble(self) -> str | None:
        """Return why the agent may have failed since `begin`, and the remedy; None if unknown."""

    def close(self) -> str | None:
        """End the observation: the conversation is over, however it ended.

        Return a warning if the agent called tools after its last answer.
        """


class Observer(Protocol):
    """Observes the agents of a run, each conversation separately."""

    def observe(self, target: AgentTarget | Command, desk: CallDesk) -> Observation | None:
        """Return the observation of one conversation; None for an agent that is not observed."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a judging model. `model` is a configured model id, None for the default.

    `boundary` is the random part of the question that fences off its data. Questions that differ
    only in it are the same question. `max_tokens` bounds the answer; `seed` is for providers with
    reproducible answers.
    """

    purpose: Purpose
    system: str
    user: str
    response_schema: ResponseSchema
    model: str | None = None
    boundary: str = ""
    max_tokens: int = 512
    seed: int | None = None


Ask = Callable[[Question], Awaitable[Result[ModelReply]]]

Embed = Callable[[Sequence[str]], Awaitable[Result[tuple[Embedding, str]]]]
"""Embeds texts on behalf of a check; returns the vectors and the name of the model."""


class Aside(Protocol):
    """Runs slow computations without blocking other executions."""

    async def __call__(self, compute: Callable[[], T]) -> T:
        """Return the result of `compute`, or raise its exception."""


async def here(compute: Callable[[], T]) -> T:
    """Run a computation in place; implements `Aside`."""
    return compute()


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The context of a check, besides its expectation and the transcript.

    `earlier` are the results of the expectations before this one. `baseline` is the final text of
    the same test and target in the active baseline: None without one, a 5xx error if it is
    unusable. `turn` is the message that the transcript goes up to, None for a whole conversation. A
    check that asks runs patterns and schemas `aside`. With `now`, a check that can take long is
    evaluated at once.
    """

    ask: Ask
    embed: Embed | None = None
    baseline: Result[str | None] = Ok(None)
    earlier: Sequence[CheckResult] = ()
    turn: int | None = None
    aside: Aside = here
    now: bool = False


class Checker(Protocol):
    """Evaluates expectations; a check that crashes gives an inconclusive result."""

    def evaluate(
        self, expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> CheckResult | Awaitable[CheckResult]:
        """Return the result, to be awaited if the check asks a model or can take long."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a model, with its identity for finding recorded ones: the `fingerprint`.

    The texts of `request` hold no random boundary.
    """

    purpose: Purpose
    provider: str
    fingerprint: str
    request: ModelRequest


@dataclass(frozen=True, slots=True)
class RecordedModelCall:
    """A model call that an agent made, as an observer recorded it.

    `id` names it, such as `k3f9x2ab-17.1/3`; `path` is where it was sent. `body` is the JSON of the
    request without its list of messages, `items` are these, each as JSON. `answer` is the body that
    came back, None if it was purged. `cost_usd` is its cost, `latency_ms` its time. `failure` says
    why it was not answered. `failed` has the costs of failures of the same request: its own and, if
    the answer is given again, earlier ones.
    """

    id: str
    path: str
    body: str | None
    items: tuple[str, ...]
    content_type: str
    answer: str | None
    cost_usd: float | None
    latency_ms: float
    failure: str | None = None
    failed: tuple[tuple[Usage, Cost], ...] = ()


class AnsweredThen(NamedTuple):
    """What an earlier run paid for the answer of an agent to a message, besides the answer itself.

    `before` was paid for failed tries that a replayed answer recorded, and for the first message,
    for earlier attempts. `tries` are the costs of failed tries of the message. `latency_ms` is that
    of the answer, None without one.
    """

    before: PaidBefore
    tries: tuple[PaidBefore, ...] = ()
    latency_ms: float | None = None


class ReplayedModels(Protocol):
    """Gives the recorded model answers of an attempt to an agent whose code runs now.

    `source` is that attempt, such as `k3f9x2ab-17.1`; `warnings` are for the user. `missed` is the
    agent's first request without a recorded answer, as an error.
    """

    source: str
    warnings: Sequence[str]
    missed: KindlmError | None

    def answer(self, path: str, body: Any) -> RecordedModelCall | str:
        """Return the recorded call with the complete answer to a request, or why there is none.

        `path` is the provider and its path, such as `openai/chat/completions`, always without
        `v1/`. `body` is the JSON value of the request, None if the request is not JSON.
        """

    def then(self, message: int, failed: int) -> tuple[PaidBefore, float | None]:
        """Return what was paid besides the answer to a message of the user, and its latency (ms).

        Messages are counted from 0. It was paid for tries that failed then, minus as many as have
        `failed` now, and before the first message for earlier attempts. The latency is None if the
        agent did not answer.
        """


class RecordedAnswers(Protocol):
    """Gives one execution the answers of an earlier run; each of them at most once.

    By default, agents, the models of agents, and MCP servers are called.
    """

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return the recorded answer, or why there is none; None if the model is to be called."""

    def agent(self) -> Agent | None:
        """Return an agent that gives recorded answers; None if the real one is to be called."""
        return None

    def models(self) -> ReplayedModels | None:
        """Return the recorded answers for a real agent's model calls; None if models are called."""
        return None

    def tool_results(self) -> Mapping[str, Sequence[RecordedAnswer]] | None:
        """Return the recorded results of MCP tools, by name; None if servers are called."""
        return None


AnswerSource = Callable[[Execution], RecordedAnswers]
"""Finds the recorded answers for an execution."""


@dataclass(frozen=True, slots=True)
class HeldConversation:
    """A conversation of an earlier run, as it is recorded.

    `source` names the attempt of the execution that held it, such as `k3f9x2ab-17.1`; `messages`
    are those it began with, `calls` is the number of its last call. `error` is what ended it.
    """

    source: str
    transcript: Transcript
    messages: tuple[Message, ...]
    error: KindlmError | None = None
    warnings: tuple[str, ...] = ()
    calls: int = 0
    bodies: tuple[str | None, ...] = ()


TranscriptSource = Callable[[Execution], HeldConversation | str]
"""Finds the conversation of an earlier run for the same test, target and repeat.

A text says why there is none."""


CUT_OFF = KindlmError(
    ErrorCode.ASSERTION_EVAL_ERROR,
    "A message was cut off before its answer arrived.",
    "Let the answer arrive. To limit its time, check `latency`, or set `timeout`.",
)
"""The error of a script that cuts off a message, as with a timeout, and goes on."""


class Stage(Protocol):
    """The access of a script's trial to an agent, and to checks of the conversation.

    Once the trial is over, methods raise `asyncio.CancelledError`, and coroutines never return.
    """

    async def send(self, text: str) -> Result[tuple[Step, str | None]]:
        """Send a message of the user to the agent under test, and return its answer.

        The body of the answer comes with it if it is kept. The call is recorded, priced and retried
        like any other. After an error, or a message that was cut off, the conversation is over, and
        every further message gets the same error.
        """

    def evaluate(self, expectation: Expectation, *, now: bool = False) -> Future[CheckResult]:
        """Check the conversation so far, and record the result.

        Checks that make no call and take no time are done when this returns; with `now`, slow ones
        are, too. The rest runs beside the script, and is awaited before the trial ends.
        """

    def conclude(
        self, expectation: Expectation, finding: Awaitable[CheckResult] | CheckResult
    ) -> Future[CheckResult]:
        """Record a result of the script itself, now or once it is known."""

    async def ask(self, question: Question) -> Result[ModelReply]:
        """Ask a model on behalf of the script; recorded, priced and retried."""

    def record(self, payload: Payload) -> None:
        """Record another event of this trial."""
