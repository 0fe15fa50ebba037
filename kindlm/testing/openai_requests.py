"""Chat Completions requests: what the API refuses, and what an accepted one means.

Refused is what kindlm could get wrong: types, roles, ranges, unknown parameters, names and schemas
of tools, tool calls without their results. An error names the parameter, as the API does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kindlm.testing.conversation import (
    Conversation,
    TurnsBuilder,
    fingerprint_of,
    parse_or_text,
)
from kindlm.testing.script import ModelSpec
from kindlm.testing.wire import Refusal

_NOT_CHECKED = frozenset({
    "audio", "function_call", "functions", "logit_bias", "logprobs", "metadata", "modalities",
    "parallel_tool_calls", "prediction", "prompt_cache_key", "reasoning_effort",
    "safety_identifier", "service_tier", "store", "top_logprobs", "user", "verbosity",
    "web_search_options",
})  # fmt: skip
_NOT_FOR_REASONING = ("top_p", "presence_penalty", "frequency_penalty", "logprobs", "stop")

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
Count = Annotated[int, Field(ge=1)]


class _Form(BaseModel):
    model_config = ConfigDict(strict=True)


class _Part(_Form):
    type: str
    text: str = ""


class _CalledFunction(_Form):
    name: Name
    arguments: str


class _Call(_Form):
    id: str
    type: Literal["function"]
    function: _CalledFunction


class _Message(_Form):
    role: Literal["system", "assistant", "user", "function", "tool", "developer"]
    content: str | Annotated[list[_Part], Field(min_length=1)] | None = None
    tool_calls: Annotated[list[_Call], Field(min_length=1)] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> _Message:
        if self.content is None and not (self.tool_calls or self.refusal):
            raise ValueError("Invalid value for 'content': expected a string, got null.")
        return self

    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""


class _Function(_Form):
    name: Name
    parameters: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _takes_an_object(self) -> _Function:
        if self.parameters is not None:
            _require_object(self.parameters)
        return self


class _Tool(_Form):
    type: Literal["function"]
    function: _Function


class _ChosenFunction(_Form):
    name: str


class _Choice(_Form):
    type: Literal["function"]
    function: _ChosenFunction


class _JsonSchema(_Form):
    name: Name
    strict: bool | None = None
    wanted: Annotated[dict[str, Any] | None, Field(alias="schema")] = None

    @model_validator(mode="after")
    def _is_an_object(self) -> _JsonSchema:
        if self.wanted is not None or self.strict:
            _require_object(self.wanted or {})
        if self.strict and self.wanted is not None:
            if self.wanted.get("additionalProperties") is not False:
                raise ValueError("'additionalProperties' is required to be false.")
            required = self.wanted.get("required")
            listed = required if isinstance(required, list) else []
            if any(name not in listed for name in self.wanted["properties"]):
                raise ValueError("'required' has to include every key in properties.")
        return self


class _Format(_Form):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> _Format:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("Missing required parameter: 'response_format.json_schema'.")
        return self


class _StreamOptions(_Form):
    include_usage: bool = False


class _Request(_Form):
    model_config = ConfigDict(strict=True, extra="allow")

    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[_Message], Field(min_length=1)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Count | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    tools: Annotated[list[_Tool], Field(min_length=1)] | None = None
    tool_choice: Literal["none", "auto", "required"] | _Choice | None = None
    response_format: _Format | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


def _require_object(schema: Mapping[str, Any]) -> None:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise ValueError("Invalid schema: it has to be of type 'object', with properties.")


def read(
    headers: Mapping[str, str],  # noqa: ARG001 - all wire formats are asked alike
    body: dict[str, Any],
    raw_body: bytes,
    model: ModelSpec | None,
) -> Conversation | Refusal:
    """The conversation that a request holds, or what is wrong with the request."""
    for name in body:
        if name not in _NOT_CHECKED and name not in _Request.model_fields:
            return _refuse(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    try:
        request = _Request.model_validate(body)
    except ValidationError as error:
        # Of a union, the kind that the value came nearest to.
        first = max(
            error.errors(include_url=False, include_input=False), key=lambda e: len(e["loc"])
        )
        return _refuse(
            first["msg"].removeprefix("Value error, "), _place(first["loc"]), first["type"]
        )
    refusal = _misfit(request) or (_unsupported(body) if model and model.reasoning else None)
    refusal = refusal or _unanswered(request.messages)
    return refusal or _conversation(request, body, raw_body)


def _refuse(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    return Refusal(400, "invalid_request_error", message, param, code)


def _place(path: tuple[int | str, ...]) -> str:
    """The parameter that a path leads to, up to where it says which kind of value was tried."""
    place = ""
    for step in path:
        if isinstance(step, int):
            place += f"[{step}]"
        elif step.isidentifier() and not step.startswith("_") and step != "str":
            place += f".{step}" if place else step
        else:
            break
    return place


def _misfit(request: _Request) -> Refusal | None:
    """What of a request does not fit the rest of it."""
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        message = "'max_tokens' and 'max_completion_tokens' exclude one another."
        return _refuse(message, "max_tokens", "invalid_parameter_combination")
    if request.stream_options is not None and not request.stream:
        return _refuse("'stream_options' needs 'stream'.", "stream_options")
    names = [tool.function.name for tool in request.tools or ()]
    if request.tool_choice is not None and not names:
        return _refuse("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice")
    choice = request.tool_choice
    if isinstance(choice, _Choice) and choice.function.name not in names:
        return _refuse(f"Tool choice not found in 'tools': '{choice.function.name}'", "tool_choice")
    wanted = request.response_format
    if wanted is not None and wanted.type == "json_object":
        said = json.dumps([message.text() for message in request.messages])
        if "json" not in said.lower():
            return _refuse("'messages' must contain the word 'json' in some form.", "messages")
    return None


def _unsupported(body: Mapping[str, Any]) -> Refusal | None:
    """What a reasoning model does not take."""
    if body.get("max_tokens") is not None:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        )
        return _refuse(message, "max_tokens", "unsupported_parameter")
    if body.get("temperature") not in (None, 1):
        message = (
            f"Unsupported value: 'temperature' does not support {body['temperature']:g} with this "
            "model. Only the default (1) value is supported."
        )
        return _refuse(message, "temperature", "unsupported_value")
    for name in _NOT_FOR_REASONING:
        if body.get(name) is not None:
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            return _refuse(message, name, "unsupported_parameter")
    return None


def _unanswered(messages: list[_Message]) -> Refusal | None:
    """A tool call without its result right after it, or a result without its call."""
    waiting: dict[str, int] = {}
    known: set[str] = set()
    for position, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in known:
                text = "a message with role 'tool' must be a response to a preceding tool call."
                return _refuse(text, f"messages.[{position}].role")
            waiting.pop(message.tool_call_id or "", None)
        elif waiting:
            break
        else:
            waiting = {call.id: position for call in message.tool_calls or ()}
            known = set(waiting)
    if not waiting:
        return None
    text = f"'tool_calls' must be followed by a tool message for each: {', '.join(waiting)}"
    return _refuse(text, f"messages.[{min(waiting.values())}].role")


def _conversation(request: _Request, body: Mapping[str, Any], raw_body: bytes) -> Conversation:
    fingerprint, prompt_tokens = fingerprint_of(raw_body)
    wanted = request.response_format and request.response_format.json_schema
    choice = request.tool_choice
    offered = [] if choice == "none" else request.tools or []
    stop = request.stop
    roles = ("system", "developer")
    limit = request.max_completion_tokens
    return Conversation(
        wire="openai",
        model=request.model,
        system="\n".join(each.text() for each in request.messages if each.role in roles),
        turns=_turns(request.messages).build(),
        offered=tuple(tool.function.name for tool in offered),
        structured=wanted.name if wanted else None,
        forced_tool=choice.function.name if isinstance(choice, _Choice) else None,
        prefill="",
        parallel=body.get("parallel_tool_calls") is not False,
        max_tokens=request.max_tokens if limit is None else limit,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        stream=bool(request.stream),
        stream_usage=bool(request.stream_options and request.stream_options.include_usage),
        fingerprint=fingerprint,
        prompt_tokens=prompt_tokens,
    )


def _turns(messages: list[_Message]) -> TurnsBuilder:
    builder = TurnsBuilder()
    calls: dict[str | None, _CalledFunction] = {}
    for message in messages:
        if message.role == "user":
            builder.add_user(message.text())
        elif message.role == "assistant":
            builder.add_assistant()
            calls = {call.id: call.function for call in message.tool_calls or ()}
        elif message.role == "tool":
            called = calls[message.tool_call_id]
            builder.add_call(called.name, parse_or_text(called.arguments), message.text())
    return builder
