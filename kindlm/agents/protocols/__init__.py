"""The protocols of HTTP agents: the form of requests, and how answers are recognised.

kindlm recognises an answer by its form, even without the option `protocol`. This module makes the
requests of model APIs, whose answers `event_streams` and `reply_reading` read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from kindlm.agents.http_request import all_messages, system_text
from kindlm.dataclass import dataclass
from kindlm.ports import AgentRequest
from kindlm.section import Maybe

Name: TypeAlias = Literal["chat", "responses", "anthropic", "ai-sdk", "ag-ui", "a2a", "a2a-0.3"]
ProtocolName = Annotated[
    Maybe[Name],
    Field(
        examples=["responses"],
        description="Protocol of the agent (`http`, `streaming`). Requests have its form, and an "
        "answer in another form is an error. Without it, requests have the form of the adapter, "
        "and kindlm recognises the form of answers.",
    ),
]


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol; its `title` is the name of its streams in `event_framing.StreamFormat`.

    `body` makes the body from the request, whether kindlm asks for a stream, and the value that the
    last answer asked to send back (`ParsedAnswer.carried`). `is_answer` returns whether a JSON
    value is an answer; by default, only streams are.
    """

    title: str
    body: Callable[[AgentRequest, bool, Any], dict[str, Any]]
    is_answer: Callable[[Any], bool] = lambda _value: False
    headers: Mapping[str, str] = field(default_factory=dict)
    sends_system: bool = True
    sends_context: bool = False


_MAX_TOKENS = 4096
"""Anthropic's API requires a limit; `body` may set another."""


def _chat(request: AgentRequest, stream: bool, _carried: Any) -> dict[str, Any]:
    # A stream reports tokens only on request.
    options = {"stream_options": {"include_usage": True}, "stream": True} if stream else {}
    return {"messages": all_messages(request), **options}


def _responses(request: AgentRequest, stream: bool, _carried: Any) -> dict[str, Any]:
    system, messages = _separated(request)
    body: dict[str, Any] = {"instructions": system} if system else {}
    return {**body, "input": messages, **({"stream": True} if stream else {})}


def _anthropic(request: AgentRequest, stream: bool, _carried: Any) -> dict[str, Any]:
    system, messages = _separated(request)
    body: dict[str, Any] = {"max_tokens": _MAX_TOKENS} | ({"system": system} if system else {})
    return {**body, "messages": messages, **({"stream": True} if stream else {})}


def _separated(request: AgentRequest) -> tuple[str, list[dict[str, str]]]:
    """Return the system text and the other messages."""
    messages = [message for message in all_messages(request) if message["role"] != "system"]
    return system_text(request), messages


def _has_list(value: Any, key: str) -> bool:
    return isinstance(value, dict) and isinstance(value.get(key), list)


CHAT = Protocol("chat completions", _chat, lambda value: _has_list(value, "choices"))
RESPONSES = Protocol("OpenAI responses", _responses, lambda value: _has_list(value, "output"))
ANTHROPIC = Protocol("Anthropic messages", _anthropic, lambda value: _has_list(value, "content"))
