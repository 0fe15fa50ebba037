"""The `openai` provider, and every endpoint that speaks its format, through the OpenAI SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kindlm.providers.ambient import header_names
from kindlm.providers.client import WireClient
from kindlm.providers.failures import Endpoint
from kindlm.providers.openai_wire import WIRE
from kindlm.providers.request_form import form_cache
from kindlm.providers.sdk_transport import Sdk, SdkTransport
from kindlm.providers.wire_embedder import EmbeddingWire, WireEmbedder
from kindlm.suite import ProviderSettings

if TYPE_CHECKING:
    import openai
    from openai._types import Headers


_BASE_URL = "https://api.openai.com/v1"
_NO_KEY = "unused"
_EMBEDDING_MODEL = "text-embedding-3-small"


def openai_client(
    settings: ProviderSettings, key: str | None, environ: Mapping[str, str]
) -> WireClient:
    """Make a client; without a key no `Authorization` is sent, as local servers like it."""
    endpoint = _endpoint(settings, key, environ)
    return WireClient(endpoint, WIRE, _connect(settings, endpoint, WIRE.path))


def openai_embedder(
    settings: ProviderSettings, key: str | None, environ: Mapping[str, str]
) -> WireEmbedder:
    """Make an embedder with the smaller of OpenAI's models, which compatible servers know, too."""
    endpoint = _endpoint(settings, key, environ)
    connect = partial(_connect, settings, endpoint, _EMBEDDING_WIRE.path)
    return WireEmbedder(endpoint, _EMBEDDING_WIRE, _EMBEDDING_MODEL, connect)


def _endpoint(settings: ProviderSettings, key: str | None, environ: Mapping[str, str]) -> Endpoint:
    base_url = settings.base_url or environ.get("OPENAI_BASE_URL") or _BASE_URL
    return Endpoint(settings.name, base_url, settings.api_key_env, key or "")


def _connect(settings: ProviderSettings, endpoint: Endpoint, path: str) -> SdkTransport:
    def load() -> Sdk:
        import openai

        def connect(http_client: Any) -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(
                api_key=endpoint.key or _NO_KEY,
                organization=settings.organization,
                base_url=endpoint.base_url,
                max_retries=0,
                timeout=None,
                http_client=http_client,
            )

        return Sdk(openai, connect, _headers(settings, endpoint.key or None))

    if settings.organization is not None:
        return SdkTransport(path, load)
    configured = settings.base_url is not None
    cache = form_cache("openai", endpoint.base_url, endpoint.key, configured=configured)
    return SdkTransport(path, load, cache)


def _vectors(body: Mapping[str, Any]) -> list[Any] | None:
    data = body.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        return None
    # They come in order; where an index says otherwise, it is right.
    places = [item.get("index", place) for place, item in enumerate(data)]
    if not all(isinstance(place, int) for place in places):
        return None
    ordered = sorted(zip(places, data, strict=True), key=itemgetter(0))
    return [item.get("embedding") for _, item in ordered]


_EMBEDDING_WIRE = EmbeddingWire("/embeddings", _vectors, ("usage", "prompt_tokens"))


def _headers(settings: ProviderSettings, key: str | None) -> Headers:
    """Return what is said on each request so that the environment does not say it: see ambient."""
    import openai

    headers: dict[str, str | openai.Omit] = {}
    if settings.base_url is not None:
        # The SDK itself reads these variables, and only from the process environment.
        headers = {
            name: openai.Omit() for name in header_names(os.environ, "OPENAI_CUSTOM_HEADERS")
        }
        headers["OpenAI-Project"] = openai.Omit()
        headers["OpenAI-Organization"] = settings.organization or openai.Omit()
        headers["Authorization"] = f"Bearer {key}" if key else openai.Omit()
    return headers
