"""Chat Completions requests: what the API refuses, and what an accepted one means.

The refusals follow the API's own, with the same status, type, param and code. They are generators:
the first thing wrong is what the client hears, and later checks may rely on earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kindlm.testing.conversation import (
    Conversation,
    TurnsBuilder,
    fingerprint_of,
    parse_or_text,
)
from kindlm.testing.openai_parameters import (
    format_refusals,
    parameter_refusals,
    tool_refusals,
)
from kindlm.testing.openai_refusals import empty, name_refusals, refuse, typed
from kindlm.testing.wire import Refusal, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kindlm.testing.script import ModelSpec

_KNOWN = frozenset(
    (
        "model",
        "messages",
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "metadata",
        "modalities",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
        "web_search_options",
    )
)
_ROLES = ("system", "assistant", "user", "function", "tool", "developer")


def refusals(
    headers: Mapping[str, str],  # noqa: ARG001 - all wire formats are asked alike
    body: dict[str, Any],
    model: ModelSpec | None,
) -> Iterator[Refusal]:
    """What is wrong with a request body, worst first."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield refuse("you must provide a model parameter")
    for name in body:
        if name not in _KNOWN:
            yield refuse(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    if "messages" not in body:
        yield refuse(
            "Missing required parameter: 'messages'.", "messages", "missing_required_parameter"
        )
    yield from typed(body["messages"], list, "messages")
    if not body["messages"]:
        yield empty("messages")
    yield from parameter_refusals(body, model)
    yield from tool_refusals(body)
    yield from format_refusals(body)
    for position, message in enumerate(body["messages"]):
        yield from _message_refusals(message, f"messages[{position}]", position)
    yield from _tool_answer_refusals(body["messages"])


def _message_refusals(message: Any, where: str, position: int) -> Iterator[Refusal]:
    yield from typed(message, dict, where)
    role = message.get("role")
    if role not in _ROLES:
        supported = ", ".join(f"'{name}'" for name in _ROLES[:-1])
        text = f"Invalid value: '{role}'. Supported values are: {supported}, and 'developer'."
        yield refuse(text, f"{where}.role", "invalid_value")
    content = message.get("content")
    if role == "assistant" and message.get("tool_calls") is not None:
        yield from _tool_call_refusals(message["tool_calls"], f"{where}.tool_calls")
    elif content is None and message.get("refusal") is None:
        text = "Invalid value for 'content': expected a string, got null."
        yield refuse(text, f"messages.[{position}].content")
    if content is not None and not isinstance(content, str):
        yield from _part_refusals(content, f"{where}.content")


def _part_refusals(content: Any, where: str) -> Iterator[Refusal]:
    if not isinstance(content, list):
        message = (
            f"Invalid type for '{where}': expected one of a string or array of objects, "
            f"but got a {kind_of(content)} instead."
        )
        yield refuse(message, where, "invalid_type")
    if not content:
        yield empty(where)
    for position, part in enumerate(content):
        yield from typed(part, dict, f"{where}[{position}]")
        if part.get("type") == "text":
            yield from typed(part.get("text"), str, f"{where}[{position}].text")


def _tool_call_refusals(calls: Any, where: str) -> Iterator[Refusal]:
    yield from typed(calls, list, where)
    if not calls:
        yield empty(where)
    for position, call in enumerate(calls):
        here = f"{where}[{position}]"
        yield from typed(call, dict, here)
        if call.get("type") != "function":
            message = f"Missing required parameter: '{here}.type'."
            yield refuse(message, f"{here}.type", "missing_required_parameter")
        yield from typed(call.get("id"), str, f"{here}.id")
        yield from typed(call.get("function"), dict, f"{here}.function")
        yield from name_refusals(call["function"].get("name"), f"{here}.function.name")
        arguments = call["function"].get("arguments")
        yield from typed(arguments, str, f"{here}.function.arguments")


def _tool_answer_refusals(messages: list[dict[str, Any]]) -> Iterator[Refusal]:
    """Every tool call is answered right after it, and nothing else is answered."""
    waiting: dict[str, int] = {}
    known: set[str] = set()
    for position, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            call_id: Any = message.get("tool_call_id")
            yield from typed(call_id, str, f"messages[{position}].tool_call_id")
            if call_id not in known:
                yield _orphan(position)
            waiting.pop(call_id, None)
            continue
        if waiting:
            yield _unanswered(waiting)
        calls = message.get("tool_calls") or []
        waiting = {call["id"]: position for call in calls}
        known = set(waiting)


def _orphan(position: int) -> Refusal:
    message = (
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
        "with 'tool_calls'."
    )
    return refuse(message, f"messages.[{position}].role")


def _unanswered(waiting: dict[str, int]) -> Refusal:
    message = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        + ", ".join(waiting)
    )
    return refuse(message, f"messages.[{min(waiting.values())}].role")


def read(body: dict[str, Any], raw_body: bytes) -> Conversation:
    """The conversation that an accepted request holds."""
    fingerprint, prompt_tokens = fingerprint_of(raw_body)
    wanted = body.get("response_format") or {}
    choice = body.get("tool_choice")
    stop = body.get("stop")
    limit = body.get("max_completion_tokens")
    offered = [] if choice == "none" else body.get("tools") or []
    return Conversation(
        wire="openai",
        model=body["model"],
        system=_system(body["messages"]),
        turns=_turns(body["messages"]).build(),
        offered=tuple(tool["function"]["name"] for tool in offered),
        structured=(wanted.get("json_schema") or {}).get("name"),
        forced_tool=choice["function"]["name"] if isinstance(choice, dict) else None,
        prefill="",
        parallel=body.get("parallel_tool_calls") is not False,
        max_tokens=limit if limit is not None else body.get("max_tokens"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        stream=bool(body.get("stream")),
        stream_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        fingerprint=fingerprint,
        prompt_tokens=prompt_tokens,
    )


def _system(messages: list[dict[str, Any]]) -> str:
    roles = ("system", "developer")
    return "\n".join(_text(m.get("content")) for m in messages if m["role"] in roles)


def _turns(messages: list[dict[str, Any]]) -> TurnsBuilder:
    builder = TurnsBuilder()
    open_calls: dict[str, dict[str, Any]] = {}
    for message in messages:
        if message["role"] == "user":
            builder.add_user(_text(message["content"]))
        elif message["role"] == "assistant":
            builder.add_assistant()
            open_calls = {call["id"]: call["function"] for call in message.get("tool_calls") or []}
        elif message["role"] == "tool":
            call = open_calls[message["tool_call_id"]]
            arguments = parse_or_text(call["arguments"])
            builder.add_call(call["name"], arguments, _text(message["content"]))
    return builder


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""
