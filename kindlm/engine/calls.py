"""The calls of one execution: to models, judges and embedders; retried, recorded, priced.

Retries belong here, not to the adapters: each try is an event, and only here is it known what the
whole call cost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kindlm.engine.log import FieldLog
from kindlm.engine.resources import Run
from kindlm.engine.stop import Deadline, Permit
from kindlm.engine.turns import Reservation, Turns
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import ProviderFailed, ProviderRequested, ProviderResponded
from kindlm.plan import PlannedSuite
from kindlm.ports import (
    AgentReply,
    Ask,
    Asked,
    Embedder,
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
from kindlm.suite import ModelParams, ModelTarget, ProviderSettings, SimulatedTool, Suite
from kindlm.transcript import Cost, Message, Role, ToolCall, Usage

__all__ = ["Answered", "Calls", "answer_facts", "definition_of", "fingerprint"]

_log = FieldLog(__name__)


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, and the event that it is recorded as."""

    reply: ModelReply
    event: ProviderResponded


class Calls:
    """Makes the calls of one attempt of an execution.

    Calls are numbered from 1, retries included, after `last` of an earlier run. `spent_usd` is what
    they cost so far, as far as that is known. `assertion` is the index of the assertion that is
    being evaluated; its calls are recorded with it.
    """

    def __init__(
        self,
        run: Run,
        planned: PlannedSuite,
        recorder: Recorder,
        deadline: Deadline,
        *,
        reserved: Reservation | None = None,
        answers: RecordedAnswers | None = None,
        last: int = 0,
    ) -> None:
        self.run = run
        self.suite = planned.suite
        self.recorder = recorder
        self.pricing = run.pricing[planned.ordinal]
        self.permit = Permit(run.permits, planned.ordinal)
        self.turns = Turns(run.paces, deadline, self.permit, run.ports.clock, reserved)
        self.spent_usd = 0.0
        self.assertion = 0
        self._ordinal = planned.ordinal
        self._answers = answers
        self._last = last

    def next_number(self) -> int:
        """Return the number of the next call."""
        self._last += 1
        return self._last

    def spend(self, model: str, cost: Cost) -> None:
        """Count what a call to a model, or to an agent, cost."""
        self.spent_usd += cost.usd or 0.0
        self.run.budget.spend(self._ordinal, model, cost)

    async def to_model(
        self,
        target: ModelTarget,
        request: ModelRequest,
        purpose: Purpose,
        new: Sequence[Message],
        *,
        after: int | None = None,
        boundary: str = "",
        assertion: int | None = None,
    ) -> Result[Answered]:
        """Call a model, as often as it may be tried; record each try.

        The request continues the answer of call `after` with the messages that are `new` since.
        `boundary` is random text in those messages that is not recorded. `assertion` is the index
        of the assertion that asks.
        """
        identity = fingerprint(target.provider, request, boundary=boundary)
        params = request.params
        numbers = {
            "temperature": params.temperature,
            "max_tokens": params.max_tokens,
            "top_p": params.top_p,
            "seed": params.seed,
        }
        facts = {
            "purpose": purpose,
            "provider": target.provider,
            "model": request.model,
            "fingerprint": identity,
            "parameters": {name: value for name, value in numbers.items() if value is not None},
            "stop_sequences": params.stop_sequences or None,
            "response_schema": request.response_schema.name if request.response_schema else None,
            "assertion": assertion,
            "after": after,
            "messages": [
                replace(message, text=_without(message.text, boundary)) for message in new
            ],
        }
        complete: Callable[[], Awaitable[Result[ModelReply]]]
        callee: ProviderSettings | None = None
        recorded = None
        if self._answers is not None:
            messages = [
                replace(message, text=_without(message.text, boundary))
                for message in request.messages
            ]
            as_told = replace(request, messages=tuple(messages))
            recorded = self._answers.answer(Asked(purpose, target.provider, identity, as_told))
        if recorded is not None:
            complete = partial(_given, recorded)
        else:
            callee = self.suite.providers[target.provider]
            client = self.run.client(callee)
            if isinstance(client, Err):
                return client
            complete = partial(client.value.complete, request)
        result = await self.turns.call(
            callee,
            partial(self._record_request, facts),
            complete,
            partial(self._record_failure, target.provider, request.model),
            retries=self.suite.retries,
        )
        if isinstance(result, Err):
            return result
        number, answer = result.value
        reply = answer.storable()
        if reply.recorded is not None:
            cost = reply.recorded.cost
        else:
            cost = self.pricing.cost(
                target.provider,
                reply.model or target.model,
                reply.usage,
                reply.reported_cost_usd,
                requested=target.model,
            )
        answered = answer_facts(number, reply, cost, keep_raw=self.suite.record_raw_bodies)
        self.spend(reply.model or target.model, Cost(answered["cost_usd"]))
        payload = ProviderResponded(
            **answered,
            tool_calls=reply.tool_calls,
            finish_reason=reply.finish_reason,
        )
        self.recorder.record(payload)
        _log.debug(
            "The model answered",
            provider=target.provider,
            model=target.model,
            call=number,
            latency_ms=payload.latency_ms,
        )
        return Ok(Answered(reply, payload))

    def asking(self, assertion: int | None) -> Ask:
        """Return what puts questions of one assertion, beside those of others, or of none."""
        return partial(self._ask, assertion)

    async def ask(self, question: Question) -> Result[ModelReply]:
        """Put a question of the assertion that is evaluated; implements `ports.Ask`."""
        return await self._ask(self.assertion, question)

    async def _ask(self, assertion: int | None, question: Question) -> Result[ModelReply]:
        models = self.suite.models
        chosen = question.model or self.suite.judge_model or next(iter(models), None)
        target = None if chosen is None else models.get(chosen)
        if target is None:
            return Err(_no_judge(question.model, self.suite))
        messages = (
            Message(Role.SYSTEM, question.system),
            Message(Role.USER, question.user),
        )
        request = ModelRequest(
            model=target.model,
            messages=messages,
            params=ModelParams(0.0, question.max_tokens, seed=question.seed),
            timeout_s=self.suite.timeout_ms / 1000,
            response_schema=question.response_schema,
        )
        answered = await self.to_model(
            target,
            request,
            question.purpose,
            messages,
            boundary=question.boundary,
            assertion=assertion,
        )
        return answered if isinstance(answered, Err) else Ok(answered.value.reply)

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> Result[Embedding]:
        """Turn texts into vectors to measure drift; recorded and priced like any other call."""
        timeout_s = self.suite.timeout_ms / 1000
        messages = tuple(Message(Role.USER, text) for text in texts)
        request = ModelRequest(embedder.model, messages, ModelParams(), 0.0)
        facts = {
            "purpose": Purpose.DRIFT,
            "provider": embedder.provider,
            "model": embedder.model,
            "fingerprint": fingerprint(embedder.provider, request),
            "assertion": self.assertion,
            "messages": messages,
        }
        result = await self.turns.call(
            self.suite.providers.get(embedder.provider),
            partial(self._record_request, facts),
            lambda: embedder.embed(texts, timeout_s),
            partial(self._record_failure, embedder.provider, embedder.model),
            retries=self.suite.retries,
        )
        if isinstance(result, Err):
            return result
        number, embedding = result.value
        tokens = embedding.usage.input_tokens
        # Vectors cost nothing going out: the price is that of the texts.
        spent = Usage(tokens, None if tokens is None else 0)
        cost = self.pricing.cost(embedder.provider, embedder.model, spent)
        self.spend(embedder.model, cost)
        self.recorder.record(
            ProviderResponded(
                call=number,
                text="",
                model=embedder.model,
                input_tokens=tokens,
                latency_ms=round(embedding.latency_ms, 3),
                cost_usd=cost.usd,
                cost_source=cost.source,
            )
        )
        return Ok(embedding)

    def _record_request(self, facts: dict[str, Any], attempt: int) -> int:
        number = self.next_number()
        payload = ProviderRequested(call=number, attempt=attempt, **facts)
        self.recorder.record(payload)
        _log.debug(
            "Calling a model",
            purpose=payload.purpose,
            provider=payload.provider,
            model=payload.model,
            call=number,
            attempt=attempt,
        )
        return number

    def _record_failure(
        self,
        provider: str,
        model: str,
        number: int,
        error: KindlmError,
        latency_ms: float,
        delay_s: float | None,
    ) -> None:
        keep_raw = self.suite.record_raw_bodies
        payload = ProviderFailed.of(number, error, latency_ms, delay_s, keep_raw=keep_raw)
        self.recorder.record(payload)
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


def answer_facts(
    number: int, reply: ModelReply | AgentReply, cost: Cost, *, keep_raw: bool
) -> dict[str, Any]:
    """Return what is recorded of an answer, of a model or of an agent alike.

    One of an earlier run costs nothing now; `cost` is what it cost then.
    """
    recorded = reply.recorded
    return {
        "call": number,
        "text": reply.text,
        "model": reply.model,
        "input_tokens": reply.usage.input_tokens,
        "output_tokens": reply.usage.output_tokens,
        "latency_ms": reply.latency_ms,
        "cost_usd": cost.usd if recorded is None else 0.0,
        "cost_source": cost.source,
        "recorded_in": recorded.call if recorded else None,
        "cost_then_usd": cost.usd if recorded else None,
        # The body stands with the call that was really made.
        "raw": reply.raw if keep_raw and recorded is None else None,
        "warnings": reply.warnings,
    }


def fingerprint(provider: str, request: ModelRequest, *, boundary: str = "") -> str:
    """Return the identity of a request: equal for equal questions, without any secret.

    `boundary` is the random part of a judge's question and is left out; values of the environment
    that were put into the user's messages count as what is written there.
    """
    schema = request.response_schema
    parts = {
        "provider": provider,
        "model": request.model,
        "messages": [
            [
                message.role,
                message.text if message.written is None else message.written,
                [_call(call) for call in message.tool_calls],
                None if message.tool_call_id is None else bounded(message.tool_call_id),
                message.prefill,
            ]
            for message in request.messages
        ],
        "params": [
            request.params.temperature,
            request.params.max_tokens,
            request.params.top_p,
            request.params.stop_sequences,
            request.params.seed,
        ],
        "tools": [definition_of(tool) for tool in request.tools],
        "schema": [schema.name, schema.schema] if schema else None,
    }
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    if boundary:
        text = text.replace(boundary, "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _call(call: ToolCall) -> list[Any]:
    # As the record keeps ids and names: an answer that is given again has no more of them.
    written = call.arguments if call.malformed is None else call.malformed
    return [bounded(call.id), bounded(call.name), written]


def definition_of(tool: SimulatedTool | ToolDefinition) -> dict[str, Any]:
    """Return the definition of a tool as a model gets it."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


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
