"""The loopback server, which also checks that real APIs would take what it was sent.

What the server itself refuses is in kindlm/testing/README.md. The rules here are about what kindlm
could get wrong in a request: what the documentation of the APIs says, and with
`TypedLoopbackServer` the names and types of all parameters, as the providers' own SDKs define them.
To load these takes seconds, so it is for tests that load the SDKs anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import TracebackType
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from kindlm import testing
from kindlm.testing.loopback import LoggedRequest

_CURRENT_VERSION = "2026-10-21"
"""The version of the Messages API that takes no sampling parameters."""
_VERSIONS = (_CURRENT_VERSION, "2023-06-01", "2023-01-01")
_ONE_SAMPLING_PARAMETER = re.compile(r"claude-(opus-4-[1-9]\b|(sonnet|haiku)-4-[5-9]\b)")
"""Models that take temperature or top_p, not both."""


class LoopbackServer(testing.LoopbackServer):
    """Fails at its end if it answered a request that the real API would refuse."""

    _by_types = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is None:
            for request in self.requests:
                found = faults_of(request, by_types=self._by_types)
                assert not found, (found, request.body)


class TypedLoopbackServer(LoopbackServer):
    """As `LoopbackServer`, and compares requests with the types of the SDKs."""

    _by_types = True


def faults_of(request: LoggedRequest, *, by_types: bool) -> list[str]:
    """What the real API would refuse of a request that the server answered."""
    if request.status != 200 or not request.path.endswith(("/chat/completions", "/messages")):
        return []
    openai = request.path.endswith("/chat/completions")
    if by_types and (
        found := _wrong_types(request, *_openai_types() if openai else _anthropic_types())
    ):
        return found
    return list(_openai(request.body) if openai else _anthropic(request.body, request.headers))


def _wrong_types(
    request: LoggedRequest, types: SchemaValidator, known: frozenset[str]
) -> list[str]:
    found = [f"unknown parameter {name}" for name in sorted(set(request.body) - known)]
    # Halves of surrogate pairs are sent as they came; pydantic reads none.
    whole = re.sub(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", b"?", request.raw_body)
    try:
        types.validate_json(whole, strict=True)
    except ValidationError as error:
        found.append(str(error))
    return found


@cache
def _openai_types() -> tuple[SchemaValidator, frozenset[str]]:
    from openai.types.chat.completion_create_params import (
        CompletionCreateParamsBase,
        CompletionCreateParamsNonStreaming,
        CompletionCreateParamsStreaming,
    )

    either: Any = CompletionCreateParamsNonStreaming | CompletionCreateParamsStreaming
    known = frozenset({*CompletionCreateParamsBase.__annotations__, "stream"})
    return _validator(either), known


@cache
def _anthropic_types() -> tuple[SchemaValidator, frozenset[str]]:
    from anthropic.types.message_create_params import (
        MessageCreateParamsBase,
        MessageCreateParamsNonStreaming,
        MessageCreateParamsStreaming,
    )

    either: Any = MessageCreateParamsNonStreaming | MessageCreateParamsStreaming
    sampling = {"temperature", "top_p", "top_k"}
    known = frozenset({*MessageCreateParamsBase.__annotations__, "stream", *sampling})
    return _validator(either), known


def _validator(params: Any) -> SchemaValidator:
    """A validator of parameters, for whose `Iterable` pydantic would take any text, too."""
    schema = TypeAdapter(params).core_schema
    parts: list[Any] = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if part.get("type") == "generator":
                part["type"] = "list"
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
    return SchemaValidator(schema)


def _openai(body: Mapping[str, Any]) -> Iterator[str]:
    yield from _bounds(body, temperature=(0, 2), top_p=(0, 1), presence_penalty=(-2, 2))
    yield from _bounds(body, frequency_penalty=(-2, 2), max_tokens=(1, 1e9), n=(1, 128))
    if not body["messages"] or body.get("tools") == []:
        yield "empty list"
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "both limits"
    if "stream_options" in body and not body.get("stream"):
        yield "stream_options without stream"
    if isinstance(stop := body.get("stop"), list) and len(stop) > 4:
        yield "too many stop texts"
    for message in body["messages"]:
        if message["role"] == "assistant" and message.get("tool_calls") == []:
            yield "empty list of tool calls"
        if message.get("content") is None and not message.get("tool_calls"):
            yield "a message without content"
    functions = [tool["function"] for tool in body.get("tools", ())]
    names = [function["name"] for function in functions]
    yield from _names(names, 64)
    for function in functions:
        if "parameters" in function:
            yield from _not_an_object(function["parameters"])
    yield from _choice(body.get("tool_choice"), names)
    wanted = body.get("response_format") or {"type": "text"}
    if wanted["type"] == "json_object" and "json" not in str(body["messages"]).lower():
        yield "JSON is wanted and not asked for"
    if wanted["type"] == "json_schema":
        yield from _names([wanted["json_schema"]["name"]], 64)
        yield from _not_strict(wanted["json_schema"])


def _not_an_object(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        yield "a schema that is not an object with properties"


def _not_strict(wanted: Mapping[str, Any]) -> Iterator[str]:
    """What a strict output's schema lacks."""
    schema = wanted.get("schema", {})
    yield from _not_an_object(schema)
    if wanted.get("strict") and (
        schema.get("additionalProperties") is not False
        or set(schema.get("properties", {})) - set(schema.get("required", ()))
    ):
        yield "a strict schema with additional or optional properties"


def _anthropic(body: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[str]:
    version = headers.get("anthropic-version")
    if version not in _VERSIONS:
        yield f"unknown version {version}"
    sampling = {name for name in ("temperature", "top_p", "top_k") if body.get(name) is not None}
    if sampling and version == _CURRENT_VERSION:
        yield f"{sampling} are no parameters of this version"
    if {"temperature", "top_p"} <= sampling and _ONE_SAMPLING_PARAMETER.match(body["model"]):
        yield "temperature and top_p"
    yield from _bounds(body, temperature=(0, 1), top_p=(0, 1), max_tokens=(0, 1e9))
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "the first message is not the user's"
    for message in messages:
        yield from _odd_content(message, last=message is messages[-1])
    if not all(text.strip() for text in body.get("stop_sequences", ())):
        yield "a blank stop sequence"
    names = [tool["name"] for tool in body.get("tools", ())]
    yield from _names(names, 128)
    if len(set(names)) < len(names):
        yield "a tool name twice"
    if any(tool["input_schema"].get("type") != "object" for tool in body.get("tools", ())):
        yield "a schema that is not an object"
    choice = body.get("tool_choice")
    if choice is not None:
        yield from _choice(choice if choice["type"] == "tool" else choice["type"], names)


def _odd_content(message: Mapping[str, Any], *, last: bool) -> Iterator[str]:
    role, content = message["role"], message["content"]
    if not content and not (last and role == "assistant"):
        yield "a message without content"
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if not all(text.strip() for text in texts if content):
        yield "a blank text"
    if last and role == "assistant" and texts and texts[-1] != texts[-1].rstrip():
        yield "a prefill that ends with white space"
    kinds = [block["type"] for block in blocks]
    if ("tool_use" in kinds and role == "user") or ("tool_result" in kinds and role != "user"):
        yield f"a block that does not belong to the {role}"
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if any(kind != "tool_result" for kind in kinds[: len(results)]):
        yield "a block before the tool results"
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if len(set(uses)) < len(uses) or not all(re.fullmatch(r"[\w-]+", use) for use in uses):
        yield "odd or repeated ids of tool calls"


def _bounds(body: Mapping[str, Any], **bounds: tuple[float, float]) -> Iterator[str]:
    for name, (least, most) in bounds.items():
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int | float) or not least <= value <= most:
            yield f"{name} is out of bounds"


def _names(names: Iterable[str], most: int) -> Iterator[str]:
    for name in names:
        if not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{most}}}", name):
            yield f"not a name: {name!r}"


def _choice(choice: Any, names: list[str]) -> Iterator[str]:
    if choice is not None and not names:
        yield "a tool choice without tools"
    elif isinstance(choice, Mapping):
        chosen = choice.get("function", choice)["name"]
        if chosen not in names:
            yield f"the tool {chosen} is chosen and not offered"
