"""The `ollama` provider: models on the user's own machine. Needs no key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import httpx

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.http_client import UNREACHABLE, open_client
from kindlm.ports import ModelReply, ModelRequest
from kindlm.providers.client import MAX_BODY_BYTES, AnswerTooLong, HttpAnswer, NoAnswer, WireClient
from kindlm.providers.failures import Endpoint
from kindlm.providers.ollama_host import host_url
from kindlm.providers.ollama_wire import WIRE
from kindlm.providers.wire_embedder import EmbeddingWire, WireEmbedder
from kindlm.suite import ProviderSettings

__all__ = ["ollama_client", "ollama_embedder"]

_EMBEDDING_MODEL = "nomic-embed-text"
_NOT_FOUND = 404


def ollama_client(
    settings: ProviderSettings, key: str | None, environ: Mapping[str, str]
) -> OllamaClient:
    """Make a client; a key, where one is configured, is for a gateway or Ollama's own cloud."""
    endpoint = _endpoint(settings, key, environ)
    return OllamaClient(endpoint, WireClient(endpoint, WIRE, _Transport(endpoint)))


def ollama_embedder(
    settings: ProviderSettings, key: str | None, environ: Mapping[str, str]
) -> WireEmbedder:
    """Make an embedder with the embedding model that most users of Ollama have."""
    endpoint = _endpoint(settings, key, environ)
    return WireEmbedder(
        endpoint,
        _EMBEDDING_WIRE,
        _EMBEDDING_MODEL,
        partial(_Transport, endpoint),
        advise=partial(_advise, endpoint=endpoint, model=_EMBEDDING_MODEL),
    )


def _vectors(body: Mapping[str, Any]) -> list[Any] | None:
    found = body.get("embeddings")
    return found if isinstance(found, list) else None


_EMBEDDING_WIRE = EmbeddingWire("/api/embed", _vectors, ("prompt_eval_count",))


def _endpoint(settings: ProviderSettings, key: str | None, environ: Mapping[str, str]) -> Endpoint:
    """Return where Ollama is: `baseUrl`, else OLLAMA_HOST, else the usual port of this machine."""
    base_url = settings.base_url or host_url(environ.get("OLLAMA_HOST", ""))
    return Endpoint(settings.name, base_url.rstrip("/"), settings.api_key_env, key or "")


class OllamaClient:
    """Implements `ports.ModelClient`."""

    def __init__(self, endpoint: Endpoint, wire: WireClient) -> None:
        self._endpoint = endpoint
        self._wire = wire

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        """Make one call; see `ports.ModelClient`."""
        result = await self._wire.complete(request)
        if isinstance(result, Ok):
            return result
        return Err(_advise(result.error, self._endpoint, request.model))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._wire.aclose()


class _Transport:
    """Implements `client.Transport` with httpx."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._base_url = endpoint.base_url
        self._headers = {"Content-Type": "application/json"}
        if endpoint.key:
            self._headers["Authorization"] = f"Bearer {endpoint.key}"
        self._client = open_client()

    async def send(self, path: str, body: bytes) -> HttpAnswer:
        """Post a body and return the answer whatever its status; see `client.Transport`."""
        url = self._base_url + path
        try:
            sending = self._client.stream("POST", url, content=body, headers=self._headers)
            async with sending as response:
                content = await _content(response)
        except UNREACHABLE as error:
            raise NoAnswer from error
        text = content.decode(response.encoding or "utf-8", "replace")
        return HttpAnswer(response.status_code, response.headers, text)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


async def _content(response: httpx.Response) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise AnswerTooLong
        pieces.append(piece)
    return b"".join(pieces)


def _advise(error: KindlmError, endpoint: Endpoint, model: str) -> KindlmError:
    """Return the error with what to do about it where Ollama is not started or lacks the model."""
    if error.details.get("status") == _NOT_FOUND and model in error.message:
        return replace(error, hint=f"Fetch the model: ollama pull {model}")
    if error.code is ErrorCode.PROVIDER_NETWORK_ERROR and "refused" in error.message:
        where = f"providers.{endpoint.provider}.baseUrl"
        return replace(error, hint=f"Start Ollama: ollama serve, or check {where}")
    return error
