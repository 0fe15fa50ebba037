"""OpenAI's Chat Completions, which many other servers speak with deviations.

Reading is lenient if a deviation has only one meaning, such as content as a list of parts or
arguments as an object, and strict otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kindlm.dataclass import replace
from kindlm.transcript import Extras, FinishReason, Message, Role, ToolCall, Usage
from kindlm.wires import (
    DONE,
    UnreadableReply,
    WireAnswer,
    content_text,
    error_message,
    object_or_empty,
    objects,
    role_of,
    said_text,
    text_or_none,
    token_count,
    token_usage,
)

_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.MAX_TOKENS,
    "model_length": FinishReason.MAX_TOKENS,  # Mistral
    "content_filter": FinishReason.CONTENT_FILTER,
}

_CUT_OFF = frozenset({"error", "abort", "insufficient_system_resource"})
"""Finish reasons of unfinished answers: of Mistral and OpenRouter, of vLLM and SGLang, and of
DeepSeek."""

_OF_ANSWER = ("id", "model", "usage", "service_tier")
"""Keys in the chunks of a stream that are about the whole answer."""


def answer_of(body: Mapping[str, Any]) -> WireAnswer:
    """Read a chat completion; raise `UnreadableReply` for anything else, or if it was cut off."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise UnreadableReply(error_message(body) or "it has no `choices`")
    message, ending = choices[0].get("message"), choices[0].get("finish_reason")
    if not isinstance(message, dict):
        raise UnreadableReply(error_message(choices[0]) or "its first choice has no `message`")
    # https://openrouter.ai/docs/api/reference/errors-and-debugging
    cut_by = choices[0].get("error")
    if cut_by or (isinstance(ending, str) and ending in _CUT_OFF):
        raise UnreadableReply(error_message({"error": cut_by}) or "an error cut it off")
    return WireAnswer(
        text=text_of(message),
        # The agent may have run the calls of any choice.
        tool_calls=tuple(
            call
            for each in objects([choice.get("message") for choice in objects(choices)])
            for call in function_calls(each)
        ),
        usage=usage_of(body),
        finish_reason=_ending(ending, message),
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
    )


def usage_of(body: Mapping[str, Any]) -> Usage:
    """Return the tokens that a body reports.

    Some providers count, and bill, reasoning tokens only in the total. xAI:
    https://docs.x.ai/docs/key-information/consumption-and-rate-limits.
    """
    reported, tier = body.get("usage"), body.get("service_tier")
    usage = token_usage(reported, "prompt_tokens", "completion_tokens", tier)
    messages = objects([choice.get("message") for choice in objects(body.get("choices"))])
    if any(message.get("executed_tools") for message in messages):
        # Groq charges for tools that it runs: https://groq.com/pricing
        usage = replace(usage, extras=replace(usage.extras or Extras(), unpriced=True))
    total = token_count(reported.get("total_tokens")) if isinstance(reported, dict) else None
    if total is None or usage.input_tokens is None or usage.output_tokens is None:
        return usage
    return replace(usage, output_tokens=max(usage.output_tokens, total - usage.input_tokens))


def whole_of(events: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], bool]:
    """Return the completion that the chunks of a stream form, and whether the stream is complete.

    Raises:
        UnreadableReply: the tool calls of a chunk cannot be read.
    """
    body: dict[str, Any] = {}
    message: dict[str, Any] = {"content": "", "refusal": ""}
    calls, current = list[dict[str, Any]](), dict[str, dict[str, Any]]()
    reason, is_done = None, False
    for chunk in events:
        if chunk.get("type") == DONE:
            is_done = True
            break
        body |= {key: chunk[key] for key in _OF_ANSWER if chunk.get(key)}
        # The first choice gives the text, and all choices give calls.
        for choice in objects(chunk.get("choices")):
            number, delta = choice.get("index") or 0, choice.get("delta")
            if not number:
                reason = choice.get("finish_reason") or reason
            if isinstance(choice.get("message"), dict):
                delta = _missing_parts(choice["message"], message, calls)
            if not isinstance(delta, dict):
                continue
            if delta.get("executed_tools"):
                message["executed_tools"] = delta["executed_tools"]
            for key in ("content", "refusal"):
                message[key] += "" if number else content_text(delta.get(key))
            if delta.get("function_call") is not None:
                old = {"function": delta["function_call"]}
                _add_piece(calls, current, f"{number}/old", old)
            pieces = delta.get("tool_calls")
            if pieces is not None and not (isinstance(pieces, list) and objects(pieces) == pieces):
                raise UnreadableReply(
                    "its tool calls, `delta.tool_calls`, are not a list of objects"
                )
            for position, piece in enumerate(pieces or ()):
                index = piece.get("index")
                index = index if isinstance(index, int | str) else position
                _add_piece(calls, current, f"{number}/{index}", piece)
    if calls:
        message["tool_calls"] = calls
    choice = {"message": message, "finish_reason": reason}
    return body | {"choices": [choice]}, is_done or reason is not None


def _missing_parts(
    whole: Mapping[str, Any], joined: Mapping[str, Any], calls: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the parts of a whole message in a stream that the pieces before it do not have."""
    missing = {key: value for key, value in whole.items() if not joined.get(key)}
    listed, known = whole.get("tool_calls"), {call["id"] for call in calls}
    if calls:
        missing.pop("function_call", None)
    if calls and isinstance(listed, list):
        missing["tool_calls"] = [
            call for call in objects(listed) if text_or_none(call.get("id")) not in known
        ]
    return missing


def _add_piece(
    calls: list[dict[str, Any]],
    current: dict[str, dict[str, Any]],
    index: str,
    piece: Mapping[str, Any],
) -> None:
    """Add a piece of a call to the calls.

    Pieces with the same index form one call, unless their ids differ. Without ids, a name after
    arguments begins another call.
    """
    call, call_id = current.get(index), text_or_none(piece.get("id"))
    function = object_or_empty(piece.get("function"))
    name, arguments = function.get("name"), function.get("arguments")
    if call is None or (
        call_id != call["id"] if call_id and call["id"] else name and call["function"]["arguments"]
    ):
        call = current[index] = {"id": call_id, "function": {"name": "", "arguments": ""}}
        calls.append(call)
    call["id"] = call["id"] or call_id
    whole = call["function"]
    # Some servers send id and name again with each piece.
    if isinstance(name, str) and name != whole["name"]:
        whole["name"] += name
    if isinstance(arguments, dict):
        whole["arguments"] = arguments
    elif isinstance(arguments, str) and isinstance(whole["arguments"], str):
        whole["arguments"] += arguments


def messages_of(body: Mapping[str, Any]) -> Iterator[Message]:
    """Yield the messages of a request."""
    for message in objects(body.get("messages")):
        role, text = role_of(message.get("role")), said_text(message.get("content"))
        if role is Role.TOOL:
            # The older form of results has no id.
            named = text_or_none(message.get("tool_call_id")) or "call_0"
            yield Message(role, text, (), named, text_or_none(message.get("name")))
        else:
            yield Message(role, text, function_calls(message))


def function_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls of a message in OpenAI's form, which Ollama shares, or its older form.

    Calls without an id are numbered.

    Raises:
        UnreadableReply: `tool_calls` is not a list of calls, and may hide a forbidden call.
    """
    listed = message.get("tool_calls")
    if listed is not None and not isinstance(listed, list):
        raise UnreadableReply("its `tool_calls` is not a list")
    if not listed and message.get("function_call") is not None:
        listed = [{"function": message["function_call"]}]
    calls = []
    for index, each in enumerate(listed or ()):
        call = object_or_empty(each)
        function = object_or_empty(call.get("function"))
        name = text_or_none(function.get("name"))
        if not name:
            raise UnreadableReply(f"its tool call {index} has no function name")
        call_id = text_or_none(call.get("id")) or f"call_{index}"
        calls.append(ToolCall.parse(call_id, name, function.get("arguments")))
    return tuple(calls)


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, or its refusal."""
    return content_text(message.get("content")) or text_or_none(message.get("refusal")) or ""


def _ending(value: Any, message: Mapping[str, Any]) -> FinishReason | None:
    """Return the finish reason; servers report a refusal as a regular end."""
    if text_or_none(message.get("refusal")) and not message.get("content"):
        return FinishReason.CONTENT_FILTER
    return _FINISH_REASONS.get(value, FinishReason.OTHER) if isinstance(value, str) else None
