"""The calls of one execution: to models, agents, judges and embedders.

An adapter makes exactly one request. This module retries: each try is an event, and takes a turn at
the pace of its provider or agent. It also counts what all tries cost.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from kindlm.bounds import MAX_RETRY_AFTER_S
from kindlm.dataclass import dataclass, replace
from kindlm.engine import FieldLog
from kindlm.engine.pace import Callee, Pace, Turn
from kindlm.engine.resources import LiveRun, OpenCall
from kindlm.engine.stop import Deadline, Permit
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, broken, error_text
from kindlm.events.codec import Payload
from kindlm.events.execution_events import (
    AgentFailed,
    AgentSent,
    Conversation,
    ProviderFailed,
    ProviderRequested,
    ProviderResponded,
)
from kindlm.plan import Execution
from kindlm.ports import (
    AgentReply,
    Asked,
    Embedding,
    ModelReply,
    ModelRequest,
    Purpose,
    Question,
    RecordedAnswers,
    Recorder,
    ToolDefinition,
)
from kindlm.stored_form import bounded
from kindlm.suite import ModelParams, ModelTarget, SimulatedTool
from kindlm.transcript import Cost, CostSource, Message, PaidBefore, Role, ToolCall, Usage
from kindlm_store.new_event import scrub

T = TypeVar("T", ModelReply, AgentReply, Embedding)

Bill = tuple[str | None, Usage, Cost]
"""What a failed call costs: the model that it names, its tokens, and the amount."""

BASE_DELAY_S = 0.5
MAX_DELAY_S = 30.0
MAX_RESENDS = 5
"""How often a client may ask to repeat a call at once, in addition to the retries."""

_PARAMETERS = ("temperature", "max_tokens", "top_p", "stop_sequences", "seed")

_log = FieldLog(__name__)

_CUT_OFF = KindlmError(
    ErrorCode.PROVIDER_TIMEOUT,
    "The call was cut off before the answer arrived: the execution timed out, or the run stopped.",
)


@dataclass(eq=False, kw_only=True)
class RecordedConversation(Conversation):
    """A conversation whose events are recorded as they happen."""

    recorder: Recorder

    def record(self, event: Payload) -> None:
        """Record an event, then add it to the transcript if recording succeeded."""
        self.recorder.record(event)
        self.add(event)


@dataclass(eq=False, repr=False)  # what it leads to has secrets
class Calls:
    """Makes the calls of one attempt, each when the pace of its callee allows it.

    Each try has a number, counted from `last`: 0, or the last call of an earlier run. `now` is the
    current call. `spent_usd` is the known cost so far. No wait extends beyond the `deadline`. The
    deadline is paused while a call waits for its turn, or for the time that a provider asks for
    (`Retry-After`). The `conversation` with the target is recorded as it goes on.
    """

    run: LiveRun
    execution: Execution
    attempt: int
    answers: RecordedAnswers | None = None
    last: int = 0
    spent_usd: float = 0.0

    def __post_init__(self) -> None:
        run, planned = self.run, self.execution.suite
        self.suite, self._ordinal = planned.suite, planned.ordinal
        self.subject = self.execution.subject(self.attempt)
        self.recorder = run.ports.recorder.about(self.subject)
        self.conversation = RecordedConversation(recorder=self.recorder)
        self.pricing = run.pricing[self._ordinal]
        self.permit = Permit(run.stop, run.budget, self._ordinal)
        self.now = OpenCall(run.ports.clock.monotonic())
        self.timeout_ms = self.execution.case.timeout_ms or self.suite.execution_timeout_ms
        self.deadline = Deadline(self.timeout_ms / 1000, run.ports.clock)

    async def make(
        self,
        callee: Callee | None,
        request: ProviderRequested | AgentSent,
        send: Callable[[], Awaitable[Result[T]]],
        record: Callable[[Payload], None],
        billed: Callable[[KindlmError], Bill | None] = lambda _: None,
    ) -> Result[tuple[int, T]]:
        """Try until there is an answer, a final error, or no retry or time left.

        Return the answer with the number of its call, or the last error. The pace of the `callee`
        limits the tries; None is local work. `request` is the event of a try, without the numbers
        of the call and the try. `send` makes one try; after an error with the detail `resend`,
        there is another one at once, in addition to the retries of the suite. `billed` returns what
        a failed try costs.
        """
        pace = None if callee is None else self.run.paces.get(callee)
        clock, now = self.run.ports.clock, self.now
        now.request, now.pace, now.http_status = request, pace, None
        fields: dict[str, Any]
        if isinstance(request, AgentSent):
            name = request.agent
            fields = {"agent": name}
        else:
            name = request.model
            fields = {"provider": request.provider, "model": name, "purpose": request.purpose}
        retried = resent = 0
        begun = 0.0

        def record_failure(error: KindlmError, delay_s: float | None, bill: Bill | None) -> None:
            """Record a failed try, and count its cost; the next one is due in `delay_s`."""
            spent: dict[str, Any] = {}
            if bill is not None:
                model, usage, cost = bill
                self.spend(model or name, cost)
                spent = {
                    "model": bounded(scrub(model)) if model else None,
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                    "cost_usd": cost.usd,
                    "cost_source": cost.source,
                }
            failed = AgentFailed if isinstance(request, AgentSent) else ProviderFailed
            latency_ms = (clock.monotonic() - begun) * 1000
            keep_raw = self.suite.record_raw_bodies
            event = failed.of(request.call, error, latency_ms, delay_s, keep_raw=keep_raw, **spent)
            record(event)
            about = {"http_status": event.status, "latency_ms": event.latency_ms, **fields}
            about |= {"retry_in_ms": event.retry_in_ms, "code": error.code.name}
            _log.warning("The call failed", call=request.call, **about)

        while True:
            turn = None if pace is None else await self.turn(pace)
            result: Result[T] | None = None
            try:
                await self.permit.to_call(is_answered=pace is None or not pace.is_closed)
                self.last = number = self.last + 1
                request = replace(request, call=number, attempt=retried + resent + 1)
                record(request)
                _log.debug("The call began", **fields, call=number, attempt=request.attempt)
                begun = clock.monotonic()
                try:
                    result = await send()
                except asyncio.CancelledError:
                    record_failure(_CUT_OFF, None, billed(_CUT_OFF))
                    raise
                except Exception as crash:
                    # It is not known how far the call went.
                    record_failure(broken(error_text(crash)), None, (None, Usage(), Cost()))
                    raise
            finally:
                if turn is not None:
                    _report_to_pace(turn, result)
            if isinstance(result, Ok):
                now.request = None
                latency_ms = round(result.value.latency_ms, 3)
                _log.debug("The call was answered", **fields, call=number, latency_ms=latency_ms)
                return Ok((number, result.value))
            error = result.error
            delay_s = self._delay(error, retried, resent)
            record_failure(error, delay_s, billed(error))
            if delay_s is None:
                now.request = None
                return result
            now.http_status, now.retry_at = error.details.get("status"), clock.monotonic() + delay_s
            is_asked_for = bool(error.details.get("retry_after"))
            with self.waiting() if is_asked_for else self.permit.waiting():
                await clock.sleep(delay_s)
            if error.details.get("resend"):
                resent += 1
            else:
                retried += 1

    def _delay(self, error: KindlmError, retried: int, resent: int) -> float | None:
        """Return the seconds until the next try; None if there is none."""
        asked_s = error.details.get("retry_after") or 0.0
        if error.details.get("resend"):
            # A client that asks to resend each time must not be called forever.
            may_try, delay_s = resent < MAX_RESENDS, 0.0
        else:
            may_try = retried < self.suite.retries and asked_s <= MAX_RETRY_AFTER_S
            may_try = may_try and bool(error.details.get("retryable"))
            delay_s = retry_delay(retried, asked_s, random.random())  # noqa: S311
        return delay_s if may_try and (asked_s or self.deadline.leaves(delay_s)) else None

    async def turn(self, pace: Pace) -> Turn:
        """Wait until one more call may start. The deadline is paused meanwhile."""
        reserved = self.run.reserved.get(self.execution.id)
        if reserved is not None and reserved.pace is pace:
            return self.run.reserved.pop(self.execution.id)
        turn = pace.turn_now()
        if turn is not None:
            return turn
        with self.waiting():
            return await pace.turn()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Pause the deadline while the execution waits for others."""
        with self.permit.waiting(), self.deadline.paused():
            yield

    def spend(self, model: str, cost: Cost) -> None:
        """Count what a call cost."""
        self.spent_usd += cost.usd or 0.0
        self.run.budget.spend(self._ordinal, model, cost)

    def answer_facts(
        self,
        number: int,
        reply: ModelReply | AgentReply,
        cost: Cost,
        name: str,
        *,
        counted_usd: float = 0.0,
        paid_before: PaidBefore | None = None,
    ) -> dict[str, Any]:
        """Return the event fields of an answer from a model or an agent, and count its cost.

        The fields are in the form that the store keeps, so that checks see what is recorded. `name`
        is the model's name if the answer has none. An answer from an earlier run costs nothing now;
        its cost then is recorded separately. The same applies with `paid_before`: an earlier run
        paid the `cost`, after it had paid that. `counted_usd` is the part of the cost that is
        counted already.
        """
        recorded = reply.recorded
        if recorded is not None:
            cost, paid_before = recorded.cost, recorded.before
        model = bounded(scrub(reply.model)) if reply.model else None
        now, before = cost, paid_before or PaidBefore()
        if paid_before is None:
            uncounted = cost
            if counted_usd and cost.usd:
                uncounted = replace(cost, usd=max(cost.usd - counted_usd, 0.0))
            self.spend(model or name, uncounted)
        elif recorded is not None or cost.usd is not None:
            now = Cost(0.0)  # if some cost of the earlier run is unknown, the sum is not reliable
        return {
            "call": number,
            "text": scrub(reply.text),
            "model": model,
            "input_tokens": reply.usage.input_tokens,
            "output_tokens": reply.usage.output_tokens,
            "latency_ms": round(reply.latency_ms, 3),
            "cost_usd": now.usd,
            "cost_source": cost.source,
            "recorded_in": recorded.call if recorded else None,
            "cost_then_usd": None if paid_before is None else cost.usd,
            "failed_then_usd": before.usd or None,
            "unknown_then": before.unknown or None,
            # The body is recorded with the original call.
            "raw": reply.raw if self.suite.record_raw_bodies and recorded is None else None,
            "warnings": reply.warnings,
        }

    async def to_model(
        self,
        target: ModelTarget,
        request: ModelRequest,
        purpose: Purpose,
        new: Sequence[Message],
        *,
        after: int | None = None,
        sent: ModelRequest | None = None,
        assertion: int | None = None,
    ) -> Result[tuple[ModelReply, ProviderResponded]]:
        """Call a model, with retries, and record each try. Return the reply and its event.

        The request continues the answer of call `after` with the messages that are `new` since.
        `sent` is what the model gets, if it has random text that is not recorded. `assertion` is
        the index of the assertion that asks. The reply is as received, the event as recorded.
        """
        provider, params = target.provider, request.params
        identity = fingerprint(provider, request)
        given = {name: getattr(params, name) for name in _PARAMETERS}
        asked = ProviderRequested(
            purpose=purpose,
            provider=provider,
            model=request.model,
            call=0,
            fingerprint=identity,
            stop_sequences=given.pop("stop_sequences") or None,
            parameters={name: value for name, value in given.items() if value is not None},
            response_schema=request.response_schema.name if request.response_schema else None,
            assertion=assertion,
            after=after,
            messages=tuple(new),
        )
        record = (self.conversation if purpose is Purpose.TEST else self.recorder).record
        callee = complete = None
        if self.answers is not None:
            recorded = self.answers.answer(Asked(purpose, provider, identity, request))
            complete = None if recorded is None else partial(_given, recorded)
        if complete is None:
            self.run.budget.before_call()
            callee = self.suite.providers[provider]
            client = self.run.clients.get(callee)
            if isinstance(client, Err):
                return client
            complete = partial(client.value.complete, sent or request)
        billed = partial(self._billed, target)
        result = await self.make(callee, asked, complete, record, billed)
        if isinstance(result, Err):
            return result
        number, reply = result.value
        model, asked_for = reply.model or target.model, target.model
        cost = self.pricing.cost(
            provider, model, reply.usage, reply.reported_cost_usd, requested=asked_for
        )
        event = ProviderResponded(
            **self.answer_facts(number, reply, cost, target.model),
            tool_calls=tuple(map(ToolCall.storable, reply.tool_calls)),
            finish_reason=reply.finish_reason,
        )
        record(event)
        return Ok((reply, event))

    def _billed(self, target: ModelTarget, error: KindlmError) -> Bill | None:
        """Return what an unusable answer costs; None if it reports no tokens, as a recorded one."""
        usage = error.details.get("usage")
        if not isinstance(usage, Usage):
            return None
        model = error.details.get("model")
        cost = self.pricing.cost(target.provider, model, usage, requested=target.model)
        return model, usage, cost

    async def ask(self, assertion: int | None, question: Question) -> Result[ModelReply]:
        """Ask a model for an assertion, or for a script if that is None; see `ports.Ask`."""
        target = self.suite.judge(question.model)
        if target is None:
            what = (
                "no model is configured: add `models`, [llm] in kindlm.toml, or EvalView's `judge`."
            )
            return Err(KindlmError(ErrorCode.JUDGE_EVAL_ERROR, what))
        messages: tuple[Message, ...]
        messages = (Message(Role.SYSTEM, question.system), Message(Role.USER, question.user))
        sent = ModelRequest(
            model=target.model,
            messages=messages,
            params=ModelParams(0.0, question.max_tokens, seed=question.seed),
            timeout_s=self.suite.timeout_ms / 1000,
            response_schema=question.response_schema,
        )
        if question.boundary:
            fence = question.boundary
            messages = tuple([replace(m, text=m.text.replace(fence, "")) for m in messages])
        request = replace(sent, messages=messages)
        answered = await self.to_model(
            target, request, question.purpose, messages, sent=sent, assertion=assertion
        )
        if isinstance(answered, Err):
            return answered
        reply, event = answered.value
        return Ok(replace(reply, text=event.text))

    async def embed(
        self, assertion: int, tested: str, texts: Sequence[str]
    ) -> Result[tuple[Embedding, str]]:
        """Embed texts of a target; return the vectors, and the name of the model.

        The call is recorded and priced like any other.
        """
        found = self.run.embedders.get((self._ordinal, tested))
        if isinstance(found, Err):
            return found
        embedder = found.value
        provider, model = embedder.provider, embedder.model
        callee = self.suite.providers.get(provider)
        if callee is not None:
            self.run.budget.before_call()
        messages = tuple([Message(Role.USER, text) for text in texts])
        asked = ProviderRequested(
            purpose=Purpose.DRIFT,
            provider=provider,
            model=model,
            call=0,
            fingerprint=fingerprint(provider, ModelRequest(model, messages, ModelParams(), 0.0)),
            assertion=assertion,
            messages=messages,
        )
        send = partial(embedder.embed, texts, self.suite.timeout_ms / 1000)
        result = await self.make(callee, asked, send, self.recorder.record)
        if isinstance(result, Err):
            return result
        number, embedding = result.value
        usage, cost = Usage(embedding.usage.input_tokens), Cost(0.0, CostSource.COMPUTED)
        if callee is not None:
            # Embedders charge for input only: vectors cost nothing.
            cost = self.pricing.cost(provider, model, replace(usage, output_tokens=0))
        reply = ModelReply("", None, embedding.latency_ms, usage=usage, model=model)
        self.recorder.record(ProviderResponded(**self.answer_facts(number, reply, cost, model)))
        return Ok((embedding, f"{provider}/{model}"))


def fingerprint(provider: str, request: ModelRequest) -> str:
    """Return the identity of a request: the same for the same question, and free of secrets.

    Environment variables in the user's messages count by their reference, not by their value. Ids
    and names of tool calls count in the form that is recorded, since a replayed answer only has
    that form.
    """
    messages: list[list[Any]] = []
    for message in request.messages:
        calls: list[list[Any]] = []
        for call in message.tool_calls:
            arguments = call.arguments if call.malformed is None else call.malformed
            calls.append([bounded(call.id), bounded(call.name), arguments])
        text = message.text if message.written is None else message.written
        answers = None if message.tool_call_id is None else bounded(message.tool_call_id)
        messages.append([message.role, text, calls, answers, message.prefill])
    params, schema = request.params, request.response_schema
    parts = {
        "provider": provider,
        "model": request.model,
        "messages": messages,
        "params": [getattr(params, name) for name in _PARAMETERS],
        "tools": list(map(definition_of, request.tools)),
        "schema": [schema.name, schema.schema] if schema else None,
    }
    return hashlib.sha256(_canonical(parts).encode()).hexdigest()[:16]


_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


def definition_of(tool: SimulatedTool | ToolDefinition) -> dict[str, Any]:
    """Return a tool definition as JSON for a model."""
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


async def _given(recorded: Result[ModelReply]) -> Result[ModelReply]:
    return recorded


def _report_to_pace(turn: Turn, result: Result[Any] | None) -> None:
    """Report the outcome of a call to its pace. None means that the call was abandoned."""
    if isinstance(result, Ok):
        turn.pace.answered(turn, getattr(result.value, "quotas", ()))
        return
    details = {} if result is None else result.error.details
    is_limited = result is not None and result.error.code is ErrorCode.PROVIDER_RATE_LIMIT
    is_limited = is_limited and not details.get("unpaid")
    # 503: service unavailable (RFC 9110); 529: what Anthropic answers when it is overloaded.
    overloaded = details.get("status") in (503, 529)
    if is_limited or overloaded:
        retry_after_s, quotas = details.get("retry_after"), details.get("quotas", ())
        turn.pace.refused(turn, retry_after_s, quotas, overloaded=overloaded)
    else:
        turn.pace.ended(turn)


def retry_delay(
    attempt: int,
    retry_after_s: float | None,
    jitter: float,
    *,
    base_s: float = BASE_DELAY_S,
    max_s: float = MAX_DELAY_S,
) -> float:
    """Return the delay in seconds after try number `attempt` (from 0) failed.

    The `Retry-After` of a provider is used as it is. Otherwise the delay is exponential backoff
    with full jitter, and at least half the base. `jitter` is random in [0, 1).
    """
    if retry_after_s:
        return retry_after_s
    return max(base_s / 2, jitter * min(max_s, base_s * 2.0**attempt))
