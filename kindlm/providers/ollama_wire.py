"""Ollama's chat API: requests and replies as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.ports import ModelRequest, ToolDefinition
from kindlm.providers.wire import (
    Draft,
    UnreadableReply,
    Wire,
    WireReply,
    WireRequest,
    error_message,
    function_calls,
    token_count,
    tool_parameters,
)
from kindlm.suite import ModelParams
from kindlm.transcript import FinishReason, Message, Role, Usage

__all__ = ["WIRE", "decode", "encode"]

_FINISH_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.MAX_TOKENS}


def encode(request: ModelRequest, refused: frozenset[str] = frozenset()) -> WireRequest:
    """Return the body of a chat request. Ollama ignores options that a model does not take."""
    last = len(request.messages) - 1
    # A prefill that has been answered is part of that answer already.
    spoken = [m for i, m in enumerate(request.messages) if not m.prefill or i == last]
    draft = Draft(request.model, refused, {"model": request.model})
    draft.add("messages", [_message(message) for message in spoken])
    draft.add("stream", False)
    draft.add("options", _options(request.params))
    draft.add("tools", [_tool(tool) for tool in request.tools] or None)
    if request.response_schema is not None:
        draft.add("format", dict(request.response_schema.schema))
    return draft.finished()


def decode(body: Mapping[str, Any], request: ModelRequest) -> WireReply:
    """Read a chat reply; raise `UnreadableReply` if it is none.

    What a model thought aloud stands beside its answer and is left out; the raw body has it.
    """
    message = body.get("message")
    if not isinstance(message, dict):
        raise UnreadableReply(error_message(body) or "it has no `message`")
    content = message.get("content")
    calls = function_calls(message)
    model = body.get("model")
    return WireReply(
        text=_prefill(request) + (content if isinstance(content, str) else ""),
        tool_calls=calls,
        usage=Usage(
            token_count(body.get("prompt_eval_count")), token_count(body.get("eval_count"))
        ),
        finish_reason=FinishReason.TOOL_CALLS if calls else _finish_reason(body.get("done_reason")),
        model=model if isinstance(model, str) else None,
    )


WIRE = Wire("/api/chat", encode, decode)


def _message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role.value, "content": message.text}
    if message.tool_calls:
        written["tool_calls"] = [
            {"function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.role is Role.TOOL and message.tool_name is not None:
        written["tool_name"] = message.tool_name
    return written


def _options(params: ModelParams) -> dict[str, Any]:
    options = {
        "temperature": params.temperature,
        "num_predict": params.max_tokens,
        "top_p": params.top_p,
        "seed": params.seed,
        "stop": list(params.stop_sequences) or None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool_parameters(tool)
    return {"type": "function", "function": function}


def _prefill(request: ModelRequest) -> str:
    last = request.messages[-1] if request.messages else None
    return last.text if last is not None and last.prefill else ""


def _finish_reason(value: Any) -> FinishReason | None:
    return _FINISH_REASONS.get(value, FinishReason.OTHER) if isinstance(value, str) else None
