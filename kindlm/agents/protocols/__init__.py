"""The protocols of HTTP agents: the form of requests, and how answers are recognised.

Answers are recognised by their form, with or without the option `protocol`. With it, requests have
the form of the protocol, and an answer in another form is an error. This module has the requests of
model APIs, whose answers `event_streams` and `reply_reading` read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import import_module
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

_MODULES = {
    "ai-sdk": ("ai_sdk", "AI_SDK"),
    "ag-ui": ("ag_ui", "AG_UI"),
    "a2a": ("a2a", "A2A"),
    "a2a-0.3": ("a2a", "A2A_0_3"),
}


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol.

    Attributes:
        title: what answers in it are called, as `event_framing.StreamFormat` has it.
        body: makes the body of a request: of the request, whether a stream is asked for, and what
            the last answer asked to be sent back (`Heard.carried`).
        is_answer: tells whether a JSON value is an answer in it; by default no JSON is.
        headers: go with each request.
        says_system: whether a request has the system text.
        says_context: whether a request has the context of the message.
    """

    title: str
    body: Callable[[AgentRequest, bool, Any], dict[str, Any]]
    is_answer: Callable[[Any], bool] = lambda _value: False
    headers: Mapping[str, str] = field(default_factory=dict)
    says_system: bool = True
    says_context: bool = False


_MAX_TOKENS = 4096
"""Anthropic's API requires a limit; `body` may set another."""


def _chat(request: AgentRequest, stream: bool, _carried: Any) -> dict[str, Any]:
    # Without asking for them, a stream has no tokens.
    asked = {"stream_options": {"include_usage": True}} if stream else {}
    return _streamed({"messages": all_messages(request), **asked}, stream=stream)


def _responses(request: AgentRequest, stream: bool, _carried: Any) -> dict[str, Any]:
    system, said = _apart(request)
    body: dict[str, Any] = {"instructions": system} if system else {}
    return _streamed({**body, "input": said}, stream=stream)


def _anthropic(request: AgentRequest, stream: bool, _carried: Any) -> dict[str, Any]:
    system, said = _apart(request)
    body: dict[str, Any] = {"max_tokens": _MAX_TOKENS} | ({"system": system} if system else {})
    return _streamed({**body, "messages": said}, stream=stream)


def _apart(request: AgentRequest) -> tuple[str, list[dict[str, str]]]:
    """Return the system text and the other messages."""
    said = [it for it in all_messages(request) if it["role"] != "system"]
    return system_text(request), said


def _streamed(body: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    return body | {"stream": True} if stream else body


def _has_list(value: Any, key: str) -> bool:
    return isinstance(value, dict) and isinstance(value.get(key), list)


CHAT = Protocol("chat completions", _chat, lambda value: _has_list(value, "choices"))
RESPONSES = Protocol("OpenAI responses", _responses, lambda value: _has_list(value, "output"))
ANTHROPIC = Protocol("Anthropic messages", _anthropic, lambda value: _has_list(value, "content"))
_OF_MODELS = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}


def protocol_named(name: str) -> Protocol:
    """Return a protocol; a module of its own is imported when it is asked for."""
    if name in _OF_MODELS:
        return _OF_MODELS[name]
    module, variable = _MODULES[name]
    found: Protocol = getattr(import_module(f"{__name__}.{module}"), variable)
    return found
