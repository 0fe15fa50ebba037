"""The `ollama` provider: models on the user's own machine, without a key.

The address is `baseUrl`, or the variable OLLAMA_HOST as Ollama reads it: without a scheme, a port
or a host, or with the address that a server listens on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

from kindlm.errors import ErrorCode, KindlmError
from kindlm.plugins import Access, Provider
from kindlm.ports import ModelRequest
from kindlm.providers.client import (
    ApiFormat,
    ApiRequest,
    NoAnswer,
    WireClient,
    decoded,
    function_tool,
    prefill_of,
    within_bounds,
    without_answered_prefills,
)
from kindlm.providers.embedders import WireEmbedder
from kindlm.providers.provider_failures import Endpoint, HttpAnswer
from kindlm.transcript import FinishReason, Message, Role, Usage
from kindlm.wires import UnreadableReply, WireAnswer, error_message, text_or_none, token_usage
from kindlm.wires.chat import function_calls

_PORT = 11434


def host_url(host: str) -> str:
    """Return the URL for a value of OLLAMA_HOST; an invalid value is returned unchanged."""
    url = host.strip() if "://" in host else f"http://{host.strip()}"
    try:
        parts = urlsplit(url)
        port = parts.port or (None if "://" in host else _PORT)
    except ValueError:
        return host
    name = parts.hostname or "127.0.0.1"
    if name in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound: this replaces it
        name = "127.0.0.1"
    netloc = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{netloc}{'' if port is None else f':{port}'}{parts.path}"


_FINISH_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.MAX_TOKENS}


def encode(request: ModelRequest, refused: frozenset[str] = frozenset()) -> ApiRequest:
    """Return the body of a chat request. Ollama ignores options that a model does not take."""
    sent = ApiRequest(request.model, refused, {"model": request.model})
    params = request.params
    sent.add("messages", [_message(message) for message in without_answered_prefills(request)])
    sent.add("stream", False)
    options = {
        "temperature": params.temperature,
        "num_predict": sent.limit(request),
        "top_p": params.top_p,
        "seed": params.seed,
        "stop": list(params.stop_sequences) or None,
    }
    sent.add("options", {name: value for name, value in options.items() if value is not None})
    sent.add("tools", [function_tool(tool) for tool in request.tools] or None)
    if request.response_schema is not None:
        sent.add("format", dict(request.response_schema.schema))
    return sent


def decode(body: Mapping[str, Any], request: ModelRequest) -> WireAnswer:
    """Read a chat reply, without the model's reasoning; raise `UnreadableReply` for others."""
    message = body.get("message")
    if not isinstance(message, dict):
        raise UnreadableReply(error_message(body) or "it has no `message`")
    calls = function_calls(message)
    ended, reason = body.get("done_reason"), None
    if isinstance(ended, str):
        reason = _FINISH_REASONS.get(ended, FinishReason.OTHER)
    return WireAnswer(
        text=prefill_of(request) + (text_or_none(message.get("content")) or ""),
        tool_calls=calls,
        usage=usage(body),
        finish_reason=FinishReason.TOOL_CALLS if calls else reason,
        model=text_or_none(body.get("model")),
    )


def usage(body: Mapping[str, Any]) -> Usage:
    """Return the tokens that a body reports."""
    return token_usage(body, "prompt_eval_count", "eval_count")


WIRE = ApiFormat("/api/chat", encode, decode, usage)


def _message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role.value, "content": message.text}
    if message.tool_calls:
        written["tool_calls"] = [
            {"function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.role is Role.TOOL and message.tool_name is not None:
        written["tool_name"] = message.tool_name
    return written


_EMBEDDING_MODEL = "nomic-embed-text"


class Ollama(Provider):
    """Calls Ollama; a key is for a gateway or Ollama's own cloud."""

    takes_prefill: ClassVar[bool] = True
    embeds: ClassVar[bool] = True
    address_variable: ClassVar[str] = "OLLAMA_HOST"

    @classmethod
    def ambient_address(cls, environ: Mapping[str, str]) -> str:
        return host_url(environ.get(cls.address_variable, ""))

    def connect(self, access: Access) -> WireClient:
        endpoint = _endpoint(access)
        return WireClient(endpoint, WIRE, _Transport(endpoint, WIRE.path))

    def embedder(self, access: Access) -> WireEmbedder:
        """Return an embedder with the most common embedding model of Ollama."""
        endpoint = _endpoint(access)
        connect = partial(_Transport, endpoint, "/api/embed")
        return WireEmbedder(endpoint, _EMBEDDING_MODEL, connect)


def _endpoint(access: Access) -> OllamaEndpoint:
    base_url = access.base_url or Ollama.ambient_address(access.environ)
    return OllamaEndpoint(access.name, base_url.rstrip("/"), access.key_variable, access.key or "")


_MISSING = re.compile(r"model [\"']([^\"']+)[\"'] not found")


class OllamaEndpoint(Endpoint):
    """Adds a hint if Ollama is not running, or lacks the model."""

    def _failed(self, message: str, hint: str | None = None, **more: Any) -> KindlmError:
        if more.get("status") == 404 and (missing := _MISSING.search(message)):
            hint = f"Fetch the model: ollama pull {missing[1]}"
        elif more.get("code") is ErrorCode.PROVIDER_NETWORK_ERROR and "refused" in message:
            hint = f"Start Ollama: ollama serve, or check {self.address_key}"
        return super()._failed(message, hint, **more)


class _Transport:
    """Implements `client.Transport` with httpx."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        from kindlm.http_client import open_client  # only agents and Ollama need it

        self._url = endpoint.base_url + path
        self._headers = {"Content-Type": "application/json"}
        if endpoint.key:
            self._headers["Authorization"] = f"Bearer {endpoint.key}"
        self._client = open_client()

    async def send(self, body: bytes) -> HttpAnswer:
        from kindlm.http_client import UNREACHABLE

        try:
            sending = self._client.stream("POST", self._url, content=body, headers=self._headers)
            async with sending as response:
                content = b"".join([piece async for piece in within_bounds(response.aiter_bytes())])
        except UNREACHABLE as error:
            raise NoAnswer from error
        text = decoded(content, response.encoding)
        return HttpAnswer(response.status_code, response.headers, text)

    async def aclose(self) -> None:
        await self._client.aclose()
