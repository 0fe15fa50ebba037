"""The attributes of spans in all conventions, in tables, and their readers.

Instrumentations mix conventions (the AI SDK of Vercel also writes `gen_ai.*`), so each fact is
looked up under the names of all conventions in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.ports import ToolDefinition
from kindlm.strict_json import read_json
from kindlm.telemetry.spans import Span
from kindlm.wires import object_or_empty, text_or_none, token_count


class Kind(StrEnum):
    """What a span is about: a model call, a tool call, a run of an agent, or anything else."""

    CHAT = "chat"
    TOOL = "tool"
    AGENT = "agent"
    OTHER = "other"


_KIND_ATTRIBUTES = (
    "gen_ai.operation.name",  # OpenTelemetry's semantic conventions for GenAI
    "mcp.method.name",  # those for MCP, of client and server
    "openinference.span.kind",
    "traceloop.span.kind",  # OpenLLMetry, as the next
    "llm.request.type",
    "ai.operationId",  # the AI SDK of Vercel
)
"""Attributes that give the kind of a span."""

_KINDS: Mapping[Kind, tuple[str, ...]] = {
    Kind.CHAT: (
        "chat", "text_completion", "generate_content", "llm", "completion",
        "ai.generatetext.dogenerate", "ai.streamtext.dostream",
        "ai.generateobject.dogenerate", "ai.streamobject.dostream",
    ),
    Kind.TOOL: ("execute_tool", "tools/call", "tool", "ai.toolcall"),
    Kind.AGENT: (
        "invoke_agent", "invoke_workflow", "create_agent", "agent", "workflow",
        "ai.generatetext", "ai.streamtext", "ai.generateobject", "ai.streamobject",
    ),
}  # fmt: skip
"""The values of these attributes in all conventions, in lower case."""

_KIND_OF = {value: kind for kind, values in _KINDS.items() for value in values}

_NAMES: Mapping[str, tuple[str, ...]] = {
    "tool": ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name"),
    "call id": ("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id"),
    "arguments": (
        "gen_ai.tool.call.arguments",
        "ai.toolCall.args",
        "tool_arguments",  # pydantic-ai until its version 3 of the conventions
        "gcp.vertex.agent.tool_call_args",
        "traceloop.entity.input",
        "input.value",
    ),
    "result": (
        "gen_ai.tool.call.result",
        "ai.toolCall.result",
        "tool_response",
        "gcp.vertex.agent.tool_response",
        "traceloop.entity.output",
        "output.value",
    ),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    "model": (
        "gen_ai.response.model",
        "ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "llm.request.model",
        "ai.model.id",
    ),
    "input tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "ai.usage.inputTokens",
        "ai.usage.promptTokens",
    ),
    "output tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.outputTokens",
        "ai.usage.completionTokens",
    ),
    # Only these two are known to be included in the input tokens.
    "cache read": ("gen_ai.usage.cache_read.input_tokens",),
    "cache written": ("gen_ai.usage.cache_creation.input_tokens",),
    "tier": ("openai.response.service_tier", "gen_ai.openai.response.service_tier"),
    "finish": (
        "gen_ai.response.finish_reasons",
        "llm.finish_reason",
        "ai.response.finishReason",
        "gen_ai.completion.0.finish_reason",
    ),
    "text": ("ai.response.text", "ai.response.object"),
    "said": (
        "ai.response.toolCalls",
        "gen_ai.output.messages",
        "llm.output_messages.",
        "gen_ai.completion.",
    ),
    "asked": (
        "gen_ai.input.messages",
        "ai.prompt.messages",
        "llm.input_messages.",
        "gen_ai.prompt.",
    ),
    "system": ("gen_ai.system_instructions",),
    "tools": (
        "gen_ai.tool.definitions",
        "ai.prompt.tools",
        "model_request_parameters",
        "llm.invocation_parameters",
        "llm.tools.",
        "llm.request.functions.",
    ),
    "input": ("input.value", "traceloop.entity.input", "ai.prompt"),
}
"""The attributes that may hold a fact, the best ones first.

A name with a dot at its end is the beginning of attributes that hold a part of a message each:
`gen_ai.prompt.0.content`.
"""

_EVENTS = {"said": "gen_ai.choice", "asked": "gen_ai.tool.message", "tools": ""}
"""Events of spans that hold messages, in older conventions."""

_CAPTURE: Mapping[tuple[str, ...], str] = {
    ("kindlm.",): "export the run with --contents",
    ("openinference.",): "unset OPENINFERENCE_HIDE_INPUTS and OPENINFERENCE_HIDE_OUTPUTS",
    (
        "traceloop.",
        "llm.request.type",
        "gen_ai.openai.api_base",
    ): "set TRACELOOP_TRACE_CONTENT=true",
    ("model_request_parameters",): "leave include_content of Pydantic AI's settings on",
    ("ai.",): "leave recordInputs and recordOutputs of experimental_telemetry on",
    ("",): (
        "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true (in newer ones SPAN_ONLY, "
        "with OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental)"
    ),
}
"""How to record content, by the beginnings of attributes of the span."""

PROVIDERS = {
    "azure.ai.openai": "azure",
    "az.ai.openai": "azure",
    "aws.bedrock": "bedrock",
    "amazon_bedrock": "bedrock",
    "aws_bedrock": "bedrock",
    "gcp.gemini": "gemini",
    "gcp.gen_ai": "gemini",
    "gcp.vertex_ai": "vertex",
    "google": "gemini",
    "google_genai": "gemini",
    "google_vertexai": "vertex",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "x_ai": "xai",
}
"""Providers in conventions and in kindlm.yaml; the first name of each is OpenTelemetry's."""

_ENDED_FOR_TOOLS = frozenset(
    {"tool_calls", "tool_call", "tool-calls", "tool_use", "function_call", "tooluse"}
)
_HIDDEN = "__REDACTED__"


def kind_of(span: Span) -> Kind:
    """Return the kind of a span."""
    attributes = span.attributes
    for value in (attributes.get(name) for name in _KIND_ATTRIBUTES):
        if isinstance(value, str) and value.lower() in _KIND_OF:
            return _KIND_OF[value.lower()]
    # Early versions of pydantic-ai wrote no operation.
    is_call = {"gen_ai.tool.name", "gen_ai.tool.call.id"} <= attributes.keys()
    return Kind.TOOL if is_call else Kind.OTHER


def is_of_framework(span: Span) -> bool:
    """Return whether an instrumentation of models or agents made a span."""
    return not span.attributes.keys().isdisjoint(_KIND_ATTRIBUTES)


def fact(span: Span, name: str) -> Any:
    """Return a fact of `_NAMES`; None if the span does not have it."""
    for attribute in _NAMES[name]:
        value = span.attributes.get(attribute)
        if value is not None and value != _HIDDEN:
            return value
    return None


def text_fact(span: Span, name: str) -> str | None:
    """Return a fact if it is a text, else None."""
    return text_or_none(fact(span, name))


def tokens(span: Span, name: str) -> int | None:
    """Return a fact that is a number of tokens."""
    return token_count(fact(span, name))


def capture_hint(span: Span) -> str:
    """Return how to let the spans hold arguments and messages."""
    names = ("", *span.attributes)
    return next(
        hint for begins, hint in _CAPTURE.items() if any(n.startswith(begins) for n in names)
    )


def arguments(span: Span) -> Any:
    """Return the arguments of a tool call, None if they are unknown."""
    value = _json(fact(span, "arguments"))
    if isinstance(value, dict):
        # First decorated Python functions and tools of smolagents, then tools of LangChain.
        called = value.keys() - {"sanitize_inputs_outputs"}
        if called == {"args", "kwargs"} and isinstance(value["kwargs"], dict):
            return value["kwargs"] | ({"args": value["args"]} if value["args"] else {})
        if "input_str" in value and isinstance(value.get("inputs"), dict):
            return value["inputs"]
    return value


def result(span: Span) -> Any:
    """Return the result of a tool call, None if it is unknown; `{"error": …}` if it failed."""
    value = _json(fact(span, "result"))
    if isinstance(value, dict) and value.keys() == {"output", "kwargs"}:
        value = value["output"]  # tools of LangChain
    if (message := _serialised_result(value)) is not None:
        value = _json(message.get("content"))
    if value is None and span.is_error:
        return {"error": span.status_message or str(span.attributes.get("error.type", "failed"))}
    return value


def call_id(span: Span) -> Any:
    """Return the id of a tool call, None if it is unknown."""
    message = _serialised_result(_json(fact(span, "result"))) or {}
    return fact(span, "call id") or message.get("tool_call_id")


def _serialised_result(value: Any) -> dict[str, Any] | None:
    """Return the message that LangChain serialised as a result; None for any other result."""
    message = unwrapped(value)
    is_message = message is not value and ("lc" in value or message["role"] == "tool")
    return message if is_message else None


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

    `results` are tool results by the ids of their calls. `is_whole` means that the message has only
    text, calls and results. `ended` is the finish reason.
    """

    role: str
    text: str
    calls: tuple[AskedCall, ...]
    results: Mapping[str, Any]
    is_whole: bool
    ended: Any


def calls_said(span: Span) -> tuple[list[AskedCall], bool]:
    """Return the tool calls at the end of a model call, and whether these are all.

    They may be incomplete if the span holds neither a call nor a text of the answer, or if messages
    are cut off. The finish reason "stop" proves nothing: some models give it with tool calls.
    """
    answer = _answer(span)
    calls = [call for each in answer for call in each.calls]
    if any(isinstance(value, str) for value in _values(span, "said")):
        return calls, False
    if calls or span.is_error:
        return calls, True
    is_text = bool(fact(span, "text")) or any(each.text for each in answer)
    return [], is_text and not ended_for_tools(span)


def ended_for_tools(span: Span) -> bool:
    """Return whether the span's finish reason says that the model called tools."""
    ended = fact(span, "finish")
    reasons = list(ended) if isinstance(ended, list) else [ended]
    reasons += [each.ended for each in _answer(span)]
    return any(str(each).lower().rpartition(".")[2] in _ENDED_FOR_TOOLS for each in reasons)


def said(span: Span) -> Any:
    """Return the answer of a model as far as the span holds it."""
    return fact(span, "text") or next(_values(span, "said"), None)


def _answer(span: Span) -> list[Said]:
    return [each for value in _values(span, "said") for each in messages_in(value)]


def results_asked(span: Span) -> dict[str, Any]:
    """Return the tool results in the messages to a model, by the ids of their calls."""
    asked = (each for value in _values(span, "asked") for each in messages_in(value))
    return {key: value for each in asked for key, value in each.results.items()}


def conversation(span: Span) -> list[Said]:
    """Return the messages to a model or an agent, oldest first, with the system text."""
    attributes = map(messages_in, (*_attributes(span, "asked"), _json(fact(span, "input"))))
    said = next(filter(None, attributes), [])
    for role in () if said else ("system", "user"):
        for of_event in span.events.get(f"gen_ai.{role}.message", ()):
            said.append(_said({**of_event, "role": role}))
    system = _json(fact(span, "system"))
    if system is not None:
        key = "content" if isinstance(system, str) else "parts"
        said.insert(0, _said({"role": "system", key: system}))
    return said


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
        read = _json(value) if value[:1] in ("[", "{") else value
        if isinstance(read, str):
            return [_said({"role": "user", "content": value})] if value.strip() else []
        value = read
    if depth > _DEPTH or not isinstance(value, list | dict):
        return []
    if isinstance(value, list):
        if len(value) == 2 and value[0] in _PAIRED and isinstance(value[1], str):
            return [_said({"role": value[0], "content": value[1]})]  # a form of LangChain
        return [said for each in value for said in messages_in(each, depth + 1)]
    if not _OF_MESSAGE.isdisjoint(value) or _is_bare_call(value):
        return [_said(value)]
    held = _first(value, *_HOLDERS)
    if held is None:
        return [_said(value)]
    system = _first(value, "system", "instructions")
    before = [_said({"role": "system", "content": system})] if system else []
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
_CALL_TYPES = frozenset({"tool_call", "tool-call", "tool_use", "function_call"})
_RESULT_TYPES = frozenset(
    {"tool_call_response", "tool-result", "tool_result", "function_call_output"}
)


def _said(message: dict[str, Any]) -> Said:
    content = message.get("content")
    if isinstance(content, str) and content.startswith('[{"type"'):  # parts, in OpenLLMetry's form
        message = message | {"content": _json(content)}
    role, texts, is_whole, ended = "", list[str](), True, None
    calls, results = list[AskedCall](), dict[str, Any]()
    for part in _parts(message):
        kind = str(part.get("type"))
        role = role or str(part.get("role") or (kind if kind in _ROLES else ""))
        ended = ended or part.get("finish_reason")
        results |= _results(part, kind)
        if kind in _RESULT_TYPES:
            continue
        function = part.get("function")
        inner = function if isinstance(function, dict) else part
        is_call = kind in _CALL_TYPES or "toolName" in part or _is_bare_call(part)
        if inner is not part or is_call:
            key = _first(part, "id", "toolCallId", "toolUseId", "call_id")
            name = _first(inner, "name", "toolName")
            given = _json(_first(inner, "arguments", "args", "input"))
            calls.append(AskedCall(str(key or ""), str(name or ""), given))
        if inner is part and kind not in _CALL_TYPES:
            texts += [text for key in ("content", "text") if isinstance(text := part.get(key), str)]
            has_kind = "type" in part and part is not message and kind not in _ROLES
            is_whole = is_whole and not (has_kind and kind not in _TEXTS)
    role = _ROLES.get(role.lower(), role.lower()) or "user"
    text = "" if role == "tool" else "\n".join(text for text in texts if text != _HIDDEN)
    return Said(role, text, tuple(calls), results, is_whole, ended)


def _is_bare_call(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a call in older conventions, of Bedrock, or of Gemini."""
    return "name" in part and not {"arguments", "args", "input"}.isdisjoint(part)


def _results(part: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the tool result that a part of a message is, by the id of its call."""
    of_bedrock = part.get("toolResult")
    if isinstance(of_bedrock, dict) and {"toolUseId", "content"} <= of_bedrock.keys():
        # The form of Bedrock's Converse API, which Strands Agents uses.
        content = of_bedrock["content"]
        if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
            content = _json(_first(content[0], "text", "json"))
        failed = of_bedrock.get("status") == "error"
        return {str(of_bedrock["toolUseId"]): {"error": content} if failed else content}
    # A message in an event `gen_ai.tool.message` has no role.
    is_result = (
        kind in _RESULT_TYPES or part.get("role") == "tool" or {"id", "content"} <= set(part)
    )
    if not is_result:
        return {}
    key = _first(part, "tool_call_id", "toolCallId", "tool_use_id", "call_id", "id")
    value = _first(part, "response", "result", "output", "content")
    if isinstance(value, dict) and value.keys() == {"type", "value"}:
        value = value["value"]  # the AI SDK wraps results with their type
    return {key: _json(value)} if isinstance(key, str) and value is not None else {}


def tools_given(span: Span) -> tuple[ToolDefinition, ...]:
    """Return the definitions of the tools that a model got, as far as the span has them."""
    found = (each for value in _values(span, "tools") for each in definitions_in(value))
    return tuple({each.name: each for each in found}.values())


def definitions_in(value: Any, depth: int = 0) -> Iterator[ToolDefinition]:
    """Yield the tool definitions in a JSON value, whatever the form of the model's API."""
    value = _json(value)
    if depth > _DEPTH or not isinstance(value, list | dict):
        return
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and not value.keys().isdisjoint(_SCHEMAS):
            schema = object_or_empty(_json(_first(value, *_SCHEMAS)))
            yield ToolDefinition(value["name"], text_or_none(value.get("description")), schema)
            return
        value = list(value.values())
    for each in value:
        yield from definitions_in(each, depth + 1)


_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema")


def _values(span: Span, which: str) -> Iterator[Any]:
    """Yield the values of attributes and events that hold messages."""
    yield from _attributes(span, which)
    for attributes in span.events.get(_EVENTS[which], ()):
        yield {key.rpartition(".")[2]: _json(value) for key, value in attributes.items()}


def _attributes(span: Span, which: str) -> Iterator[Any]:
    value: Any
    for name in _NAMES[which]:
        if name.endswith("."):
            nested = _nested(span.attributes, name)
            value = [nested[key] for key in sorted(nested, key=lambda key: (len(key), key))] or None
        else:
            value = _json(span.attributes.get(name))
        if value is not None and value != _HIDDEN:
            yield value


def _nested(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the attributes with a prefix as nested objects, split at the dots of their names."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        at, (*path, last) = root, name[len(prefix) :].split(".")[:_DEPTH]
        for step in path:
            below = at.setdefault(step, {})
            if not isinstance(below, dict):
                break
            at = below
        else:
            at[last] = value
    return root


_DEPTH = 12
_WITHIN = (
    "message", "messages", "parts", "content", "contents", "tool_calls", "toolCalls", "tool_call",
    "message_content", "toolUse", "function_call", "functionCall",
)  # fmt: skip
"""Keys under which a message holds other messages, parts and calls."""
_OF_MESSAGE = {"role", "toolName", "call_id", "finish_reason", *_WITHIN} - {"message", "messages"}
"""Keys that only messages have."""


def _parts(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield all objects of a message, outer ones before inner ones."""
    if depth > _DEPTH:
        return
    if isinstance(value, str) and value[:1] in ("[", "{") and depth:
        value = _json(value)
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


def _json(value: Any) -> Any:
    return read_json(value) if isinstance(value, str) else value
