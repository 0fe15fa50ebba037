"""The attributes of spans in all conventions, in tables, and their readers.

Instrumentations mix conventions (the AI SDK of Vercel also writes `gen_ai.*`), so each fact is
looked up under the names of all conventions in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from kindlm.errors import DOCS
from kindlm.ports import ToolDefinition
from kindlm.strict_json import read_json
from kindlm.telemetry.messages import (
    HIDDEN,
    MAX_DEPTH,
    AskedCall,
    Said,
    definitions_in,
    messages_in,
    read_message,
    unwrapped,
)
from kindlm.telemetry.spans import Span
from kindlm.wires import text_or_none, token_count


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
        "chat", "text_completion", "generate_content", "llm", "completion", "generation",
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

_ONLY_OF_TOOLS = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")

_LANGFUSE = "langfuse.observation.type"
"""Gives the kind of a span if no other attribute does; a span of a tool has the tool's name.

Langfuse makes these spans for any functions, so they may also enclose all work for an answer.
"""

_TYPES = ("langsmith.span.kind", "lmnr.span.type", "mlflow.spanType")
"""Attributes that kindlm reads only to notice a tool call, which has the name of its span."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "tool": (*_ONLY_OF_TOOLS, "traceloop.entity.name"),
    "call id": ("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id"),
    "arguments": (
        "gen_ai.tool.call.arguments",
        "ai.toolCall.args",
        "tool_arguments",  # pydantic-ai until its version 3 of the conventions
        "gcp.vertex.agent.tool_call_args",
        "traceloop.entity.input",
        "input.value",
        "langfuse.observation.input",
    ),
    "result": (
        "gen_ai.tool.call.result",
        "ai.toolCall.result",
        "tool_response",
        "gcp.vertex.agent.tool_response",
        "traceloop.entity.output",
        "output.value",
        "langfuse.observation.output",
    ),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    "model": (
        "gen_ai.response.model",
        "ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "llm.request.model",
        "ai.model.id",
        "langfuse.observation.model.name",
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
        "langfuse.observation.metadata.finish_reason",
    ),
    "text": ("ai.response.text", "ai.response.object"),
    "said": (
        "ai.response.toolCalls",
        "gen_ai.output.messages",
        "llm.output_messages.",
        "gen_ai.completion.",
        "response",
        "langfuse.observation.output",
    ),
    "asked": (
        "gen_ai.input.messages",
        "ai.prompt.messages",
        "llm.input_messages.",
        "gen_ai.prompt.",
        "raw_input",
        "langfuse.observation.input",
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

_SCOPES = dict.fromkeys(("response", "raw_input"), "logfire.openai_agents")
"""Attributes that hold messages only in spans of this scope."""

_EVENTS = {"said": "gen_ai.choice", "asked": "gen_ai.tool.message", "tools": ""}
"""Events of spans that hold messages, in older conventions."""

CAPTURE_CONTENT = (
    "To record content in spans, not in logs, set"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true, or what your instrumentation needs"
    f" instead: {DOCS}/how-to/see-your-agent/#its-traces."
)
"""How to let spans hold arguments and messages."""

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


def kind_of(span: Span) -> Kind:
    """Return the kind of a span."""
    attributes = span.attributes
    for value in (attributes.get(name) for name in (*_KIND_ATTRIBUTES, _LANGFUSE)):
        if isinstance(value, str) and value.lower() in _KIND_OF:
            kind = _KIND_OF[value.lower()]
            return Kind.AGENT if kind is Kind.TOOL and _only_repeats_calls(span) else kind
    # Early versions of pydantic-ai wrote no operation.
    is_call = {"gen_ai.tool.name", "gen_ai.tool.call.id"} <= attributes.keys()
    return Kind.TOOL if is_call else Kind.OTHER


def _only_repeats_calls(span: Span) -> bool:
    """Return whether a span of a tool is about calls that other spans report.

    Google ADK has one for the calls of an answer with several. OpenInference has one without a name
    for each handoff of the OpenAI Agents SDK.
    """
    name = fact(span, "tool")
    return name == "(merged tools)" or (name is None and span.name.startswith("handoff to "))


def tools_called(span: Span) -> list[str]:
    """Return the names of tools in the attributes of a tool call or of a model's answer."""
    own = [span.attributes.get(name) for name in _ONLY_OF_TOOLS]
    types = (span.attributes.get(name) for name in _TYPES)
    if any(str(each).strip('"').lower() == "tool" for each in types):
        own.append(span.name)
    return [*filter(None, map(text_or_none, own)), *(call.name for call in calls_said(span)[0])]


def is_of_framework(span: Span) -> bool:
    """Return whether an instrumentation of models or agents made a span."""
    return not span.attributes.keys().isdisjoint(_KIND_ATTRIBUTES)


def fact(span: Span, name: str) -> Any:
    """Return a fact of `_NAMES`; None if the span does not have it."""
    for attribute in _NAMES[name]:
        value = span.attributes.get(attribute)
        if value is not None and value != HIDDEN:
            return value
    return span.name if name == "tool" and span.attributes.get(_LANGFUSE) == "tool" else None


def answers(span: Span, asking: Span) -> bool:
    """Return whether a span is a streamed answer, which Logfire reports after its request."""
    if span.attributes.get("logfire.span_type") != "log" or span.scope != asking.scope:
        return False
    asked = fact(span, "asked")
    return asked is not None and asked == fact(asking, "asked") and said(asking) is None


def text_fact(span: Span, name: str) -> str | None:
    """Return a fact if it is a text, else None."""
    return text_or_none(fact(span, name))


def tokens(span: Span, name: str) -> int | None:
    """Return a fact that is a number of tokens."""
    value = fact(span, name)
    usage = read_json(span.attributes.get("langfuse.observation.usage_details"))
    if value is None and isinstance(usage, dict) and name in _USAGE:
        # The forms of providers, or Langfuse's: parts of the input, such as `input_cache_read`.
        total, word = _USAGE[name]
        parts = [count for key, count in usage.items() if word in key and type(count) is int]
        value = usage.get(total, sum(parts) if parts else None)
    return token_count(value)


_USAGE = {
    "input tokens": ("prompt_tokens", "input"),
    "output tokens": ("completion_tokens", "output"),
}


def arguments(span: Span) -> Any:
    """Return the arguments of a tool call, None if they are unknown."""
    value = read_json(fact(span, "arguments"))
    if isinstance(value, dict):
        # First decorated Python functions and tools of smolagents, then tools of LangChain.
        called = value.keys() - {"sanitize_inputs_outputs"}
        if called == {"args", "kwargs"} and isinstance(value["kwargs"], dict):
            named, unnamed = value["kwargs"], value["args"]
            if (
                isinstance(unnamed, list)
                and unnamed
                and (not named or _LANGFUSE in span.attributes)
            ):
                return [*unnamed, *named.values()]  # elsewhere, the first can be `self`
            return named | ({"args": unnamed} if unnamed else {})
        if "input_str" in value and isinstance(value.get("inputs"), dict):
            return value["inputs"]
    return value


def result(span: Span) -> Any:
    """Return the result of a tool call, None if it is unknown; `{"error": …}` if it failed."""
    value = read_json(fact(span, "result"))
    if isinstance(value, dict) and value.keys() == {"output", "kwargs"}:
        value = value["output"]  # tools of LangChain
    if (message := _serialised_result(value)) is not None:
        value = read_json(message.get("content"))
    if value is None and span.is_error:
        return {"error": span.status_message or str(span.attributes.get("error.type", "failed"))}
    return value


def call_id(span: Span) -> Any:
    """Return the id of a tool call, None if it is unknown."""
    message = _serialised_result(read_json(fact(span, "result"))) or {}
    return fact(span, "call id") or message.get("tool_call_id")


def _serialised_result(value: Any) -> dict[str, Any] | None:
    """Return the message that LangChain serialised as a result; None for any other result."""
    message = unwrapped(value)
    is_message = message is not value and ("lc" in value or message["role"] == "tool")
    return message if is_message else None


def calls_said(span: Span) -> tuple[list[AskedCall], bool]:
    """Return the tool calls at the end of a model call, and whether these are all.

    They may be incomplete if the span holds neither a call nor a text of the answer, or if messages
    are cut off. The finish reason "stop" proves nothing: some models give it with tool calls. An
    output of Langfuse can be any part of the answer; a text with a finish reason is a whole stream.
    """
    answer = _answer(span)
    calls = [call for each in answer for call in each.calls]
    is_streamed = "langfuse.observation.metadata.finish_reason" in span.attributes
    if not is_streamed and any(isinstance(value, str) for value in _values(span, "said")):
        return calls, False
    if calls or span.is_error:
        return calls, True
    if _LANGFUSE in span.attributes and not is_streamed:
        answer = [each for each in answer if each.role == "assistant"]
    is_text = bool(fact(span, "text")) or any(each.text for each in answer)
    return [], is_text and not ended_for_tools(span)


def ended_for_tools(span: Span) -> bool:
    """Return whether the span's finish reason says that the model called tools."""
    ended = fact(span, "finish")
    reasons = list(ended) if isinstance(ended, list) else [ended]
    reasons += [each.ended for each in _answer(span)]
    return any(
        str(each).strip('"').lower().rpartition(".")[2] in _ENDED_FOR_TOOLS for each in reasons
    )


def said(span: Span) -> Any:
    """Return the answer of a model as far as the span holds it."""
    return fact(span, "text") or next(_values(span, "said"), None)


def _answer(span: Span) -> list[Said]:
    return [each for value in _values(span, "said") for each in messages_in(value)]


def results_asked(span: Span) -> Iterator[tuple[str, str, Any]]:
    """Yield the tool results in the messages to a model.

    Each follows its id, and the id of the only call before it, else its own again: some spans about
    OpenAI's Responses API give a call another id than its result.
    """
    for value in _values(span, "asked"):
        rounds = [(list[AskedCall](), list[tuple[str, Any]]())]
        for each in messages_in(value):
            is_of_user = each.role == "user" and not each.results
            if is_of_user or (each.calls and rounds[-1][1]):
                rounds.append(([], []))
            rounds[-1][0].extend(each.calls)
            rounds[-1][1].extend(each.results)
        for calls, results in rounds:
            only = calls[0].id if len(calls) == len(results) == 1 else ""
            yield from ((call_id, only or call_id, result) for call_id, result in results)


def conversation(span: Span) -> list[Said]:
    """Return the messages to a model or an agent, oldest first, with the system text."""
    attributes = map(messages_in, (*_attributes(span, "asked"), read_json(fact(span, "input"))))
    said = next(filter(None, attributes), [])
    for name, of_event in () if said else span.events:
        role = name.removeprefix("gen_ai.").removesuffix(".message")
        if role in ("system", "user"):
            said.append(read_message({**of_event, "role": role}))
        elif role == "assistant":
            said.append(read_message({**_message_of(of_event), "role": role}))
    system = read_json(fact(span, "system"))
    if system is not None:
        key = "content" if isinstance(system, str) else "parts"
        said.insert(0, read_message({"role": "system", key: system}))
    return said


def tools_given(span: Span) -> tuple[ToolDefinition, ...]:
    """Return the definitions of the tools that a model got, as far as the span has them."""
    found = (each for value in _values(span, "tools") for each in definitions_in(value))
    return tuple({each.name: each for each in found}.values())


def _values(span: Span, which: str) -> Iterator[Any]:
    """Yield the values of attributes and events that hold messages."""
    yield from _attributes(span, which)
    yield from (_message_of(of_event) for name, of_event in span.events if name == _EVENTS[which])


def _message_of(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key.rpartition(".")[2]: read_json(value) for key, value in event.items()}


def _attributes(span: Span, which: str) -> Iterator[Any]:
    value: Any
    for name in _NAMES[which]:
        if span.scope != _SCOPES.get(name, span.scope):
            continue
        if name.endswith("."):
            nested = _nested(span.attributes, name)
            value = [nested[key] for key in sorted(nested, key=lambda key: (len(key), key))] or None
        else:
            value = read_json(span.attributes.get(name))
        if value is not None and value != HIDDEN:
            yield value


def _nested(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the attributes with a prefix as nested objects, split at the dots of their names."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        at, (*path, last) = root, name[len(prefix) :].split(".")[:MAX_DEPTH]
        for step in path:
            below = at.setdefault(step, {})
            if not isinstance(below, dict):
                break
            at = below
        else:
            at[last] = value
    return root
