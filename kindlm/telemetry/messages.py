"""Reads messages and tool definitions in the forms of models' APIs and of frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.ports import ToolDefinition
from kindlm.strict_json import read_json
from kindlm.wires import object_or_empty, text_or_none

HIDDEN = "__REDACTED__"
"""What OpenInference writes in place of content."""

MAX_DEPTH = 12
_CLASSES = {
    "HumanMessage": "user",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "AIMessage": "assistant",
}


def unwrapped(value: Any) -> Any:
    """Return a message without the wrapper of LangChain's serialisation."""
    if not isinstance(value, dict):
        return value
    inner, path = value.get("kwargs"), value.get("id")
    if "lc" in value and isinstance(inner, dict):
        name = str(path[-1]).removesuffix("Chunk") if isinstance(path, list) and path else ""
        return {"role": _CLASSES[name], **inner} if name in _CLASSES else inner
    inner = value.get("data")
    if not isinstance(inner, dict) or {"content", "tool_call_id"}.isdisjoint(inner):
        return value
    return {"role": value["type"], **inner} if "type" in value else value


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A tool call that a model asked for in a message."""

    id: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Said:
    """A message to or from a model.

    `results` are tool results, each with the id of its call. `is_whole` means that the message has
    only text, calls and results. `ended` is the finish reason.
    """

    role: str
    text: str
    calls: tuple[AskedCall, ...]
    results: tuple[tuple[str, Any], ...]
    is_whole: bool
    ended: Any


_HOLDERS = (
    "messages", "generations", "choices", "message", "output", "outputs", "input", "inputs",
    "prompt", "question", "query",
)  # fmt: skip
"""Keys that hold messages in inputs and outputs, in the order in which they are tried."""


def messages_in(value: Any, depth: int = 0) -> list[Said]:
    """Return the messages in an input or output, in any form of a model's API or a framework.

    A text alone is a message of the user.
    """
    value = unwrapped(value)
    if isinstance(value, str):
        read = read_json(value) if value[:1] in ("[", "{") else value
        if isinstance(read, str):
            return [read_message({"role": "user", "content": value})] if value.strip() else []
        value = read
    if depth > MAX_DEPTH or not isinstance(value, list | dict):
        return []
    if isinstance(value, list):
        if len(value) == 2 and value[0] in _PAIRED and isinstance(value[1], str):
            return [read_message({"role": value[0], "content": value[1]})]  # a form of LangChain
        return [said for each in value for said in messages_in(each, depth + 1)]
    if not _OF_MESSAGE.isdisjoint(value) or _is_bare_call(value):
        return [read_message(value)]
    held = _first(value, *_HOLDERS)
    if held is None:
        return [read_message(value)]
    system = _first(value, "system", "instructions")
    before = [read_message({"role": "system", "content": system})] if system else []
    return before + messages_in(held, depth + 1)


_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_PAIRED = (*_ROLES, "user", "assistant")
"""The roles in LangChain's form of a message, a role and a text."""
_TEXTS = frozenset({"text", "input_text", "output_text"})
_CALL_TYPES = ("tool_call", "tool-call", "tool_use", "function_call")
"""How the types of calls end: some begin with who runs the tool, as `server_tool_call`."""
_RESULT_TYPES = ("tool_call_response", "tool-result", "tool_result", "function_call_output")


def read_message(message: dict[str, Any]) -> Said:
    """Read one message with all its parts."""
    content = message.get("content")
    if isinstance(content, str) and content.startswith('[{"type"'):  # parts, in OpenLLMetry's form
        message = message | {"content": read_json(content)}
    role, texts, is_whole, ended = "", list[str](), True, None
    calls, results = list[AskedCall](), list[tuple[str, Any]]()
    for part in _parts(message):
        kind = str(part.get("type"))
        role = role or str(part.get("role") or (kind if kind in _ROLES else ""))
        ended = ended or part.get("finish_reason")
        results += _results(part, kind)
        if kind.endswith(_RESULT_TYPES):
            continue
        function = part.get("function")
        inner = function if isinstance(function, dict) else part
        is_call = kind.endswith(_CALL_TYPES) or "toolName" in part or _is_bare_call(part)
        if inner is not part or is_call:
            key = _first(part, "call_id", "id", "toolCallId", "toolUseId")
            name = text_or_none(_first(inner, "name", "toolName"))
            given = read_json(_first(inner, "arguments", "args", "input", "server_tool_call"))
            if inner is not part and _OF_ARGUMENTS.isdisjoint(part | inner):
                given = {}  # OpenInference leaves out "{}", and alone has no type
            calls.append(AskedCall(str(key or ""), name or "", given))
        if inner is part and not kind.endswith(_CALL_TYPES):
            texts += [text for key in ("content", "text") if isinstance(text := part.get(key), str)]
            has_kind = "type" in part and part is not message and kind not in _ROLES
            is_whole = is_whole and not (has_kind and kind not in _TEXTS)
    role = _ROLES.get(role.lower(), role.lower()) or "user"
    text = "" if role == "tool" else "\n".join(text for text in texts if text != HIDDEN)
    return Said(role, text, tuple(calls), tuple(results), is_whole, ended)


_OF_ARGUMENTS = {"type", "arguments", "args", "input"}


def _is_bare_call(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a call in older conventions, of Bedrock, or of Gemini."""
    return "name" in part and not {"arguments", "args", "input"}.isdisjoint(part)


def _results(part: dict[str, Any], kind: str) -> list[tuple[str, Any]]:
    """Return the tool result that a part of a message is, with the id of its call."""
    of_bedrock = part.get("toolResult")
    if isinstance(of_bedrock, dict) and {"toolUseId", "content"} <= of_bedrock.keys():
        # The form of Bedrock's Converse API, which Strands Agents uses.
        content = of_bedrock["content"]
        if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
            content = read_json(_first(content[0], "text", "json"))
        failed = of_bedrock.get("status") == "error"
        return [(str(of_bedrock["toolUseId"]), {"error": content} if failed else content)]
    # A message in an event `gen_ai.tool.message` has no role.
    is_result = (
        kind.endswith(_RESULT_TYPES) or part.get("role") == "tool" or {"id", "content"} <= set(part)
    )
    if not is_result:
        return []
    key = _first(part, "tool_call_id", "toolCallId", "tool_use_id", "call_id", "id")
    value = _first(part, "response", "result", "output", "content", "server_tool_call_response")
    if isinstance(value, dict) and value.keys() == {"type", "value"}:
        value = value["value"]  # the AI SDK wraps results with their type
    return [(key, read_json(value))] if isinstance(key, str) and value is not None else []


def definitions_in(value: Any, depth: int = 0) -> Iterator[ToolDefinition]:
    """Yield the tool definitions in a JSON value, whatever the form of the model's API."""
    value = read_json(value)
    if depth > MAX_DEPTH or not isinstance(value, list | dict):
        return
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and not value.keys().isdisjoint(_SCHEMAS):
            schema = object_or_empty(read_json(_first(value, *_SCHEMAS)))
            yield ToolDefinition(value["name"], text_or_none(value.get("description")), schema)
            return
        value = list(value.values())
    for each in value:
        yield from definitions_in(each, depth + 1)


_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema")
_WITHIN = (
    "message", "messages", "parts", "content", "contents", "tool_calls", "toolCalls", "tool_call",
    "message_content", "toolUse", "function_call", "functionCall",
)  # fmt: skip
"""Keys under which a message holds other messages, parts and calls."""
_OF_MESSAGE = {"role", "toolName", "call_id", "finish_reason", *_WITHIN} - {"message", "messages"}
"""Keys that only messages have."""


def _parts(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield all objects of a message, outer ones before inner ones."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str) and value[:1] in ("[", "{") and depth:
        value = read_json(value)
    if isinstance(value, list):
        for each in value:
            yield from _parts(each, depth + 1)
    elif isinstance(value, dict):
        yield value
        keys = value if value.keys() and all(key.isdigit() for key in value) else _WITHIN
        for key in keys:
            if key in value and not (key == "content" and isinstance(value[key], str)):
                yield from _parts(value[key], depth + 1)


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    return next((value[key] for key in keys if value.get(key) is not None), None)
