"""The `scripted` provider: answers from the configuration, without a key or a network.

The nth model call of a conversation gets the nth reply, and later calls the last reply. n is the
number of assistant messages in the request, so that equal requests always get the same answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from kindlm.errors import Err, ErrorCode, Ok, Result, unanswered
from kindlm.plugins import Access, Provider
from kindlm.ports import ModelReply, ModelRequest
from kindlm.section import Extension, Maybe, Section, Text, resolved
from kindlm.transcript import FinishReason, Role, ToolCall, Usage
from kindlm.values import filled, refuse

_ERRORS = {
    "rate_limit": (ErrorCode.PROVIDER_RATE_LIMIT, 429, True),
    "timeout": (ErrorCode.PROVIDER_TIMEOUT, None, True),
    "auth": (ErrorCode.PROVIDER_AUTH_ERROR, 401, False),
    "api": (ErrorCode.PROVIDER_API_ERROR, 400, False),
    "network": (ErrorCode.PROVIDER_NETWORK_ERROR, None, True),
}
_PLACEHOLDER = re.compile(r"\{\{\s*message\s*\}\}")
_CHARACTERS_PER_TOKEN = 4
"""An estimate."""


class ScriptedCallConfig(Section):
    """A tool call that a scripted provider makes."""

    main = "name"

    name: Text = Field(examples=["lookup_order"])
    """Name of the tool."""
    arguments: dict[str, Any] = Field(default={}, examples=[{"order_id": "A1"}])
    """Arguments of the call."""


class ReplyConfig(Section):
    """A reply of a scripted provider: a text, tool calls, or an error."""

    main = "text"

    text: Maybe[str] = Field(default=None, examples=["You said: {{message}}"])
    """Text of the reply. {{message}} stands for the user's last message. A judge replies with JSON
    such as `{"score": 0.9, "reasoning": "It is polite."}`."""
    tool_calls: Maybe[list[ScriptedCallConfig]] = None
    """Tool calls of the reply."""
    error: Maybe[Literal["rate_limit", "timeout", "auth", "api", "network"]] = Field(
        default=None, examples=["rate_limit"]
    )
    """The error to return instead of a reply."""
    retry_after: Maybe[Annotated[float, Field(ge=0)]] = Field(default=None, examples=[1])
    """Seconds to wait, for the error `rate_limit`."""
    delay_ms: Maybe[Annotated[float, Field(ge=0)]] = Field(default=None, examples=[200])
    """Milliseconds until the reply."""

    @model_validator(mode="after")
    def _says_something(self) -> ReplyConfig:
        if self.error is not None and (self.text is not None or self.tool_calls is not None):
            raise refuse("has both an error and an answer", "Remove one of them")
        if self.error is None and self.text is None and self.tool_calls is None:
            raise refuse("holds no answer", "Add `text:`, `toolCalls:` or `error:`")
        return self


class Scripted(Provider):
    """Answers that the configuration holds."""

    takes_key: ClassVar[bool] = False
    takes_prefill: ClassVar[bool] = True  # it reads nothing
    takes_placeholders: ClassVar[bool] = False

    replies: Extension[Annotated[list[ReplyConfig], Field(min_length=1)]] = Field()
    """Replies of a scripted provider, in order."""

    def connect(self, access: Access) -> ScriptedClient:
        return ScriptedClient(access.name, [resolved(reply) for reply in self.replies])


class ScriptedClient:
    """Implements `ports.ModelClient`."""

    def __init__(self, provider: str, replies: Sequence[Mapping[str, Any]]) -> None:
        self._provider = provider
        self._replies = replies

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        started = time.perf_counter()
        characters = sum(len(message.text) for message in request.messages)
        users = ["", *(message.text for message in request.messages if message.role is Role.USER)]
        turn = sum(it.role is Role.ASSISTANT and not it.prefill for it in request.messages)
        reply = self._replies[min(turn, len(self._replies) - 1)]
        raw = json.dumps(reply, ensure_ascii=False)
        if "{{" in raw:
            reply = filled(reply, lambda text: _PLACEHOLDER.sub(lambda _: users[-1], text))
            raw = json.dumps(reply, ensure_ascii=False)
        if delay_ms := reply.get("delayMs", 0):
            try:
                async with asyncio.timeout(request.timeout_s):
                    await asyncio.sleep(delay_ms / 1000)
            except TimeoutError:
                late = f"the reply takes longer than {request.timeout_s * 1000:.0f} ms"
                return self._error(late, code=ErrorCode.PROVIDER_TIMEOUT, retryable=True)
        if "error" in reply:
            code, status, retryable = _ERRORS[reply["error"]]
            return self._error(
                f"the script says {reply['error']}",
                code=code,
                status=status,
                retry_after=reply.get("retryAfter"),
                retryable=retryable,
            )
        calls = tuple(
            ToolCall(f"call_{turn}_{number}", call["name"], call.get("arguments", {}))
            for number, call in enumerate(reply.get("toolCalls", ()))
        )
        return Ok(
            ModelReply(
                text=reply.get("text", ""),
                raw=raw,
                latency_ms=(time.perf_counter() - started) * 1000,
                tool_calls=calls,
                usage=Usage(
                    -(-characters // _CHARACTERS_PER_TOKEN), -(-len(raw) // _CHARACTERS_PER_TOKEN)
                ),
                reported_cost_usd=0.0,
                finish_reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
                model=request.model,
            )
        )

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    def _error(self, message: str, **details: Any) -> Err:
        hint = f"See providers.{self._provider}.replies in the configuration"
        return Err(unanswered(f"{self._provider}: {message}", hint, **details))
