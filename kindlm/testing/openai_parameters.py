"""What the Chat Completions API refuses beside messages: parameters, tools, response formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kindlm.testing.openai_refusals import empty, name_refusals, refuse, typed
from kindlm.testing.wire import Refusal, is_integer, is_number, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kindlm.testing.script import ModelSpec

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_COUNTS = ("max_tokens", "max_completion_tokens", "n")
_NOT_FOR_REASONING = ("top_p", "presence_penalty", "frequency_penalty", "logprobs", "stop")


def parameter_refusals(body: dict[str, Any], model: ModelSpec | None) -> Iterator[Refusal]:
    """What is wrong with the sampling parameters and limits."""
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
    yield from _stop_refusals(body.get("stop"))
    options = body.get("stream_options")
    if options is not None:
        yield from typed(options, dict, "stream_options")
        if not body.get("stream"):
            message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
            yield refuse(message, "stream_options")
    if model is not None and model.reasoning:
        yield from _reasoning_refusals(body)


def _stop_refusals(stop: Any) -> Iterator[Refusal]:
    if stop is None or isinstance(stop, str):
        return
    yield from typed(stop, list, "stop")
    for position, text in enumerate(stop):
        yield from typed(text, str, f"stop[{position}]")
    if len(stop) > 4:
        message = (
            "Invalid 'stop': array too long. Expected an array with maximum length 4, "
            f"but got an array with length {len(stop)} instead."
        )
        yield refuse(message, "stop", "array_above_max_length")


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


def tool_refusals(body: dict[str, Any]) -> Iterator[Refusal]:
    """What is wrong with the tools and the choice among them."""
    if body.get("tools") is None:
        if body.get("tool_choice") is not None:
            message = (
                "Invalid value for 'tool_choice': 'tool_choice' is only allowed "
                "when 'tools' are specified."
            )
            yield refuse(message, "tool_choice")
        return
    yield from typed(body["tools"], list, "tools")
    if not body["tools"]:
        yield empty("tools")
    for position, tool in enumerate(body["tools"]):
        yield from _one_tool_refusals(tool, f"tools[{position}]")
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        yield from typed(choice.get("function"), dict, "tool_choice.function")
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
    yield from typed(tool, dict, where)
    if tool.get("type") != "function":
        message = f"Invalid value: '{tool.get('type')}'. Supported values are: 'function'."
        yield refuse(message, f"{where}.type", "invalid_value")
    function = tool.get("function")
    yield from typed(function, dict, f"{where}.function")
    yield from name_refusals(function.get("name"), f"{where}.function.name")
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


def format_refusals(body: dict[str, Any]) -> Iterator[Refusal]:
    """What is wrong with the response format."""
    wanted = body.get("response_format")
    if wanted is None:
        return
    yield from typed(wanted, dict, "response_format")
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
    yield from typed(wanted, dict, where)
    yield from name_refusals(wanted.get("name"), f"{where}.name")
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
    required = schema.get("required")
    listed = required if isinstance(required, list) else []
    missing = [name for name in schema["properties"] if name not in listed]
    if missing:
        return (
            "In context=(), 'required' is required to be supplied and to be an array including "
            f"every key in properties. Missing '{missing[0]}'."
        )
    return None
