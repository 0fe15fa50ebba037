"""OpenAI's Responses: an answer is a list of items, such as messages and calls.

The client runs calls with a `call_id`, unless the answer contains their output. The provider ran
all others: web searches, MCP servers, code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kindlm.dataclass import replace
from kindlm.transcript import Extras, FinishReason, Message, Role, ToolCall, Usage
from kindlm.wires import (
    UnreadableReply,
    WireAnswer,
    content_text,
    error_message,
    object_or_empty,
    objects,
    role_of,
    said_text,
    text_or_none,
    token_usage,
)

_INCOMPLETE = {
    "max_output_tokens": FinishReason.MAX_TOKENS,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_NAMELESS = frozenset({"function_call", "custom_tool_call", "mcp_call"})
"""Types of calls that do not name the tool."""

_KNOWN_FEES = frozenset({"web_search_call", "file_search_call", "mcp_call", "tool_search_call"})
"""Types of calls that the provider runs for a known fee, or for free.
https://platform.openai.com/docs/pricing"""

_RESULTS = ("output", "outputs", "results", "result")
_NOT_ARGUMENTS = frozenset({"id", "call_id", "type", "status", "name", "error", *_RESULTS})


def answer_of(body: Mapping[str, Any]) -> WireAnswer:
    """Read a response; raise `UnreadableReply` for anything else, or if it failed."""
    output, status = body.get("output"), body.get("status")
    if status in ("failed", "cancelled") or not isinstance(output, list):
        otherwise = f"its `status` is `{status}`" if output else "it has no `output`"
        raise UnreadableReply(error_message({"error": body.get("error")}) or otherwise)
    items = [item for item in objects(output) if text_or_none(item.get("type"))]
    if len(items) < len(output):
        raise UnreadableReply("its `output` holds something that is not an item")
    messages = (item for item in items if item.get("type") == "message")
    parts = [part for message in messages for part in objects(message.get("content"))]
    text = content_text([part for part in parts if part.get("type") != "refusal"])
    calls, hosted = list[ToolCall](), dict[str, Any]()
    for item in items:
        call = _call(item)
        if call is not None:
            calls.append(call)
            if not isinstance(item.get("call_id"), str):
                hosted[call.id] = _result(item)
        elif _is_output(item):
            hosted[item["call_id"]] = _result(item)
    is_own = any(call.id not in hosted for call in calls)
    return WireAnswer(
        text=text or content_text(parts),
        tool_calls=tuple(calls),
        usage=usage_of(body),
        finish_reason=_ending(body, refused=bool(parts) and not text, calls=is_own),
        model=text_or_none(body.get("model")),
        id=text_or_none(body.get("id")),
        hosted=hosted,
        # Any other status is of a response that goes on in the background.
        complete=status in ("completed", "incomplete", None),
    )


def usage_of(body: Mapping[str, Any]) -> Usage:
    """Return the tokens that a body reports."""
    tier = body.get("service_tier")
    usage = token_usage(body.get("usage"), "input_tokens", "output_tokens", tier)
    searches, in_files, unpriced = 0, 0, False
    for item in objects(body.get("output")):
        kind = str(item.get("type"))
        # The opening of a page is free.
        action = object_or_empty(item.get("action")).get("type", "search")
        searches += kind == "web_search_call" and action == "search"
        in_files += kind == "file_search_call"
        is_run = kind.endswith("_call") and "call_id" not in item
        unpriced |= (is_run and kind not in _KNOWN_FEES) or kind == "shell_call_output"
    if not searches and not in_files and not unpriced:
        return usage
    extras = usage.extras or Extras()
    extras = replace(extras, unpriced=unpriced or extras.unpriced)
    return replace(usage, extras=replace(extras, searches=searches, file_searches=in_files))


def whole_of(events: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], bool]:
    """Return the response in a stream's last event, and whether all its calls are there.

    A stream that was cut off gives a response with the items that arrived whole.

    Raises:
        UnreadableReply: an event reports an error.
    """
    body: Mapping[str, Any] = {}
    items, begun = list[Mapping[str, Any]](), set[str]()
    for event in events:
        kind = str(event.get("type"))
        if kind == "error" or event.get("error"):
            raise UnreadableReply(error_message(event) or "the stream ended with an error")
        item, response = event.get("item"), event.get("response")
        if kind == "response.output_item.done" and isinstance(item, dict):
            items.append(item)
        if kind == "response.output_item.added" and isinstance(item, dict):
            begun |= _call_ids([item])
        if isinstance(response, dict):
            body = response
        if kind in _ENDS:
            # Some servers omit items in the last event.
            output = body.get("output") or items
            known = _call_ids(objects(output))
            if isinstance(output, list):
                output = output + [item for item in items if _call_ids([item]) - known]
            return {**body, "output": output}, begun <= _call_ids(objects(output))
    return {**body, "output": items, "status": None}, False


def _call_ids(items: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the calls among items."""
    calls = (item for item in items if str(item.get("type")).endswith("_call"))
    return {str(item.get("call_id") or item.get("id")) for item in calls}


def messages_of(body: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a request, without those that it refers to by an id.

    Calls belong to the assistant's message right before them.
    """
    messages, items = list[Message](), body.get("input")
    for message in filter(None, map(_message, objects(items))):
        last = messages[-1] if messages else None
        if last is not None and last.role is Role.ASSISTANT and message.tool_calls:
            messages[-1] = replace(last, tool_calls=(*last.tool_calls, *message.tool_calls))
        else:
            messages.append(message)
    if isinstance(items, str):
        messages.append(Message(Role.USER, items))
    system = body.get("instructions")
    return [Message(Role.SYSTEM, system), *messages] if isinstance(system, str) else messages


def _message(item: Mapping[str, Any]) -> Message | None:
    if _is_output(item):
        return Message(Role.TOOL, said_text(item.get("output")), (), item["call_id"])
    if (call := _call(item)) is not None:
        return Message(Role.ASSISTANT, "", (call,))
    if "role" in item:
        return Message(role_of(item["role"]), said_text(item.get("content")))
    return None


def _call(item: Mapping[str, Any]) -> ToolCall | None:
    """Return the call of an item; None for other items.

    Raises:
        UnreadableReply: the call has no id or no name.
    """
    kind = str(item.get("type"))
    # An unknown type with the id of a call is that of a call, too.
    if not kind.endswith("_call") and (not item.get("call_id") or kind.endswith("_output")):
        return None
    call_id = item.get("call_id") or item.get("id")
    is_nameless = kind in _NAMELESS or not kind.endswith("_call")
    name = item.get("name") if is_nameless else kind.removesuffix("_call")
    if not isinstance(call_id, str) or not (isinstance(name, str) and name):
        raise UnreadableReply("a tool call in it has no id or no name")
    return ToolCall.parse(call_id, name, _arguments(item))


def _arguments(item: Mapping[str, Any]) -> Any:
    """Return the arguments of a call: JSON text, an object, or all other keys of the item."""
    if item.get("type") == "custom_tool_call":
        return {"input": item.get("input")}
    for key in ("arguments", "action", "operation"):
        if item.get(key) is not None:
            return item[key]
    return {key: value for key, value in item.items() if key not in _NOT_ARGUMENTS}


def _result(item: Mapping[str, Any]) -> Any:
    if item.get("error"):
        return {"error": item["error"]}
    return next((item[key] for key in _RESULTS if item.get(key) is not None), None)


def _is_output(item: Mapping[str, Any]) -> bool:
    return str(item.get("type")).endswith("_output") and isinstance(item.get("call_id"), str)


def _ending(body: Mapping[str, Any], *, refused: bool, calls: bool) -> FinishReason | None:
    if body.get("status") == "incomplete":
        reason = object_or_empty(body.get("incomplete_details")).get("reason")
        return _INCOMPLETE.get(str(reason), FinishReason.OTHER)
    if body.get("status") != "completed":
        return None
    if refused:
        return FinishReason.CONTENT_FILTER
    return FinishReason.TOOL_CALLS if calls else FinishReason.STOP
