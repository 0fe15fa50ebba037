"""The clients of a run: made when first needed, shared by all executions, closed at the end."""

from __future__ import annotations

import traceback
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import ClientFactory, Embedder, EmbedderFactory, ModelClient
from kindlm.suite import ProviderSettings, Suite

__all__ = ["Clients"]


class Clients:
    """One client for each distinct provider setting.

    Building an SDK client is slow (it loads certificates), and only a provider that is really
    called needs its key.
    """

    def __init__(self, factory: ClientFactory, embedders: EmbedderFactory) -> None:
        self._factory = factory
        self._embedder_factory = embedders
        self._made: list[tuple[ProviderSettings, Result[ModelClient]]] = []
        self._embedders: dict[tuple[int, str], Result[Embedder]] = {}

    def get(self, settings: ProviderSettings) -> Result[ModelClient]:
        """Return the client of a provider, or the reason why there is none."""
        for known, client in self._made:
            if known == settings:
                return client
        try:
            client = self._factory(settings)
        except Exception as crash:  # noqa: BLE001 - each execution that needs it meets the error
            client = Err(_crashed(settings, crash))
        self._made.append((settings, client))
        return client

    def embedder(self, ordinal: int, suite: Suite, target: str) -> Result[Embedder]:
        """Return the embedder for a target of the suite at a position, or why there is none."""
        key = (ordinal, target)
        if key not in self._embedders:
            self._embedders[key] = self._embedder_factory(suite, target)
        return self._embedders[key]

    async def __aenter__(self) -> Self:
        """Use as `async with`, so that no connection outlives the run."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all clients, also if one of them can not be closed; raise what it raised."""
        async with AsyncExitStack() as stack:
            for made in (*(client for _, client in self._made), *self._embedders.values()):
                if isinstance(made, Ok):
                    stack.push_async_callback(made.value.aclose)


def _crashed(settings: ProviderSettings, crash: Exception) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"The provider {settings.name!r} could not be set up: {type(crash).__name__}: {crash}",
        "Check its settings; --verbose shows the traceback.",
        trace="".join(traceback.format_exception(crash)),
    )
