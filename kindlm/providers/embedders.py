"""Finds the embedder of a suite: the target's provider, another one, or a local model.

With the extra `kindlm[embeddings]`, the model2vec model in the folder KINDLM_EMBEDDING_MODEL embeds
on this machine. kindlm never downloads a model.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.packages import own
from kindlm.plugins import Provider
from kindlm.ports import Embedder, Embedding
from kindlm.providers.client import Transport, post
from kindlm.providers.provider_failures import Endpoint
from kindlm.providers.provider_registry import check_settings, options_of
from kindlm.strict_json import ascii_json
from kindlm.suite import ProviderSettings, Suite
from kindlm.transcript import Usage
from kindlm.wires import UnreadableReply, error_message, object_or_empty, parse_object, token_count


class WireEmbedder:
    """Implements `ports.Embedder`; connects when it is first used."""

    def __init__(self, endpoint: Endpoint, model: str, connect: Callable[[], Transport]) -> None:
        self.provider = endpoint.provider
        self.model = model
        self._endpoint = endpoint
        self._connect = connect
        self._transport: Transport | None = None

    async def embed(self, texts: Sequence[str], timeout_s: float) -> Result[Embedding]:
        # OpenAI rejects empty texts, and a model may answer nothing.
        body = {"model": self.model, "input": [text or " " for text in texts]}
        started = time.perf_counter()
        self._transport = transport = self._transport or self._connect()
        exchange = await post(self._endpoint, transport, ascii_json(body), timeout_s)
        latency_ms = (time.perf_counter() - started) * 1000
        if isinstance(exchange, Err):
            return exchange
        answer = exchange.value
        if answer.status != 200:
            return Err(self._endpoint.refused(answer))
        try:
            return Ok(self._read(answer.text, len(texts), latency_ms))
        except ValueError as error:
            return Err(self._endpoint.unreadable(answer, str(error)))

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    def _read(self, text: str, expected: int, latency_ms: float) -> Embedding:
        """Read a reply; raise `ValueError` if it is invalid."""
        body = parse_object(text)
        vectors = tuple(_vector(values) for values in _vectors(body))
        if len(vectors) != expected or len({len(vector) for vector in vectors}) > 1:
            raise UnreadableReply(f"it does not have {expected} vectors of equal length")
        usage = object_or_empty(body.get("usage"))
        count = token_count(usage.get("prompt_tokens", body.get("prompt_eval_count")))
        return Embedding(vectors, latency_ms, Usage(count, None))


def _vectors(body: Mapping[str, Any]) -> list[Any]:
    """Return the vectors in a body of Ollama or OpenAI, in the order of the texts."""
    data = body.get("embeddings", body.get("data"))
    if not isinstance(data, list):
        raise UnreadableReply(error_message(body) or "it has no embeddings")
    if not all(isinstance(item, dict) for item in data):
        return data
    # The vectors are in order, unless they have an explicit index.
    places = [item.get("index", place) for place, item in enumerate(data)]
    if not all(isinstance(place, int) for place in places):
        raise UnreadableReply("a vector in it has no valid `index`")
    return [
        item.get("embedding")
        for _, item in sorted(zip(places, data, strict=True), key=itemgetter(0))
    ]


def _vector(values: Any) -> tuple[float, ...]:
    try:
        vector = tuple(map(float, values)) if isinstance(values, list) else ()
    except (TypeError, ValueError, OverflowError):
        vector = ()
    if not vector or not all(map(math.isfinite, vector)):
        raise UnreadableReply("a vector in it is not a list of numbers")
    return vector


LOCAL_MODEL_VARIABLE = "KINDLM_EMBEDDING_MODEL"
_INSTALL = "Install it: pip install 'kindlm[embeddings]'"


def local_embedder(folder: str) -> Result[Embedder]:
    """Load the model from a folder, once per process."""
    path = Path(folder).expanduser().resolve()
    hint = "Write the path of a model"
    try:
        if path.is_dir():
            return Ok(LocalEmbedder(path.name, _load(path)))
        message = f"{LOCAL_MODEL_VARIABLE} names no folder: {folder}"
    except ImportError:
        message, hint = "Local embeddings need the package model2vec", _INSTALL
    except (OSError, ValueError, KeyError) as error:
        message = f"{LOCAL_MODEL_VARIABLE} names a folder without a model2vec model: {error}"
    return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))


class LocalEmbedder:
    """Implements `ports.Embedder`."""

    provider = "local"

    def __init__(self, model: str, loaded: Any) -> None:
        self.model = model
        self._loaded = loaded

    async def embed(self, texts: Sequence[str], timeout_s: float) -> Result[Embedding]:
        """Return the vectors of some texts; local tokens are free and not counted."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                rows = await asyncio.to_thread(self._encode, list(texts))
        except TimeoutError:
            message = f"The local embedding took longer than {timeout_s * 1000:.0f} ms"
            hint = "Raise defaults.timeoutMs (eval.default_timeout in kindlm.toml)"
            return Err(KindlmError(ErrorCode.PROVIDER_TIMEOUT, message, hint))
        latency_ms = (time.perf_counter() - started) * 1000
        if not all(math.isfinite(number) for row in rows for number in row):
            message = f"The local model {self.model} returned a vector without a direction"
            return Err(KindlmError(ErrorCode.PROVIDER_API_ERROR, message))
        return Ok(Embedding(tuple(map(tuple, rows)), latency_ms, Usage(0, 0)))

    async def aclose(self) -> None:
        """Do nothing: the model stays loaded for the next run of this process."""

    def _encode(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._loaded.encode(texts).tolist()
        return rows


@functools.cache
def _load(path: Path) -> Any:
    return import_module("model2vec").StaticModel.from_pretrained(path)


def find_embedder(suite: Suite, target: str, *, environ: Mapping[str, str]) -> Result[Embedder]:
    """Return the embedder for a target; `Ports.embedders` with `environ` bound.

    The first of these embeds: the target's own provider, another provider of the suite, the local
    model. Providers without a key are skipped. If none remains, the error is the first missing key,
    or PROVIDER_NOT_FOUND.
    """
    first_error: KindlmError | None = None
    model = suite.models.get(target)
    first = None if model is None else suite.providers.get(model.provider)
    candidates = filter(can_embed, suite.providers.values())
    for settings in sorted(candidates, key=lambda each: each is not first):
        access = check_settings(settings, environ)
        if isinstance(access, Ok):
            return Ok(options_of(settings).embedder(access.value))
        first_error = first_error or access.error
    folder = environ.get(LOCAL_MODEL_VARIABLE, "").strip()
    if folder:
        return local_embedder(folder)
    none_can = KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        "No provider of this suite supports embeddings",
        "Add `openai` or `ollama` to `providers`, or name a local model in "
        f"{LOCAL_MODEL_VARIABLE} (pip install 'kindlm[embeddings]'); or use method: judge",
    )
    return Err(first_error or none_can)


def may_embed(suite: Suite, environ: Mapping[str, str]) -> bool:
    """Return whether a suite has a provider or local model that can embed, with or without keys."""
    local = environ.get(LOCAL_MODEL_VARIABLE, "").strip()
    return bool(local) or any(map(can_embed, suite.providers.values()))


def can_embed(settings: ProviderSettings) -> bool:
    """Return whether a provider can embed texts; only kindlm's own providers can."""
    return own(Provider, settings.type) is not None and options_of(settings).embeds
