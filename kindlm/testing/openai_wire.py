"""The wire format of OpenAI: Chat Completions, and Embeddings.

Invalid requests get an error. Replies have the required fields of the real API.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from kindlm.strict_json import json_or_text
from kindlm.testing.http1 import HttpRequest
from kindlm.testing.node import Node
from kindlm.testing.script import ModelSpec, Reply
from kindlm.testing.scripted_talk import (
    Refusal,
    TalkRequest,
    Turns,
    estimate_tokens,
    shape,
    text_of,
    usage_of,
    words_of,
)

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_NOT_FOR_REASONING = (
    *("max_tokens", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "stop"),
)
CREATED = 1_750_000_000
"""A fixed time, so that the same request gets the same bytes."""


class Chat:
    """Chat Completions. The classes of other formats have the same methods."""

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the key in the headers of a request, if any."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        return key.strip() or None if scheme.lower() == "bearer" else None

    def auth_refusal(self, key: str | None) -> Refusal:
        """Return the error for a missing (None) or wrong key."""
        message = "You didn't provide an API key." if key is None else "Incorrect API key provided."
        return Refusal(401, message, code="invalid_api_key")

    def unknown_model(self, name: str) -> Refusal:
        """Return the error for the name of an unknown model."""
        message = f"The model `{name}` does not exist or you do not have access to it."
        return Refusal(404, message, code="model_not_found")

    def status_refusal(self, status: int) -> Refusal:
        """Return the error for a status."""
        code = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
        return Refusal(status, f"The request failed with status {status}.", code=code)

    def error_body(self, refusal: Refusal, _request_id: str) -> dict[str, Any]:
        """Return an error in the form of the API."""
        kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
        error = {
            "message": refusal.message,
            "type": "requests" if refusal.status == 429 else kind,
            "param": refusal.param,
            "code": refusal.code,
        }
        return {"error": error}

    def headers(self, request_id: str) -> tuple[tuple[str, str], ...]:
        """Return the headers of any answer."""
        return (("x-request-id", request_id),)

    def read(self, request: HttpRequest, body: Node, model: ModelSpec | None) -> TalkRequest:
        """Read a request; raises `Refusal` or `ScriptError` if it is invalid."""
        if model is not None and model.reasoning:
            refuse_unsupported(body, _NOT_FOR_REASONING)
            if (temperature := body.value.get("temperature")) not in (None, 1):
                message = (
                    f"Unsupported value: 'temperature' does not support {temperature} with this "
                    "model. Only the default (1) value is supported."
                )
                raise Refusal(400, message, "temperature", "unsupported_value")
        system, turns = _messages(body)
        tools = [tool.entry("function").entry("name").text() for tool in body.members("tools")]
        count = partial(Node.integer, minimum=1)
        limit = body.optional("max_completion_tokens", count)
        options = body.optional(
            "stream_options", lambda node: node.optional("include_usage", Node.flag)
        )
        return TalkRequest(
            raw_body=request.body,
            model=body.entry("model").text(),
            system=system,
            turns=turns,
            offered=offered(body, tools),
            structured=body.optional("response_format", _structured),
            parallel=body.optional("parallel_tool_calls", Node.flag, default=True),
            max_tokens=body.optional("max_tokens", count) if limit is None else limit,
            stop=body.optional("stop", Node.texts, ()),
            stream=body.optional("stream", Node.flag, default=False),
            stream_usage=bool(options),
        )

    def write(self, conversation: TalkRequest, reply: Reply) -> tuple[bytes, ...]:
        """Return the parts of an answer's body: one, or the events of a stream."""
        text, reply = shape(reply, conversation)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{conversation.fingerprint[:20]}{position:04}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments_text},
                }
                for position, call in enumerate(reply.calls)
            ]
        usage = _usage(conversation, reply, text)
        finish_reason = reply.finish or ("tool_calls" if reply.calls else "stop")
        envelope = {
            "id": f"chatcmpl-{conversation.fingerprint[:29]}",
            "created": CREATED,
            "model": conversation.model,
        }
        if conversation.stream:
            chunks = [*_chunks(message, finish_reason)]
            if conversation.stream_usage and usage:
                chunks.append({"choices": [], **usage})
            envelope["object"] = "chat.completion.chunk"
            events = [json.dumps(envelope | chunk).encode("ascii") for chunk in chunks]
            return tuple(b"data: " + event + b"\n\n" for event in (*events, b"[DONE]"))
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        completion = {**envelope, "object": "chat.completion", "choices": [choice], **usage}
        return (json.dumps(completion).encode("ascii"),)


def refuse_unsupported(body: Node, names: Iterable[str]) -> None:
    """Refuse parameters that the model of a request does not support."""
    for name in names:
        if body.value.get(name) is not None:
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            raise Refusal(400, message, name, "unsupported_parameter")


def offered(body: Node, tools: Iterable[str]) -> tuple[str, ...]:
    """Return the tools that may be called: none if `tool_choice` says so."""
    choice = body.optional("tool_choice", lambda node: node)
    if choice is None or isinstance(choice.value, dict):
        return tuple(tools)
    return () if choice.choice("none", "auto", "required") == "none" else tuple(tools)


def has_schema(form: Node) -> bool:
    """Return whether the form of an answer is a schema."""
    return bool(form.entry("type").choice("text", "json_object", "json_schema") == "json_schema")


def _structured(form: Node) -> str | None:
    return form.entry("json_schema").entry("name").text() if has_schema(form) else None


def _messages(request: Node) -> tuple[str, Turns]:
    """Return the system text and the turns; results must follow their calls immediately."""
    messages = request.entry("messages").items()
    if not messages:
        request.entry("messages").fail("expected at least one message")
    system, turns = list[str](), Turns()
    for message in messages:
        role = message.entry("role").choice(*_ROLES)
        text = message.optional("content", text_of, "")
        if role == "tool":
            turns.add_result(message, message.entry("tool_call_id").text(), text)
            continue
        turns.check()
        for call in message.members("tool_calls"):
            function, call_id = call.entry("function"), call.entry("id").text()
            arguments = json_or_text(function.entry("arguments").text())
            turns.add_call(message, call_id, function.entry("name").text(), arguments)
        if role == "assistant":
            turns.add_assistant()
        elif role == "user":
            turns.add_user(text)
        elif role != "function":
            system.append(text)
    turns.check()
    return "\n".join(system), turns


def _usage(conversation: TalkRequest, reply: Reply, text: str | None) -> dict[str, Any]:
    usage = usage_of(conversation, reply, text)
    if usage is None:
        return {}
    counts = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    return {"usage": counts}


def _chunks(message: dict[str, Any], finish_reason: str) -> Iterator[dict[str, Any]]:
    """Yield the parts of a stream: role, words of the text, tool calls, finish reason."""
    yield _delta({"role": "assistant", "content": "", "refusal": None})
    for word in words_of(message["content"] or ""):
        yield _delta({"content": word})
    for position, call in enumerate(message.get("tool_calls", ())):
        opening = {**call, "index": position, "function": {**call["function"], "arguments": ""}}
        yield _delta({"tool_calls": [opening]})
        rest = {"index": position, "function": {"arguments": call["function"]["arguments"]}}
        yield _delta({"tool_calls": [rest]})
    yield _delta({}, finish_reason)


def _delta(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {"choices": [choice]}


_WORD = re.compile(r"\w+")


def embeddings(request: Node) -> bytes:
    """Return vectors of hashed bags of words: texts with common words have similar vectors."""
    texts = request.entry("input").texts()
    if not texts or "" in texts:
        request.entry("input").fail("expected at least one text, none of them empty")
    dimensions = request.optional("dimensions", partial(Node.integer, minimum=1, maximum=4096), 256)
    encoding = request.optional("encoding_format", lambda node: node.choice("float", "base64"))
    vectors: list[Any] = [_embed(text, dimensions) for text in texts]
    if encoding == "base64":
        packed = (struct.pack(f"<{len(vector)}f", *vector) for vector in vectors)
        vectors = [base64.b64encode(each).decode("ascii") for each in packed]
    tokens = sum(estimate_tokens(text) for text in texts)
    response = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ],
        "model": request.entry("model").text(),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return json.dumps(response).encode("ascii")


def _embed(text: str, dimensions: int) -> list[float]:
    """Return a vector of length one: signed counts of words, at hashed positions."""
    vector = [0.0] * dimensions
    for word in _WORD.findall(text.casefold()):
        digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
        position = int.from_bytes(digest[:4], "big") % dimensions
        vector[position] += 1.0 if digest[4] & 1 else -1.0
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else [1.0, *vector[1:]]
