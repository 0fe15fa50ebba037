"""One call of a model as the engine makes it: retried, recorded, priced.

Retries belong here, not to the adapters: each try is an event, and only here is it known what the
whole call cost.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kindlm.engine.clients import Clients
from kindlm.engine.recording import error_text, fingerprint, message_data, tool_call_data
from kindlm.engine.retry import is_retryable, retry_delay
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import ProviderFailed, ProviderRequested, ProviderResponded
from kindlm.ports import (
    Clock,
    ModelReply,
    ModelRequest,
    Pricing,
    Purpose,
    Question,
    Recorder,
)
from kindlm.suite import ModelParams, ModelTarget, Suite
from kindlm.transcript import Cost, CostSource, Message, Role
from kindlm_store import Text

__all__ = ["Answered", "Caller", "Context"]

JUDGE_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Context:
    """What a request continues: the answer of call `after`, and the messages that are new since.

    `boundary` is random text in those messages that is not recorded.
    """

    purpose: Purpose
    after: int | None
    new_messages: Sequence[Message] = ()
    boundary: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, the number of the call that it answers, and what it cost."""

    reply: ModelReply
    call: int
    cost: Cost


class Caller:
    """Calls the models of one suite for one execution."""

    def __init__(
        self,
        suite: Suite,
        clients: Clients,
        pricing: Pricing,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._suite = suite
        self._clients = clients
        self._pricing = pricing
        self._recorder = recorder
        self._clock = clock
        self._calls = 0

    async def call(
        self, target: ModelTarget, request: ModelRequest, context: Context
    ) -> Result[Answered]:
        """Call a model until it answers, fails for good, or the retries are used up."""
        client = self._clients.get(self._suite.providers[target.provider])
        if isinstance(client, Err):
            return client
        identity = fingerprint(target.provider, request, boundary=context.boundary)
        for attempt in range(self._suite.retries + 1):
            number = self._record_request(target, request, context, identity, attempt + 1)
            started = self._clock.monotonic()
            result = await client.value.complete(request)
            if isinstance(result, Ok):
                return Ok(self._record_reply(target, number, result.value))
            latency_ms = (self._clock.monotonic() - started) * 1000
            delay = self._delay(result.error, attempt)
            self._record_failure(number, result.error, latency_ms, delay)
            if delay is None:
                return result
            await self._clock.sleep(delay)
        raise AssertionError("the last try returns")

    async def ask(self, question: Question) -> Result[ModelReply]:
        """Put a question to a judging model; implements `ports.Ask`."""
        target = self._judge(question.model)
        if target is None:
            return Err(_no_judge(question.model))
        messages = (
            Message(Role.SYSTEM, question.system),
            Message(Role.USER, question.user),
        )
        request = ModelRequest(
            model=target.model,
            messages=messages,
            params=ModelParams(temperature=0.0, max_tokens=JUDGE_MAX_TOKENS),
            timeout_s=self._suite.timeout_ms / 1000,
            response_schema=question.response_schema,
        )
        context = Context(question.purpose, None, messages, question.boundary)
        answered = await self.call(target, request, context)
        return answered if isinstance(answered, Err) else Ok(answered.value.reply)

    def _judge(self, model: str | None) -> ModelTarget | None:
        chosen = model or self._suite.judge_model or next(iter(self._suite.models), None)
        return None if chosen is None else self._suite.models.get(chosen)

    def _delay(self, error: KindlmError, attempt: int) -> float | None:
        """Return how long to wait before the next try, None if there is none."""
        if attempt >= self._suite.retries or not is_retryable(error):
            return None
        return retry_delay(attempt, error.details.get("retry_after"), random.random())  # noqa: S311 - jitter

    def _record_request(
        self,
        target: ModelTarget,
        request: ModelRequest,
        context: Context,
        identity: str,
        attempt: int,
    ) -> int:
        self._calls += 1
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
            call=self._calls,
            attempt=attempt,
            fingerprint=identity,
            parameters={name: value for name, value in numbers.items() if value is not None},
            after=context.after,
            messages=[
                message_data(message, text=_without(message.text, context.boundary))
                for message in context.new_messages
            ],
        )
        self._recorder.record(payload)
        return self._calls

    def _record_reply(self, target: ModelTarget, number: int, reply: ModelReply) -> Answered:
        cost = self._cost(target, reply)
        payload = ProviderResponded(
            call=number,
            text=Text(reply.text),
            tool_calls=[tool_call_data(call) for call in reply.tool_calls],
            finish_reason=reply.finish_reason,
            model=reply.model,
            input_tokens=reply.usage.input_tokens,
            output_tokens=reply.usage.output_tokens,
            latency_ms=round(reply.latency_ms, 3),
            cost_usd=cost.usd,
            cost_source=cost.source,
            raw=Text(reply.raw) if self._suite.record_raw_bodies else None,
            warnings=list(reply.warnings),
        )
        self._recorder.record(payload)
        return Answered(reply, number, cost)

    def _cost(self, target: ModelTarget, reply: ModelReply) -> Cost:
        if reply.reported_cost_usd is not None:
            return Cost(reply.reported_cost_usd, CostSource.REPORTED)
        return self._pricing.cost(target.provider, reply.model or target.model, reply.usage)

    def _record_failure(
        self, number: int, error: KindlmError, latency_ms: float, delay: float | None
    ) -> None:
        body = error.details.get("body")
        payload = ProviderFailed(
            call=number,
            error_code=error.code.name,
            error_number=error.code,
            status=error.details.get("status"),
            message=error_text(error),
            raw=Text(body) if body and self._suite.record_raw_bodies else None,
            latency_ms=round(latency_ms, 3),
            retry_in_ms=None if delay is None else round(delay * 1000, 3),
        )
        self._recorder.record(payload)


def _without(text: str, boundary: str) -> str:
    return text.replace(boundary, "") if boundary else text


def _no_judge(model: str | None) -> KindlmError:
    what = f"model {model!r} is not configured" if model else "no model is configured"
    return KindlmError(
        ErrorCode.JUDGE_EVAL_ERROR,
        f"The judge could not be asked: {what}.",
        "Set defaults.judgeModel to the id of a configured model.",
    )
