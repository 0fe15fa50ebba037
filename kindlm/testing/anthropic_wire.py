"""The wire format of Anthropic: Messages.

Invalid requests get an error. Replies have the required fields of the real API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.dataclass import replace
from kindlm.testing.http1 import HttpRequest
from kindlm.testing.node import Node
from kindlm.testing.script import CallOut, ModelSpec, Reply
from kindlm.testing.scripted_talk import (
    Refusal,
    TalkRequest,
    Turns,
    halves,
    server_sent,
    shape,
    text_of,
    usage_of,
    words_of,
)

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Messages:
    """Has the methods of `openai_wire.Chat`."""

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        key = headers.get("x-api-key") or (bearer if scheme.lower() == "bearer" else "")
        return key.strip() or None

    def auth_refusal(self, key: str | None) -> Refusal:
        message = "x-api-key header is required" if key is None else "invalid x-api-key"
        return Refusal(401, message)

    def unknown_model(self, name: str) -> Refusal:
        return Refusal(404, f"model: {name}")

    def status_refusal(self, status: int) -> Refusal:
        return Refusal(status, f"The request failed with status {status}.")

    def error_body(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        default = "invalid_request_error" if refusal.status < 500 else "api_error"
        place = "" if refusal.param is None else f"{refusal.param}: "
        error = {
            "type": _ERROR_TYPES.get(refusal.status, default),
            "message": f"{place}{refusal.message}",
        }
        return {"type": "error", "error": error, "request_id": request_id}

    def headers(self, request_id: str) -> tuple[tuple[str, str], ...]:
        return (("request-id", request_id),)

    def read(self, request: HttpRequest, body: Node, model: ModelSpec | None) -> TalkRequest:
        if "anthropic-version" not in request.headers:
            raise Refusal(400, "anthropic-version: header is required")
        messages = body.entry("messages").items()
        if not messages:
            body.entry("messages").fail("expected at least one message")
        tools = [tool.entry("name").text() for tool in body.members("tools")]
        choice = body.optional("tool_choice", lambda node: node, Node({"type": "auto"}, ""))
        kind = choice.entry("type").choice("auto", "any", "tool", "none")
        turns = _turns(messages)
        last = messages[-1]
        prefilled = last.entry("role").value == "assistant"
        if model is not None and model.reasoning:
            for name in ("temperature", "top_p", "top_k"):
                if body.value.get(name) not in (None, 1):
                    raise Refusal(400, f"`{name}` is deprecated for this model.")
            if prefilled:
                raise Refusal(400, "This model does not support assistant message prefill.")
        return TalkRequest(
            raw_body=request.body,
            model=body.entry("model").text(),
            system=body.optional("system", text_of, ""),
            turns=turns,
            offered=() if kind == "none" else tuple(tools),
            structured=choice.entry("name").text() if kind == "tool" else None,
            prefill=text_of(last.entry("content")) if prefilled else "",
            parallel=not choice.optional("disable_parallel_tool_use", Node.flag, default=False),
            max_tokens=body.entry("max_tokens").integer(),
            stop=body.optional("stop_sequences", Node.texts, ()),
            stream=body.optional("stream", Node.flag, default=False),
        )

    def write(self, conversation: TalkRequest, reply: Reply) -> tuple[bytes, ...]:
        if conversation.max_tokens == 0:  # the API only reads the prompt
            reply = Reply(finish="length")
        if conversation.structured is not None and reply.structured is not None:
            call = CallOut(conversation.structured, reply.structured)
            reply = replace(reply, structured=None, calls=(*reply.calls, call))
        text, reply = shape(reply, conversation)
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content += [
            {
                "type": "tool_use",
                "id": f"toolu_{conversation.fingerprint[:20]}{position:04}",
                "name": call.name,
                "input": call.arguments,
            }
            for position, call in enumerate(reply.calls)
        ]
        stop_reason = "tool_use" if reply.calls else "end_turn"
        if reply.stopped_at is not None:
            stop_reason = "stop_sequence"
        elif reply.finish is not None:
            stop_reason = {"stop": "end_turn", "length": "max_tokens"}[reply.finish]
        message: dict[str, Any] = {
            "id": f"msg_{conversation.fingerprint[:24]}",
            "type": "message",
            "role": "assistant",
            "model": conversation.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": reply.stopped_at,
        }
        if (usage := usage_of(conversation, reply, text)) is not None:
            message["usage"] = {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
            }
        if conversation.stream:
            return tuple(map(server_sent, _events(message)))
        return (json.dumps(message).encode("ascii"),)


def _turns(messages: list[Node]) -> Turns:
    """Return the turns; the message after a tool call must have its result."""
    turns = Turns()
    for message in messages:
        role = message.entry("role").choice("user", "assistant")
        content = message.entry("content")
        text = text_of(content)
        blocks = [] if isinstance(content.value, str) else content.items()
        for result in (each for each in blocks if each.value["type"] == "tool_result"):
            text_of_result = result.optional("content", text_of, "")
            turns.add_result(result, result.entry("tool_use_id").text(), text_of_result)
        turns.check()
        for use in (each for each in blocks if each.value["type"] == "tool_use"):
            name, arguments = use.entry("name").text(), use.entry("input").value
            turns.add_call(use, use.entry("id").text(), name, arguments)
        if role == "assistant":
            turns.add_assistant()
        elif text:
            turns.add_user(text)
    turns.check()
    return turns


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream: the empty message, its blocks in pieces, the stop reason."""
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    opening["usage"] = {**message.get("usage", {"input_tokens": 0}), "output_tokens": 1}
    yield {"type": "message_start", "message": opening}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    ending = {key: message[key] for key in ("stop_reason", "stop_sequence")}
    output_tokens = message.get("usage", {}).get("output_tokens", 0)
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": output_tokens}}
    yield {"type": "message_stop"}


def _block_events(index: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        opening: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": word} for word in words_of(block["text"])]
    else:
        opening = {**block, "input": {}}
        parts = halves(json.dumps(block["input"]))
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    yield {"type": "content_block_start", "index": index, "content_block": opening}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
