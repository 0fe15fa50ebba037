"""Calls of models as the engine makes them: retried, recorded, priced.

Retries belong here, not to the adapters: each try is an event, and only here is it known what the
whole call cost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from kindlm.engine.clients import Clients
from kindlm.engine.log import FieldLog
from kindlm.engine.pace import Queue, Turns
from kindlm.engine.recording import (
    answer_facts,
    as_recorded,
    failure_facts,
    fingerprint,
    json_text,
    message_data,
    tool_call_data,
)
from kindlm.engine.retry import call_with_retries
from kindlm.engine.stop import Deadline, Permit
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import ProviderFailed, ProviderRequested, ProviderResponded
from kindlm.ports import (
    Ask,
    Asked,
    Clock,
    Embedder,
    Embedding,
    ModelReply,
    ModelRequest,
    Pricing,
    Purpose,
    Question,
    RecordedAnswers,
    Recorder,
)
from kindlm.suite import ModelParams, ModelTarget, Suite
from kindlm.transcript import Cost, Message, Role, Usage
from kindlm_store import Text

__all__ = ["Answered", "CallCounter", "Caller", "Context", "Means"]

_Complete: TypeAlias = Callable[[], Awaitable[Result[ModelReply]]]

_log = FieldLog(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What a request continues: the answer of call `after`, and the messages that are new since.

    `boundary` is random text in those messages that is not recorded. `assertion` is the index of
    the assertion that asks.
    """

    purpose: Purpose
    after: int | None
    new_messages: Sequence[Message] = ()
    boundary: str = ""
    assertion: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, the number of the call that it answers, and what it cost."""

    reply: ModelReply
    call: int
    cost: Cost


class CallCounter:
    """Numbers the calls of one execution from 1: of models, agents and judges, retries included.

    `spent_usd` is what they cost so far, as far as that is known; `spend` is told of each model and
    what its call cost. Calls before are numbered up to `last`.
    """

    def __init__(self, spend: Callable[[str, Cost], None], last: int = 0) -> None:
        self._last = last
        self._spend = spend
        self.spent_usd = 0.0

    def next(self) -> int:
        """Return the number of the next call."""
        self._last += 1
        return self._last

    def spend(self, model: str, cost: Cost) -> None:
        """Count what a call of a model, or of an agent, cost."""
        self.spent_usd += cost.usd or 0.0
        self._spend(model, cost)


@dataclass(frozen=True, slots=True)
class Means:
    """What the calls of one execution are made with, whomever they go to."""

    recorder: Recorder
    clock: Clock
    counter: CallCounter
    pricing: Pricing
    turns: Turns
    deadline: Deadline
    permit: Permit


class Caller:
    """Calls the models of one suite for one execution."""

    def __init__(
        self, suite: Suite, clients: Clients, means: Means, answers: RecordedAnswers | None = None
    ) -> None:
        # The index of the assertion that is being evaluated; its calls are recorded with it.
        self.assertion = 0
        self._suite = suite
        self._clients = clients
        self._means = means
        self._answers = answers

    async def call(
        self, target: ModelTarget, request: ModelRequest, context: Context
    ) -> Result[Answered]:
        """Call a model until it answers, fails for good, or the retries are used up.

        If the answer is one that was recorded in an earlier run, nobody is called.
        """
        identity = fingerprint(target.provider, request, boundary=context.boundary)
        answering = self._answering(target, request, context, identity)
        if isinstance(answering, Err):
            return answering
        complete, queue = answering.value
        result = await call_with_retries(
            lambda attempt: self._record_request(target, request, context, identity, attempt),
            complete,
            partial(self._record_failure, target.provider, request.model),
            queue=queue,
            retries=self._suite.retries,
            deadline=self._means.deadline,
            permit=self._means.permit,
            clock=self._means.clock,
        )
        if isinstance(result, Err):
            return result
        number, reply = result.value
        return Ok(self._record_reply(target, number, as_recorded(reply)))

    def _answering(
        self, target: ModelTarget, request: ModelRequest, context: Context, identity: str
    ) -> Result[tuple[_Complete, Queue]]:
        """Return what answers a request, and where it waits for its turn."""
        if self._answers is not None:
            written = [
                replace(message, text=_without(message.text, context.boundary))
                for message in request.messages
            ]
            told = replace(request, messages=tuple(written))
            asked = Asked(context.purpose, target.provider, identity, told)
            recorded = self._answers.answer(asked)
            if recorded is not None:
                return Ok((partial(_given, recorded), self._means.turns.at(None)))
        provider = self._suite.providers[target.provider]
        client = self._clients.get(provider)
        if isinstance(client, Err):
            return client
        return Ok((partial(client.value.complete, request), self._means.turns.at(provider)))

    def asking(self, assertion: int | None) -> Ask:
        """Return what puts questions of one assertion, beside those of others, or of none."""
        return partial(self._ask, assertion)

    async def ask(self, question: Question) -> Result[ModelReply]:
        """Put a question of the assertion that is evaluated; implements `ports.Ask`."""
        return await self._ask(self.assertion, question)

    async def _ask(self, assertion: int | None, question: Question) -> Result[ModelReply]:
        target = self._judge(question.model)
        if target is None:
            return Err(_no_judge(question.model, self._suite))
        messages = (
            Message(Role.SYSTEM, question.system),
            Message(Role.USER, question.user),
        )
        request = ModelRequest(
            model=target.model,
            messages=messages,
            params=ModelParams(0.0, question.max_tokens, seed=question.seed),
            timeout_s=self._suite.timeout_ms / 1000,
            response_schema=question.response_schema,
        )
        context = Context(question.purpose, None, messages, question.boundary, assertion)
        answered = await self.call(target, request, context)
        return answered if isinstance(answered, Err) else Ok(answered.value.reply)

    def _judge(self, model: str | None) -> ModelTarget | None:
        chosen = model or self._suite.judge_model or next(iter(self._suite.models), None)
        return None if chosen is None else self._suite.models.get(chosen)

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> Result[Embedding]:
        """Turn texts into vectors to measure drift; recorded and priced like any other call."""
        timeout_s = self._suite.timeout_ms / 1000
        result = await call_with_retries(
            lambda attempt: self._record_embedding(embedder, texts, attempt),
            lambda: embedder.embed(texts, timeout_s),
            partial(self._record_failure, embedder.provider, embedder.model),
            queue=self._means.turns.at(self._suite.providers.get(embedder.provider)),
            retries=self._suite.retries,
            deadline=self._means.deadline,
            permit=self._means.permit,
            clock=self._means.clock,
        )
        if isinstance(result, Err):
            return result
        number, embedding = result.value
        tokens = embedding.usage.input_tokens
        # Vectors cost nothing going out: the price is that of the texts.
        spent = Usage(tokens, None if tokens is None else 0)
        cost = self._means.pricing.cost(embedder.provider, embedder.model, spent)
        self._means.counter.spend(embedder.model, cost)
        self._means.recorder.record(
            ProviderResponded(
                call=number,
                text=Text(""),
                model=embedder.model,
                input_tokens=tokens,
                latency_ms=round(embedding.latency_ms, 3),
                cost_usd=cost.usd,
                cost_source=cost.source,
            )
        )
        return Ok(embedding)

    def _record_embedding(self, embedder: Embedder, texts: Sequence[str], attempt: int) -> int:
        messages = [Message(Role.USER, text) for text in texts]
        request = ModelRequest(embedder.model, tuple(messages), ModelParams(), 0.0)
        number = self._means.counter.next()
        self._means.recorder.record(
            ProviderRequested(
                purpose=Purpose.DRIFT,
                provider=embedder.provider,
                model=embedder.model,
                call=number,
                attempt=attempt,
                fingerprint=fingerprint(embedder.provider, request),
                assertion=self.assertion,
                messages=[message_data(message) for message in messages],
            )
        )
        return number

    def _record_request(
        self,
        target: ModelTarget,
        request: ModelRequest,
        context: Context,
        identity: str,
        attempt: int,
    ) -> int:
        number = self._means.counter.next()
        params = request.params
        numbers = {
            "temperature": params.temperature,
            "max_tokens": params.max_tokens,
            "top_p": params.top_p,
            "seed": params.seed,
        }
        payload = ProviderRequested(
            purpose=context.purpose,
            provider=target.provider,
            model=request.model,
            call=number,
            attempt=attempt,
            fingerprint=identity,
            parameters={name: value for name, value in numbers.items() if value is not None},
            stop_sequences=json_text(params.stop_sequences) if params.stop_sequences else None,
            response_schema=request.response_schema.name if request.response_schema else None,
            assertion=context.assertion,
            after=context.after,
            messages=[
                message_data(message, text=_without(message.text, context.boundary))
                for message in context.new_messages
            ],
        )
        self._means.recorder.record(payload)
        _log.debug(
            "Calling a model",
            purpose=context.purpose,
            provider=target.provider,
            model=request.model,
            call=number,
            attempt=attempt,
        )
        return number

    def _record_reply(self, target: ModelTarget, number: int, reply: ModelReply) -> Answered:
        cost = self._cost(target, reply)
        facts = answer_facts(number, reply, cost, keep_raw=self._suite.record_raw_bodies)
        self._means.counter.spend(reply.model or target.model, Cost(facts["cost_usd"]))
        payload = ProviderResponded(
            **facts,
            tool_calls=[tool_call_data(call) for call in reply.tool_calls],
            finish_reason=reply.finish_reason,
        )
        self._means.recorder.record(payload)
        _log.debug(
            "The model answered",
            provider=target.provider,
            model=target.model,
            call=number,
            latency_ms=payload.latency_ms,
        )
        return Answered(reply, number, cost)

    def _cost(self, target: ModelTarget, reply: ModelReply) -> Cost:
        if reply.recorded is not None:
            return reply.recorded.cost
        return self._means.pricing.cost(
            target.provider,
            reply.model or target.model,
            reply.usage,
            reply.reported_cost_usd,
            requested=target.model,
        )

    def _record_failure(
        self,
        provider: str,
        model: str,
        number: int,
        error: KindlmError,
        latency_ms: float,
        delay: float | None,
    ) -> None:
        payload = ProviderFailed(
            **failure_facts(
                number, error, latency_ms, delay, keep_raw=self._suite.record_raw_bodies
            )
        )
        self._means.recorder.record(payload)
        _log.warning(
            "The call failed",
            code=error.code.name,
            provider=provider,
            model=model,
            call=number,
            http_status=payload.status,
            latency_ms=payload.latency_ms,
            retry_in_ms=payload.retry_in_ms,
        )


async def _given(recorded: Result[ModelReply]) -> Result[ModelReply]:
    return recorded


def _without(text: str, boundary: str) -> str:
    return text.replace(boundary, "") if boundary else text


def _no_judge(model: str | None, suite: Suite) -> KindlmError:
    if suite.front_end == "scenario":
        return KindlmError(
            ErrorCode.JUDGE_EVAL_ERROR,
            "no model is configured: kindlm.toml has no [llm] with a provider and a model.",
        )
    if suite.front_end == "evalview":
        return KindlmError(
            ErrorCode.JUDGE_EVAL_ERROR,
            "no model is configured: .evalview/config.yaml has no `judge` with a provider and a "
            "model.",
        )
    what = f"model {model!r} is not configured" if model else "no model is configured"
    return KindlmError(
        ErrorCode.JUDGE_EVAL_ERROR,
        f"{what}.",
        "Set defaults.judgeModel to the id of a configured model.",
    )
