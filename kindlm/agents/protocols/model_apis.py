"""The protocols of model APIs, which many agents speak as well: their requests.

`agents.event_streams` and `agents.reply_reading` read their answers.
"""

from __future__ import annotations

from typing import Any

from kindlm.agents.http_request import all_messages
from kindlm.agents.protocols import Protocol
from kindlm.ports import AgentRequest

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
    messages = all_messages(request)
    system = [message["content"] for message in messages if message["role"] == "system"]
    return "\n\n".join(system), [it for it in messages if it["role"] != "system"]


def _streamed(body: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    return body | {"stream": True} if stream else body


def _has_list(value: Any, key: str) -> bool:
    return isinstance(value, dict) and isinstance(value.get(key), list)


CHAT = Protocol("chat completions", _chat, lambda value: _has_list(value, "choices"))
RESPONSES = Protocol("OpenAI responses", _responses, lambda value: _has_list(value, "output"))
ANTHROPIC = Protocol("Anthropic messages", _anthropic, lambda value: _has_list(value, "content"))
