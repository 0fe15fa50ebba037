"""Values as event payloads: how messages, calls and results are written down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kindlm.engine.pace import PaceChange
from kindlm.errors import KindlmError
from kindlm.events import (
    AssertionEvaluated,
    ProviderPaced,
)
from kindlm.outcome import CheckResult
from kindlm.plan import Execution
from kindlm.ports import AgentReply, ModelReply, ModelRequest, ToolDefinition
from kindlm.suite import Expectation, SimulatedTool
from kindlm.transcript import Cost, Message, ToolCall
from kindlm_store.payload import scrub

__all__ = [
    "answer_facts",
    "as_recorded",
    "assertion_event",
    "bounded",
    "call_as_recorded",
    "definitions_of",
    "execution_facts",
    "failure_facts",
    "fingerprint",
    "json_as_recorded",
    "paced_event",
    "subject",
]

Reply = TypeVar("Reply", ModelReply, AgentReply)

_LABEL_LIMIT = 200


def subject(execution: Execution, attempt: int) -> str:
    """Return what the events of one attempt of an execution are about, such as `17.1`."""
    return f"{execution.id}.{attempt}"


def execution_facts(execution: Execution) -> dict[str, Any]:
    """Return what the start of an execution tells of it, whatever becomes of it."""
    suite = execution.suite.suite
    return {
        "suite": execution.suite.ordinal,
        "test": execution.case.name,
        "target": execution.target,
        "repeat": execution.repeat,
        "tags": list(dict.fromkeys((*suite.tags, *execution.case.tags))),
    }


def definitions_of(tools: Sequence[SimulatedTool]) -> list[dict[str, Any]] | None:
    """Return the definitions of tools as a model gets them, None if there are none."""
    return [_tool(tool) for tool in tools] or None


def as_recorded(reply: Reply) -> Reply:
    """Return an answer with what the record keeps of it, so that both are checked alike.

    Characters that can not be stored are replaced, and times rounded.
    """
    changes: dict[str, Any] = {
        "text": scrub(reply.text),
        "model": bounded(scrub(reply.model)) if reply.model else None,
        "latency_ms": round(reply.latency_ms, 3),
    }
    if isinstance(reply, ModelReply):
        changes["tool_calls"] = tuple(call_as_recorded(call) for call in reply.tool_calls)
    else:
        changes["raw"] = None if reply.raw is None else scrub(reply.raw)
        changes["reported"] = json_as_recorded(dict(reply.reported))
        shown = reply.reports_tools
        changes["reports_tools"] = bool(reply.tool_uses) if shown is None else shown
        changes["tool_uses"] = tuple(
            replace(
                use,
                call=call_as_recorded(use.call),
                response=json_as_recorded(use.response),
            )
            for use in reply.tool_uses
        )
    return replace(reply, **changes)


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


def json_as_recorded(value: Any) -> Any:
    """Return a JSON value without the characters that can not be stored."""
    written = json.dumps(value, ensure_ascii=False)
    stored = scrub(written)
    return value if stored == written else json.loads(stored)


def failure_facts(
    number: int, error: KindlmError, latency_ms: float, delay_s: float | None, *, keep_raw: bool
) -> dict[str, Any]:
    """Return what is recorded of a call that failed, of a model or of an agent alike."""
    body = error.details.get("body")
    return {
        "call": number,
        "error_code": error.code.name,
        "error_number": error.code.value,
        "status": error.details.get("status"),
        "message": error.message,
        "raw": body if body and keep_raw else None,
        "latency_ms": round(latency_ms, 3),
        "retry_in_ms": None if delay_s is None else round(delay_s * 1000, 3),
    }


def paced_event(callee: str, change: PaceChange) -> ProviderPaced:
    """Return the event of a changed pace towards a provider or an agent."""
    rate = change.calls_per_minute
    return ProviderPaced(
        callee=callee,
        reason=change.reason,
        calls_per_minute=None if rate is None else round(rate, 1),
        in_flight=change.in_flight,
        pause_s=round(change.pause_s, 3),
    )


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
            [m.role, _as_written(m), [_call(c) for c in m.tool_calls], m.tool_call_id, m.prefill]
            for m in request.messages
        ],
        "params": [
            request.params.temperature,
            request.params.max_tokens,
            request.params.top_p,
            request.params.stop_sequences,
            request.params.seed,
        ],
        "tools": [_tool(tool) for tool in request.tools],
        "schema": [schema.name, schema.schema] if schema else None,
    }
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    if boundary:
        text = text.replace(boundary, "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def assertion_event(
    result: CheckResult, index: int, expectation: Expectation, *, duration_ms: float
) -> AssertionEvaluated:
    """Return the event of one assertion's outcome."""
    return AssertionEvaluated(
        index=index,
        result=result,
        duration_ms=round(duration_ms, 3),
        line=expectation.where.line if expectation.where else None,
        turn=expectation.turn,
        advisory=expectation.advisory,
    )


def call_as_recorded(call: ToolCall) -> ToolCall:
    """Return a tool call without the characters that can not be stored."""
    return replace(
        call,
        id=scrub(call.id),
        name=scrub(call.name),
        arguments=json_as_recorded(call.arguments),
        malformed=None if call.malformed is None else scrub(call.malformed),
    )


def _as_written(message: Message) -> str:
    return message.text if message.written is None else message.written


def _call(call: ToolCall) -> list[Any]:
    return [call.id, call.name, call.arguments if call.malformed is None else call.malformed]


def _tool(tool: SimulatedTool | ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


def bounded(name: str) -> str:
    """Return the beginning of a name that a model made up.

    Names stand in the event itself, so that they can be filtered by; the raw body keeps them whole.
    """
    return name if len(name) <= _LABEL_LIMIT else name[: _LABEL_LIMIT - 1] + "…"
