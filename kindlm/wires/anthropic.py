"""Anthropic's Messages: the content of an answer is a list of blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kindlm.transcript import FinishReason, Message, Role, ToolCall, Usage
from kindlm.wires import (
    UnreadableReply,
    WireAnswer,
    error_message,
    extras_from,
    object_or_empty,
    objects,
    role_of,
    said_text,
    text_or_none,
    token_count,
)

_FINISH_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.MAX_TOKENS,
    "model_context_window_exceeded": FinishReason.MAX_TOKENS,
    "refusal": FinishReason.CONTENT_FILTER,
}
_CONTENT = frozenset({"text", "image", "document"})


def answer_of(body: Mapping[str, Any]) -> WireAnswer:
    """Read a message; raise `UnreadableReply` for anything else.

    Blocks of unknown types, such as thinking, are left out.
    """
    content = body.get("content")
    if not isinstance(content, list):
        raise UnreadableReply(error_message(body) or "it has no `content`")
    texts, calls, hosted = list[str](), list[ToolCall](), dict[str, Any]()
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if not (isinstance(kind, str) and kind):
            raise UnreadableReply("its `content` holds something that is not a block")
        if kind == "text":
            texts.append(text_or_none(block.get("text")) or "")
        elif _is_call(block):
            calls.append(_tool_call(block))
            if kind != "tool_use":
                hosted.setdefault(calls[-1].id, None)
        elif isinstance(block.get("tool_use_id"), str):
            hosted[block["tool_use_id"]] = _result(block)
    ended, reason = body.get("stop_reason"), None
    if isinstance(ended, str):
        reason = _FINISH_REASONS.get(ended, FinishReason.OTHER)
    return WireAnswer(
        text="".join(texts),
        tool_calls=tuple(calls),
        usage=usage_of(body),
        finish_reason=reason,
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
        hosted=hosted,
    )


def whole_of(events: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], bool]:
    """Return the message that the events of a stream form, and whether the stream is complete."""
    body, counts, is_whole, is_counted = dict[str, Any](), dict[str, Any](), False, False
    # An agent may pass on the events of several messages, each with block indices from 0.
    blocks, current = list[dict[str, Any]](), dict[int, dict[str, Any]]()
    for event in events:
        kind, index, delta = event.get("type"), event.get("index"), event.get("delta")
        index, delta = index if isinstance(index, int) else 0, object_or_empty(delta)
        block = event.get("content_block")
        if kind == "content_block_delta" and index not in current:
            block = {"type": "tool_use" if "partial_json" in delta else "text"}
        if isinstance(block, dict):
            current[index] = dict(block)
            blocks.append(current[index])
        if kind == "message_start" and isinstance(event.get("message"), dict):
            body, current = dict(event["message"]), {}
        elif kind == "content_block_delta":
            for key, name in (("text", "text"), ("input", "partial_json")):
                if isinstance(delta.get(name), str):
                    before = text_or_none(current[index].get(key)) or ""
                    current[index][key] = before + delta[name]
        elif kind == "message_delta":
            body["stop_reason"] = delta.get("stop_reason")
            for usage in (body.pop("usage", None), event.get("usage")):
                reported = object_or_empty(usage).items()
                counts |= {name: count for name, count in reported if count is not None}
            body["usage"] = counts
            is_counted |= "output_tokens" in object_or_empty(event.get("usage"))
        elif kind == "message_stop":
            is_whole = True
    if blocks and not is_counted:
        # `message_start` counts only the tokens until then.
        body["usage"] = {**object_or_empty(body.get("usage")), "output_tokens": None}
    # Some servers send the whole message in `message_start`.
    content = blocks or body.get("content") or []
    return (body | {"content": content} if body or blocks else {}), is_whole


def messages_of(body: Mapping[str, Any]) -> Iterator[Message]:
    """Yield the messages of a request; tool results come before the text of their message."""
    system = said_text(body.get("system"))
    if system:
        yield Message(Role.SYSTEM, system)
    for message in objects(body.get("messages")):
        role, content = role_of(message.get("role")), message.get("content")
        blocks = objects(content)
        for block in blocks:
            if isinstance(block.get("tool_use_id"), str):
                result = _result(block)
                text = result if isinstance(result, str) else json.dumps(result)
                yield Message(Role.TOOL, text, (), block["tool_use_id"])
        calls = tuple(_tool_call(each) for each in blocks if _is_call(each))
        shown = [block for block in blocks if str(block.get("type")) in _CONTENT]
        text = content if isinstance(content, str) else said_text(shown)
        if text or calls:
            yield Message(role, text, calls)


def _is_call(block: Mapping[str, Any]) -> bool:
    """Return whether a block is a call: `tool_use`, `server_tool_use`, or of a kind yet to come.

    The provider runs all but the first kind; their results are blocks of the same answer.
    """
    return str(block.get("type")).endswith("tool_use")


def _tool_call(block: Mapping[str, Any]) -> ToolCall:
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not (isinstance(name, str) and name):
        raise UnreadableReply("a tool call in it has no id or no name")
    return ToolCall.parse(call_id, name, block.get("input"))


def _result(block: Mapping[str, Any]) -> Any:
    """Return the result of a call: as text if it consists of text, images and documents."""
    content = block.get("content")
    parts = objects(content)
    if parts and all(str(part.get("type")) in _CONTENT for part in parts):
        content = said_text(parts)
    return {"error": content} if block.get("is_error") is True else content


def usage_of(body: Mapping[str, Any]) -> Usage:
    """Return the tokens that a body reports.

    Anthropic's `input_tokens` excludes tokens written to or read from the prompt cache. They are
    added, as other providers count them as input.
    """
    usage = object_or_empty(body.get("usage"))
    blocks = objects(body.get("content"))
    ran = {str(each.get("name")) for each in blocks if each.get("type") == "server_tool_use"}
    runs_code = any(name.endswith("code_execution") for name in ran)
    cached = (usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens"))
    is_known = all(count is None or token_count(count) is not None for count in cached)
    fresh = token_count(usage.get("input_tokens")) if is_known else None
    output = token_count(usage.get("output_tokens"))
    iterations = objects(usage.get("iterations"))
    extras = extras_from(
        *cached,
        object_or_empty(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"),
        object_or_empty(usage.get("server_tool_use")).get("web_search_requests"),
        tier="fast" if usage.get("speed") == "fast" else usage.get("service_tier"),
        us_only=usage.get("inference_geo") == "us",
        # Code execution is free together with web tools. Advisors and fallbacks are other models.
        unpriced=(runs_code and ran.isdisjoint(("web_search", "web_fetch")))
        or any(each.get("type") not in ("message", "compaction") for each in iterations),
    )
    if fresh is None or extras is None:
        whole = Usage(fresh, output)
    else:
        whole = Usage(fresh + extras.cache_read + extras.cache_written, output, extras)
    # The other numbers leave out compactions.
    shared = {key: usage.get(key) for key in ("service_tier", "speed", "inference_geo")}
    compactions = [each for each in iterations if each.get("type") == "compaction"]
    return sum((usage_of({"usage": {**shared, **each}}) for each in compactions), whole)
