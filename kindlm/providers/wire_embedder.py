"""Embeddings of a model API: a wire format on a transport, under one deadline, without retries."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import Embedding
from kindlm.providers import failures
from kindlm.providers.client import MAX_BODY_BYTES, AnswerTooLong, HttpAnswer, NoAnswer, Transport
from kindlm.providers.failures import Endpoint
from kindlm.providers.wire import UnreadableReply, error_message, token_count
from kindlm.strict_json import parse_json
from kindlm.transcript import Usage

_OK = 200


@dataclass(frozen=True, slots=True)
class EmbeddingWire:
    """How an API embeds texts.

    Attributes:
        path: where requests go, relative to the base URL.
        vectors: finds the vectors in a reply, in the order of the texts; None if there are none.
        tokens: the way to the number of tokens in a reply.
    """

    path: str
    vectors: Callable[[Mapping[str, Any]], list[Any] | None]
    tokens: tuple[str, ...]


class WireEmbedder:
    """Implements `ports.Embedder`; connects when it is first used."""

    def __init__(
        self,
        endpoint: Endpoint,
        wire: EmbeddingWire,
        model: str,
        connect: Callable[[], Transport],
        *,
        advise: Callable[[KindlmError], KindlmError] = lambda error: error,
    ) -> None:
        self._endpoint = endpoint
        self._wire = wire
        self._model = model
        self._connect = connect
        self._advise = advise
        self._transport: Transport | None = None

    @property
    def provider(self) -> str:
        """The user's name for the provider."""
        return self._endpoint.provider

    @property
    def model(self) -> str:
        """The embedding model's name."""
        return self._model

    async def embed(self, texts: Sequence[str], timeout_s: float) -> Result[Embedding]:
        """Return the vectors of some texts; see `ports.Embedder`."""
        # An empty text is refused by OpenAI, while a model may well answer nothing.
        body = {"model": self._model, "input": [text or " " for text in texts]}
        content = json.dumps(body, separators=(",", ":")).encode("ascii")
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._send(content)
        except TimeoutError:
            return Err(failures.of_timeout(self._endpoint, timeout_s))
        except NoAnswer as error:
            return Err(self._advise(failures.of_network(self._endpoint, error)))
        except AnswerTooLong:
            return Err(failures.of_excess(self._endpoint, MAX_BODY_BYTES))
        latency_ms = (time.perf_counter() - started) * 1000
        if answer.status != _OK:
            told = (answer.status, answer.headers, answer.text)
            return Err(self._advise(failures.of_status(self._endpoint, *told)))
        try:
            return Ok(self._read(answer.text, len(texts), latency_ms))
        except ValueError as error:
            return Err(failures.of_reply(self._endpoint, answer.status, answer.text, str(error)))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def _send(self, content: bytes) -> HttpAnswer:
        if self._transport is None:
            self._transport = self._connect()
        return await self._transport.send(self._wire.path, content)

    def _read(self, text: str, expected: int, latency_ms: float) -> Embedding:
        """Read a reply; raise `ValueError` if it is none."""
        body = parse_json(text)
        found = self._wire.vectors(body) if isinstance(body, dict) else None
        if found is None:
            raise UnreadableReply(error_message(body) or "it has no embeddings")
        vectors = tuple(_vector(values) for values in found)
        if len(vectors) != expected or len({len(vector) for vector in vectors}) > 1:
            raise UnreadableReply(f"it has not {expected} vectors of one length")
        count: Any = body
        for name in self._wire.tokens:
            count = count.get(name) if isinstance(count, dict) else None
        return Embedding(vectors, latency_ms, Usage(token_count(count), None))


def _vector(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not values:
        raise UnreadableReply("a vector in it is no list of numbers")
    for value in values:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise UnreadableReply("a vector in it has something else than numbers")
    return tuple(map(float, values))
