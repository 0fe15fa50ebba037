"""OpenAI's Chat Completions, and everything that speaks this format.

Many servers speak it, not always to the letter. Reading is lenient if a deviation has only one
meaning (content as a list of parts, arguments as an object), and strict otherwise.
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

_BROKEN_OFF = frozenset({"error", "abort", "insufficient_system_resource"})
"""Why an answer ended that its server did not finish: Mistral's and OpenRouter's, vLLM's and
SGLang's, DeepSeek's."""

_ABOUT = ("id", "model", "usage", "service_tier")
"""What chunks of a stream say of the whole answer."""


def answer_of(body: Mapping[str, Any]) -> WireAnswer:
    """Read a chat completion; raise `UnreadableReply` if it is none, or an error cut it off."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise UnreadableReply(error_message(body) or "it has no `choices`")
    message, ending = choices[0].get("message"), choices[0].get("finish_reason")
    if not isinstance(message, dict):
        raise UnreadableReply(error_message(choices[0]) or "its first choice has no `message`")
    # https://openrouter.ai/docs/api/reference/errors-and-debugging
    cut_by = choices[0].get("error")
    if cut_by or (isinstance(ending, str) and ending in _BROKEN_OFF):
        raise UnreadableReply(error_message({"error": cut_by}) or "an error cut it off")
    return WireAnswer(
        text=text_of(message),
        # Whoever asked for several choices may have run the calls of any.
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

    Those of thoughts some providers count, and bill, only in the total. xAI:
    https://docs.x.ai/docs/key-information/consumption-and-rate-limits.
    """
    told, tier = body.get("usage"), body.get("service_tier")
    usage = token_usage(told, "prompt_tokens", "completion_tokens", tier)
    messages = objects([choice.get("message") for choice in objects(body.get("choices"))])
    if any(message.get("executed_tools") for message in messages):
        # Groq ran them, for a fee: https://groq.com/pricing
        usage = replace(usage, extras=replace(usage.extras or Extras(), unpriced=True))
    total = token_count(told.get("total_tokens")) if isinstance(told, dict) else None
    if total is None or usage.input_tokens is None or usage.output_tokens is None:
        return usage
    return replace(usage, output_tokens=max(usage.output_tokens, total - usage.input_tokens))


def whole_of(events: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], bool]:
    """Put the chunks of a stream together; return whether it came to its end.

    Raises:
        UnreadableReply: it says that the provider failed.
    """
    body: dict[str, Any] = {}
    message: dict[str, Any] = {"content": "", "refusal": ""}
    calls, current = list[dict[str, Any]](), dict[str, dict[str, Any]]()
    reason, is_done = None, False
    for chunk in events:
        if chunk.get("type") == DONE:
            is_done = True
            break
        if chunk.get("error"):
            raise UnreadableReply(error_message(chunk) or "the stream ended with an error")
        body |= {key: chunk[key] for key in _ABOUT if chunk.get(key)}
        # Of several choices, the first one is the answer; calls are those of all.
        for choice in objects(chunk.get("choices")):
            number, delta = choice.get("index") or 0, choice.get("delta")
            if not number:
                reason = choice.get("finish_reason") or reason
            if isinstance(choice.get("message"), dict):
                delta = _unsaid(choice["message"], message, calls)
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


def _unsaid(
    whole: Mapping[str, Any], said: Mapping[str, Any], calls: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return what no piece has said of a message that comes whole, alone or after its pieces."""
    unsaid = {key: value for key, value in whole.items() if not said.get(key)}
    listed, known = whole.get("tool_calls"), {call["id"] for call in calls}
    if calls and isinstance(listed, list):
        unsaid.pop("function_call", None)
        unsaid["tool_calls"] = [call for call in objects(listed) if call.get("id") not in known]
    return unsaid


def _add_piece(
    calls: list[dict[str, Any]],
    current: dict[str, dict[str, Any]],
    index: str,
    piece: Mapping[str, Any],
) -> None:
    """Take a piece of a call.

    Pieces with one index are one call, unless their ids differ. Without ids, a name that comes
    after arguments begins another call.
    """
    call, call_id, function = current.get(index), piece.get("id"), piece.get("function")
    function = function if isinstance(function, dict) else {}
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
    """Return the messages of a request."""
    for message in objects(body.get("messages")):
        role, text = role_of(message.get("role")), said_text(message.get("content"))
        if role is Role.TOOL:
            # Before there were ids, a result went by the name of its function.
            named = text_or_none(message.get("tool_call_id")) or "call_0"
            yield Message(role, text, (), named, text_or_none(message.get("name")))
        else:
            try:
                calls = function_calls(message)
            except UnreadableReply:
                calls = ()
            yield Message(role, text, calls)


def function_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls of a message as OpenAI and Ollama write them, also in OpenAI's older form.

    Older servers send no ids; their calls are numbered.

    Raises:
        UnreadableReply: what stands there is not a list of calls. It may be a forbidden call.
    """
    listed = message.get("tool_calls")
    if listed is not None and not isinstance(listed, list):
        raise UnreadableReply("its `tool_calls` is not a list")
    if not listed and message.get("function_call") is not None:
        listed = [{"function": message["function_call"]}]
    calls = []
    for index, call in enumerate(listed or ()):
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            raise UnreadableReply(f"its tool call {index} has no function name")
        call_id = call.get("id")
        known = isinstance(call_id, str) and call_id
        calls.append(
            ToolCall.told(call_id if known else f"call_{index}", name, function.get("arguments"))
        )
    return tuple(calls)


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message; a refusal if there is nothing else."""
    return content_text(message.get("content")) or text_or_none(message.get("refusal")) or ""


def _ending(value: Any, message: Mapping[str, Any]) -> FinishReason | None:
    """Return why an answer ended; a refusal ends as regularly as an answer does."""
    if (
        isinstance(message.get("refusal"), str)
        and message["refusal"]
        and not message.get("content")
    ):
        return FinishReason.CONTENT_FILTER
    return _FINISH_REASONS.get(value, FinishReason.OTHER) if isinstance(value, str) else None
