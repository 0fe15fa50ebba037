"""Messages requests: what the API refuses, and what an accepted one means.

Refused is what kindlm could get wrong: versions, types, roles, ranges, unknown parameters, blank
texts, tool calls without their results. The API itself words most refusals as pydantic does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kindlm.testing.conversation import Conversation, TurnsBuilder, fingerprint_of
from kindlm.testing.script import ModelSpec
from kindlm.testing.wire import Refusal

_NOT_CHECKED = frozenset({
    "cache_control", "container", "context_management", "diagnostics", "inference_geo",
    "mcp_servers", "metadata", "output_config", "service_tier", "speed", "thinking", "top_k",
})  # fmt: skip
_CURRENT_VERSION = "2026-10-21"
"""Takes no sampling parameters, unlike the versions before it."""
_VERSIONS = (_CURRENT_VERSION, "2023-06-01", "2023-01-01")
_SAMPLING = ("temperature", "top_p", "top_k")
_ONE_SAMPLING_PARAMETER = re.compile(r"claude-(opus-4-[1-9]\b|(sonnet|haiku)-4-[5-9]\b)")
"""Models that take temperature or top_p, not both."""
_BLOCKS = {
    "user": ("text", "image", "document", "search_result", "tool_result"),
    "assistant": ("text", "document", "thinking", "redacted_thinking", "tool_use"),
}

Fraction = Annotated[float, Field(ge=0, le=1)]


class _Form(BaseModel):
    model_config = ConfigDict(strict=True)


class _Text(_Form):
    type: str
    text: str = ""

    @model_validator(mode="after")
    def _says_something(self) -> _Text:
        if self.type == "text" and not self.text.strip():
            raise ValueError("text content blocks must contain non-whitespace text")
        return self


class _Block(_Text):
    id: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$")] = ""
    name: str = ""
    input: dict[str, Any] = Field(default_factory=dict)
    tool_use_id: str = ""
    content: str | list[_Text] = ""

    @model_validator(mode="after")
    def _is_complete(self) -> _Block:
        needed = {"tool_use": ("id", "name", "input"), "tool_result": ("tool_use_id",)}
        for name in needed.get(self.type, ()):
            if name not in self.model_fields_set:
                raise ValueError(f"{name}: Field required")
        return self


class _Message(_Form):
    model_config = ConfigDict(strict=True, extra="forbid")

    role: Literal["user", "assistant"]
    content: str | list[_Block]

    @model_validator(mode="after")
    def _holds_its_blocks(self) -> _Message:
        for block in self.blocks():
            if block.type not in _BLOCKS[self.role]:
                raise ValueError(f"`{block.type}` blocks cannot be in `{self.role}` messages")
        if isinstance(self.content, str) and self.content and not self.content.strip():
            raise ValueError("text content blocks must contain non-whitespace text")
        return self

    def blocks(self, kind: str | None = None) -> list[_Block]:
        blocks = self.content if isinstance(self.content, list) else []
        return [block for block in blocks if kind in (None, block.type)]

    def text(self) -> str:
        return _text(self.content)


class _Schema(_Form):
    type: Literal["object"]


class _Tool(_Form):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    input_schema: _Schema


class _Choice(_Form):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class _Request(_Form):
    model_config = ConfigDict(strict=True, extra="allow")

    model: str
    max_tokens: Annotated[int, Field(ge=0)]
    messages: Annotated[list[_Message], Field(min_length=1)]
    system: str | list[_Text] | None = None
    temperature: Fraction | None = None
    top_p: Fraction | None = None
    stop_sequences: list[Annotated[str, Field(pattern=r"\S")]] | None = None
    stream: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None


def _text(content: str | list[_Text] | list[_Block] | None) -> str:
    if isinstance(content, list):
        return "\n".join(block.text for block in content if block.type == "text")
    return content or ""


def read(
    headers: Mapping[str, str], body: dict[str, Any], raw_body: bytes, model: ModelSpec | None
) -> Conversation | Refusal:
    """The conversation that a request holds, or what is wrong with the request."""
    version = headers.get("anthropic-version")
    if version not in _VERSIONS:
        return _refuse(f'anthropic-version: "{version}" is not a valid version')
    for name in body:
        known = name in _NOT_CHECKED or name in _Request.model_fields
        if not known or (version == _CURRENT_VERSION and name in _SAMPLING):
            return _refuse(f"{name}: Extra inputs are not permitted")
    try:
        request = _Request.model_validate(body)
    except ValidationError as error:
        # Of a union, the kind that the value came nearest to.
        first = max(
            error.errors(include_url=False, include_input=False), key=lambda e: len(e["loc"])
        )
        return _refuse(
            f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"
        )
    message = _misfit(request, model) or _disorder(request.messages)
    return _refuse(message) if message else _conversation(request, raw_body)


def _refuse(message: str) -> Refusal:
    return Refusal(400, "invalid_request_error", message)


def _misfit(request: _Request, model: ModelSpec | None) -> str | None:
    """What of a request does not fit the model, or the rest of the request."""
    sampling = {"temperature": request.temperature, "top_p": request.top_p}
    written = {name: value for name, value in sampling.items() if value is not None}
    if model is not None and model.reasoning:
        for name, value in written.items():
            if value != 1:
                return f"`{name}` is deprecated for this model."
        if request.messages[-1].role == "assistant":
            return "This model does not support assistant message prefill."
    if len(written) > 1 and _ONE_SAMPLING_PARAMETER.match(request.model):
        return "`temperature` and `top_p` cannot both be specified. Please use only one."
    names = [tool.name for tool in request.tools or ()]
    if len(set(names)) < len(names):
        return "tools: Tool names must be unique."
    choice = request.tool_choice
    if choice is not None and not names:
        return "tool_choice: Tool choice may only be specified while providing tools."
    if choice is not None and choice.type == "tool" and choice.name not in names:
        return f"Tool '{choice.name}' not found in provided tools"
    return None


def _disorder(messages: list[_Message]) -> str | None:
    """What is wrong with the order of messages, tool calls and their results."""
    if messages[0].role != "user":
        return 'messages: first message must use the "user" role'
    for message in messages[:-1]:
        if not message.content:
            return "messages: all but the last one must have non-empty content"
    if not messages[-1].content and messages[-1].role == "user":
        return "messages: a user message must have non-empty content"
    waiting: list[str] = []
    for position, message in enumerate(messages):
        given = [block.tool_use_id for block in message.blocks("tool_result")]
        leading = [block.tool_use_id for block in message.blocks()[: len(given)]]
        missing = [each for each in waiting if each not in leading]
        if missing:
            return (
                f"messages.{position}: `tool_use` ids without `tool_result` blocks immediately "
                f"after: {', '.join(missing)}"
            )
        unknown = [each for each in given if each not in waiting]
        if unknown:
            return f"messages.{position}: unexpected `tool_use_id`: {unknown[0]}"
        waiting = [block.id for block in message.blocks("tool_use")]
        if len(set(given)) < len(given) or len(set(waiting)) < len(waiting):
            return f"messages.{position}: ids must be unique, each with a single result"
    if waiting:
        return f"messages: `tool_use` ids without `tool_result` blocks: {', '.join(waiting)}"
    last = messages[-1]
    if last.role == "assistant" and last.text() != last.text().rstrip():
        return "messages: final assistant content cannot end with trailing whitespace"
    return None


def _conversation(request: _Request, raw_body: bytes) -> Conversation:
    fingerprint, prompt_tokens = fingerprint_of(raw_body)
    choice = request.tool_choice or _Choice(type="auto")
    forced = choice.name if choice.type == "tool" else None
    last = request.messages[-1]
    return Conversation(
        wire="anthropic",
        model=request.model,
        system=_text(request.system),
        turns=_turns(request.messages).build(),
        offered=tuple(t.name for t in request.tools or () if choice.type != "none"),
        structured=forced,
        forced_tool=forced,
        prefill=last.text() if last.role == "assistant" else "",
        parallel=not choice.disable_parallel_tool_use,
        max_tokens=request.max_tokens,
        stop=tuple(request.stop_sequences or ()),
        stream=bool(request.stream),
        stream_usage=True,
        fingerprint=fingerprint,
        prompt_tokens=prompt_tokens,
    )


def _turns(messages: list[_Message]) -> TurnsBuilder:
    builder = TurnsBuilder()
    uses: dict[str, _Block] = {}
    for message in messages:
        if message.role == "assistant":
            builder.add_assistant()
            uses = {use.id: use for use in message.blocks("tool_use")}
            continue
        for result in message.blocks("tool_result"):
            use = uses[result.tool_use_id]
            builder.add_call(use.name, use.input, _text(result.content))
        if text := message.text():
            builder.add_user(text)
    return builder
