"""The `scripted` provider: answers that the configuration holds. No key, no network.

The n-th model call of a conversation gets the n-th reply, the last one stays. What counts is the
number of assistant messages in the request, so that the same request always gets the same answer:
executions do not disturb each other, and every repeat and every retry is the same.

A reply is one of `{text}`, `{toolCalls: [{name, arguments}]}` (with `text` beside it, if wanted)
and `{error: rate_limit | timeout | auth | api | network, retryAfter}`; `delayMs` beside any of
them. `{{message}}` in a text or in arguments is the text of the last user message. A string that
is inserted is not looked at again.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import ModelReply, ModelRequest
from kindlm.suite import ProviderSettings
from kindlm.transcript import FinishReason, Role, ToolCall, Usage

__all__ = ["ScriptedClient", "scripted_client"]

_ERRORS = {
    "rate_limit": (ErrorCode.PROVIDER_RATE_LIMIT, 429, True),
    "timeout": (ErrorCode.PROVIDER_TIMEOUT, None, True),
    "auth": (ErrorCode.PROVIDER_AUTH_ERROR, 401, False),
    "api": (ErrorCode.PROVIDER_API_ERROR, 400, False),
    "network": (ErrorCode.PROVIDER_NETWORK_ERROR, None, True),
}
_PLACEHOLDER = re.compile(r"\{\{\s*message\s*\}\}")
_CHARACTERS_PER_TOKEN = 4


def scripted_client(
    settings: ProviderSettings, _key: str | None, _environ: Mapping[str, str]
) -> ScriptedClient:
    """Make a client of the provider's replies."""
    return ScriptedClient(settings.name, settings.replies)


class ScriptedClient:
    """Implements `ports.ModelClient`."""

    def __init__(self, provider: str, replies: tuple[Mapping[str, Any], ...]) -> None:
        self._provider = provider
        self._replies = replies

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        """Give the reply whose turn it is in this conversation."""
        if not self._replies:
            return Err(self._error(ErrorCode.PROVIDER_API_ERROR, "it has no replies"))
        turn = len([m for m in request.messages if m.role is Role.ASSISTANT and not m.prefill])
        reply = self._replies[min(turn, len(self._replies) - 1)]
        started = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s):
                await asyncio.sleep(reply.get("delayMs", 0) / 1000)
        except TimeoutError:
            message = f"the reply takes longer than {request.timeout_s * 1000:.0f} ms"
            return Err(self._error(ErrorCode.PROVIDER_TIMEOUT, message, retryable=True))
        if "error" in reply:
            return Err(self._scripted_error(reply))
        return Ok(_reply(request, reply, turn, (time.perf_counter() - started) * 1000))

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    def _scripted_error(self, reply: Mapping[str, Any]) -> KindlmError:
        code, status, retryable = _ERRORS[reply["error"]]
        message = f"the script says {reply['error']}"
        wait = reply.get("retryAfter")
        return self._error(code, message, status=status, retry_after=wait, retryable=retryable)

    def _error(
        self,
        code: ErrorCode,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        retryable: bool = False,
    ) -> KindlmError:
        details = {
            "status": status,
            "retry_after": retry_after,
            "retryable": retryable,
            "body": None,
        }
        return KindlmError(
            code,
            f"{self._provider}: {message}",
            f"See providers.{self._provider}.replies in the configuration",
            details=details,
        )


def _reply(
    request: ModelRequest, scripted: Mapping[str, Any], turn: int, latency_ms: float
) -> ModelReply:
    users = [message.text for message in request.messages if message.role is Role.USER]
    filled = _fill(dict(scripted), users[-1] if users else "")
    calls = [
        ToolCall(f"call_{turn}_{index}", call["name"], call.get("arguments", {}))
        for index, call in enumerate(filled.get("toolCalls", ()))
    ]
    raw = json.dumps(filled, ensure_ascii=False)
    asked = "".join([message.text for message in request.messages])
    return ModelReply(
        text=filled.get("text", ""),
        raw=raw,
        latency_ms=latency_ms,
        tool_calls=tuple(calls),
        usage=Usage(_tokens(asked), _tokens(raw)),
        reported_cost_usd=0.0,
        finish_reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
        model=request.model,
    )


def _fill(value: Any, message: str) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda _: message, value)
    if isinstance(value, Mapping):
        return {key: _fill(item, message) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(item, message) for item in value]
    return value


def _tokens(text: str) -> int:
    """Estimate: about four characters make a token."""
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
