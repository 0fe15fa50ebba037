"""Chat Completions requests: what the API refuses, and what an accepted one means.

The refusals follow the API's own, with the same status, type, param and code. They are generators:
the first thing wrong is what the client hears, and later checks may rely on earlier ones.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kindlm.testing.conversation import (
    Conversation,
    TurnsBuilder,
    fingerprint_of,
    parse_or_text,
)
from kindlm.testing.wire import Refusal, is_integer, is_number, kind_of

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
_NAME = re.compile(r"[a-zA-Z0-9_-]+\Z")
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_COUNTS = ("max_tokens", "max_completion_tokens", "n")
_NOT_FOR_REASONING = ("top_p", "presence_penalty", "frequency_penalty", "logprobs", "stop")


def refuse(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """A 400 as the API sends it."""
    return Refusal(400, "invalid_request_error", message, param, code)


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
    yield from _typed(body["messages"], list, "messages")
    if not body["messages"]:
        yield _empty("messages")
    yield from _parameter_refusals(body, model)
    yield from _tool_refusals(body)
    yield from _format_refusals(body)
    for position, message in enumerate(body["messages"]):
        yield from _message_refusals(message, f"messages[{position}]", position)
    yield from _tool_answer_refusals(body["messages"])


def _typed(value: Any, kind: type, param: str) -> Iterator[Refusal]:
    if not isinstance(value, kind):
        expected = "an array" if kind is list else "an object" if kind is dict else "a string"
        got = kind_of(value)
        article = "an" if got[0] in "aeio" else "a"
        text = got if value is None else f"{article} {got}"
        message = f"Invalid type for '{param}': expected {expected}, but got {text} instead."
        yield refuse(message, param, "invalid_type")


def _empty(param: str) -> Refusal:
    message = (
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, "
        "but got an empty array instead."
    )
    return refuse(message, param, "empty_array")


def _parameter_refusals(body: dict[str, Any], model: ModelSpec | None) -> Iterator[Refusal]:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        message = (
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        )
        yield refuse(message, "max_tokens", "invalid_parameter_combination")
    for name, (low, high) in _RANGES.items():
        yield from _range_refusals(name, body.get(name), low, high)
    for name in _COUNTS:
        yield from _count_refusals(name, body.get(name))
    seed = body.get("seed")
    if seed is not None and not is_integer(seed):
        message = (
            f"Invalid type for 'seed': expected an integer, but got a {kind_of(seed)} instead."
        )
        yield refuse(message, "seed", "invalid_type")
    stop = body.get("stop")
    if isinstance(stop, list) and len(stop) > 4:
        message = (
            "Invalid 'stop': array too long. Expected an array with maximum length 4, "
            f"but got an array with length {len(stop)} instead."
        )
        yield refuse(message, "stop", "array_above_max_length")
    if body.get("stream_options") is not None and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield refuse(message, "stream_options")
    if model is not None and model.reasoning:
        yield from _reasoning_refusals(body)


def _range_refusals(name: str, value: Any, low: float, high: float) -> Iterator[Refusal]:
    if value is None:
        return
    if not is_number(value):
        message = (
            f"Invalid type for '{name}': expected a decimal, but got a {kind_of(value)} instead."
        )
        yield refuse(message, name, "invalid_type")
    elif not low <= value <= high:
        side, sign, limit = ("above", "<=", high) if value > high else ("below", ">=", low)
        extreme = "maximum" if value > high else "minimum"
        message = (
            f"Invalid '{name}': decimal {side} {extreme} value. "
            f"Expected a value {sign} {limit:g}, but got {value:g} instead."
        )
        yield refuse(message, name, f"decimal_{side}_{extreme[:3]}_value")


def _count_refusals(name: str, value: Any) -> Iterator[Refusal]:
    if value is None:
        return
    if not is_integer(value):
        message = (
            f"Invalid type for '{name}': expected an integer, but got a {kind_of(value)} instead."
        )
        yield refuse(message, name, "invalid_type")
    elif value < 1:
        message = (
            f"Invalid '{name}': integer below minimum value. "
            f"Expected a value >= 1, but got {value} instead."
        )
        yield refuse(message, name, "integer_below_min_value")


def _reasoning_refusals(body: dict[str, Any]) -> Iterator[Refusal]:
    if body.get("max_tokens") is not None:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        )
        yield refuse(message, "max_tokens", "unsupported_parameter")
    temperature = body.get("temperature")
    if temperature is not None and temperature != 1:
        message = (
            f"Unsupported value: 'temperature' does not support {temperature:g} with this model. "
            "Only the default (1) value is supported."
        )
        yield refuse(message, "temperature", "unsupported_value")
    for name in _NOT_FOR_REASONING:
        if body.get(name) is not None:
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            yield refuse(message, name, "unsupported_parameter")


def _tool_refusals(body: dict[str, Any]) -> Iterator[Refusal]:
    if body.get("tools") is None:
        if body.get("tool_choice") is not None:
            message = (
                "Invalid value for 'tool_choice': 'tool_choice' is only allowed "
                "when 'tools' are specified."
            )
            yield refuse(message, "tool_choice")
        return
    yield from _typed(body["tools"], list, "tools")
    if not body["tools"]:
        yield _empty("tools")
    for position, tool in enumerate(body["tools"]):
        yield from _one_tool_refusals(tool, f"tools[{position}]")
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        yield from _typed(choice.get("function"), dict, "tool_choice.function")
        wanted = choice["function"].get("name")
        if wanted not in [tool["function"]["name"] for tool in body["tools"]]:
            message = f"Tool choice 'function' not found in 'tools' parameter: '{wanted}'."
            yield refuse(message, "tool_choice")
    elif choice not in (None, "none", "auto", "required"):
        message = (
            f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
        )
        yield refuse(message, "tool_choice", "invalid_value")


def _one_tool_refusals(tool: Any, where: str) -> Iterator[Refusal]:
    yield from _typed(tool, dict, where)
    if tool.get("type") != "function":
        message = f"Invalid value: '{tool.get('type')}'. Supported values are: 'function'."
        yield refuse(message, f"{where}.type", "invalid_value")
    function = tool.get("function")
    yield from _typed(function, dict, f"{where}.function")
    yield from _name_refusals(function.get("name"), f"{where}.function.name")
    parameters = function.get("parameters")
    if parameters is None:
        return
    problem = _object_schema_problem(parameters)
    if problem is not None:
        message = f"Invalid schema for function '{function['name']}': {problem}"
        yield refuse(message, f"{where}.function.parameters", "invalid_function_parameters")


def _object_schema_problem(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return f"{json.dumps(schema)} is not of type 'object', 'boolean'."
    if schema.get("type") != "object":
        given = json.dumps(schema.get("type")) if "type" in schema else '"None"'
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {given}'."
    if not isinstance(schema.get("properties"), dict):
        return "In context=(), object schema missing properties."
    return None


def _name_refusals(name: Any, param: str) -> Iterator[Refusal]:
    if name is None:
        message = f"Missing required parameter: '{param}'."
        yield refuse(message, param, "missing_required_parameter")
    yield from _typed(name, str, param)
    if not _NAME.match(name):
        message = (
            f"Invalid '{param}': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )
        yield refuse(message, param, "invalid_value")
    if len(name) > 64:
        message = (
            f"Invalid '{param}': string too long. Expected a string with maximum length 64, "
            f"but got a string with length {len(name)} instead."
        )
        yield refuse(message, param, "string_above_max_length")


def _format_refusals(body: dict[str, Any]) -> Iterator[Refusal]:
    wanted = body.get("response_format")
    if wanted is None:
        return
    yield from _typed(wanted, dict, "response_format")
    kind = wanted.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        message = (
            f"Invalid value: '{kind}'. Supported values are: "
            "'json_object', 'json_schema', and 'text'."
        )
        yield refuse(message, "response_format.type", "invalid_value")
    if kind == "json_object" and "json" not in json.dumps(body["messages"]).lower():
        message = (
            "'messages' must contain the word 'json' in some form, "
            "to use 'response_format' of type 'json_object'."
        )
        yield refuse(message, "messages")
    if kind == "json_schema":
        yield from _json_schema_refusals(wanted.get("json_schema"))


def _json_schema_refusals(wanted: Any) -> Iterator[Refusal]:
    where = "response_format.json_schema"
    if wanted is None:
        message = f"Missing required parameter: '{where}'."
        yield refuse(message, where, "missing_required_parameter")
    yield from _typed(wanted, dict, where)
    yield from _name_refusals(wanted.get("name"), f"{where}.name")
    schema = wanted.get("schema")
    if schema is None and not wanted.get("strict"):
        return
    problem = _object_schema_problem(schema)
    if problem is None and wanted.get("strict"):
        problem = _strict_problem(schema)
    if problem is not None:
        message = f"Invalid schema for response_format '{wanted['name']}': {problem}"
        yield refuse(message, "response_format", None)


def _strict_problem(schema: dict[str, Any]) -> str | None:
    if schema.get("additionalProperties") is not False:
        return "In context=(), 'additionalProperties' is required to be supplied and to be false."
    missing = [name for name in schema["properties"] if name not in schema.get("required", [])]
    if missing:
        return (
            "In context=(), 'required' is required to be supplied and to be an array including "
            f"every key in properties. Missing '{missing[0]}'."
        )
    return None


def _message_refusals(message: Any, where: str, position: int) -> Iterator[Refusal]:
    yield from _typed(message, dict, where)
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
        yield _empty(where)
    for position, part in enumerate(content):
        yield from _typed(part, dict, f"{where}[{position}]")
        if part.get("type") == "text":
            yield from _typed(part.get("text"), str, f"{where}[{position}].text")


def _tool_call_refusals(calls: Any, where: str) -> Iterator[Refusal]:
    yield from _typed(calls, list, where)
    if not calls:
        yield _empty(where)
    for position, call in enumerate(calls):
        here = f"{where}[{position}]"
        yield from _typed(call, dict, here)
        if call.get("type") != "function":
            message = f"Missing required parameter: '{here}.type'."
            yield refuse(message, f"{here}.type", "missing_required_parameter")
        yield from _typed(call.get("id"), str, f"{here}.id")
        yield from _typed(call.get("function"), dict, f"{here}.function")
        yield from _name_refusals(call["function"].get("name"), f"{here}.function.name")
        arguments = call["function"].get("arguments")
        yield from _typed(arguments, str, f"{here}.function.arguments")


def _tool_answer_refusals(messages: list[dict[str, Any]]) -> Iterator[Refusal]:
    """Every tool call is answered right after it, and nothing else is answered."""
    waiting: dict[str, int] = {}
    known: set[str] = set()
    for position, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            call_id: Any = message.get("tool_call_id")
            yield from _typed(call_id, str, f"messages[{position}].tool_call_id")
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


def read(body: dict[str, Any]) -> Conversation:
    """The conversation that an accepted request holds."""
    fingerprint, prompt_tokens = fingerprint_of(body)
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
