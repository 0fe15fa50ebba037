"""Chat Completions responses: completions, streams and errors, with every field the API sends."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from kindlm.testing import openai_requests
from kindlm.testing.conversation import Conversation, Reply, usage_of
from kindlm.testing.player import shape
from kindlm.testing.wire import Refusal, WireFormat, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kindlm.testing.faults import Allowance

CREATED = 1_750_000_000
"""Responses of the same request are the same bytes, so the clock stands still."""


def key_of(headers: Mapping[str, str]) -> str | None:
    """The key of a request."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


def auth_refusal(key: str | None) -> Refusal:
    """What a missing or wrong key gets; of a wrong one, as the API does, the ends are shown."""
    if key is None:
        message = (
            "You didn't provide an API key. You need to provide your API key in an Authorization "
            "header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
        )
    else:
        shown = f"{key[:3]}***{key[-2:]}" if len(key) > 12 else "***"
        message = f"Incorrect API key provided: {shown}."
    return Refusal(401, "invalid_request_error", message, None, "invalid_api_key")


def unknown_model(name: str) -> Refusal:
    """What a model that does not exist gets."""
    message = f"The model `{name}` does not exist or you do not have access to it."
    return Refusal(404, "invalid_request_error", message, None, "model_not_found")


def status_refusal(status: int, model: str) -> Refusal:
    """The error that comes with a status."""
    if status == 429:
        message = (
            f"Rate limit reached for {model} on requests per min (RPM). Please try again later."
        )
        return Refusal(429, "requests", message, None, "rate_limit_exceeded")
    if status == 401:
        return auth_refusal("")
    if status == 503:
        message = "The engine is currently overloaded, please try again later."
        return Refusal(503, "server_error", message, None, "overloaded")
    if status >= 500:
        message = "The server had an error while processing your request. Sorry about that!"
        return Refusal(status, "server_error", message)
    return Refusal(status, "invalid_request_error", f"The request failed with status {status}.")


def error_body(refusal: Refusal, request_id: str) -> dict[str, Any]:  # noqa: ARG001 - as WireFormat
    """An error as the API shapes it."""
    error = {
        "message": refusal.message,
        "type": refusal.kind,
        "param": refusal.param,
        "code": refusal.code,
    }
    return {"error": error}


def headers(request_id: str, allowance: Allowance) -> tuple[tuple[str, str], ...]:
    """Headers of every answer."""
    return (
        ("x-request-id", request_id),
        ("openai-version", "2020-10-01"),
        ("openai-processing-ms", "1"),
        ("x-ratelimit-limit-requests", str(allowance.limit)),
        ("x-ratelimit-remaining-requests", str(allowance.left)),
        ("x-ratelimit-reset-requests", _duration(allowance.reset_s)),
    )


def _duration(seconds: float) -> str:
    """A time as the API writes it: `6ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:.3g}s" if minutes else f"{rest:.3g}s"


def write(conversation: Conversation, reply: Reply, reported_model: str) -> tuple[bytes, ...]:
    """The completion, or the events of its stream."""
    text = reply.text
    if reply.structured is not None:
        text = json.dumps(reply.structured, ensure_ascii=False)
    if text is not None:
        text, reply = shape(reply, conversation, text)
    message = _message(text, _tool_calls(conversation, reply))
    usage = _usage(conversation, reply, text or "")
    envelope = _envelope(conversation, reported_model)
    if conversation.stream:
        told = usage if conversation.stream_usage else None
        return tuple(_stream(envelope, _chunks(message, _finish_reason(reply), told)))
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _finish_reason(reply),
    }
    completion = {**envelope, "object": "chat.completion", "choices": [choice]}
    if usage is not None:
        completion["usage"] = usage
    return (json.dumps(completion).encode("ascii"),)


def _envelope(conversation: Conversation, reported_model: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{conversation.fingerprint[:29]}",
        "created": CREATED,
        "model": reported_model,
        "service_tier": "default",
        "system_fingerprint": f"fp_{conversation.fingerprint[:10]}",
    }


def _message(text: str | None, calls: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": [],
    }
    return {**message, "tool_calls": calls} if calls else message


def _stream(envelope: dict[str, Any], chunks: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for chunk in chunks:
        yield _event({**envelope, "object": "chat.completion.chunk", **chunk})
    yield b"data: [DONE]\n\n"


def _tool_calls(conversation: Conversation, reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{conversation.fingerprint[:20]}{position:04}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments_text},
        }
        for position, call in enumerate(reply.calls)
    ]


def _finish_reason(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _usage(conversation: Conversation, reply: Reply, text: str) -> dict[str, Any] | None:
    if not reply.reports_usage:
        return None
    usage = usage_of(conversation, reply, text)
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _chunks(
    message: dict[str, Any], finish_reason: str, usage: dict[str, Any] | None
) -> Iterator[dict[str, Any]]:
    """The parts of a stream: the role, the text by words, the tool calls, the end, the usage."""
    yield _delta({"role": "assistant", "content": "", "refusal": None})
    for word in words_of(message["content"] or ""):
        yield _delta({"content": word})
    for position, call in enumerate(message.get("tool_calls", ())):
        opening = {**call, "index": position, "function": {**call["function"], "arguments": ""}}
        yield _delta({"tool_calls": [opening]})
        rest = {"index": position, "function": {"arguments": call["function"]["arguments"]}}
        yield _delta({"tool_calls": [rest]})
    yield _delta({}, finish_reason)
    if usage is not None:
        yield {"choices": [], "usage": usage}


def _delta(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {"choices": [choice]}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode("ascii") + b"\n\n"


CHAT_COMPLETIONS = WireFormat(
    name="openai",
    key_of=key_of,
    auth_refusal=auth_refusal,
    unknown_model=unknown_model,
    read=openai_requests.read,
    write=write,
    error_body=error_body,
    status_refusal=status_refusal,
    headers=headers,
)
