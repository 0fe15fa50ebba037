"""What the adapters built on an SDK share of its HTTP library.

openai 3 and anthropic 2 are built on httpx2, earlier versions on httpx, with the same interface.
"""

from __future__ import annotations

import functools
import importlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any

__all__ = ["bounded_by", "http_library", "tls_context"]


def http_library(sdk: ModuleType) -> Any:
    """Return the module that an SDK's HTTP clients are from: httpx2 or httpx."""
    client = sdk.DefaultAsyncHttpxClient.__base__
    return importlib.import_module(client.__module__.partition(".")[0])


@functools.cache
def tls_context(http: Any) -> ssl.SSLContext:
    """Load certificates once, as the SDKs would for each of their clients; that takes 25 ms."""
    context: ssl.SSLContext = http.create_ssl_context()
    return context


def bounded_by(
    http: Any, most_bytes: int, too_long: type[Exception]
) -> Callable[[Any], Awaitable[None]]:
    """Return a response hook that ends what an SDK reads of a body after so many bytes.

    Reading on raises `too_long`.
    """

    class Bounded(http.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._stream:
                size += len(piece)
                if size > most_bytes:
                    raise too_long
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: Any) -> None:
        response.stream = Bounded(response.stream)

    return bound
