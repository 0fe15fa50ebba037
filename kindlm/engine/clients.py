"""The clients of a run: made when first needed, shared by all executions, closed at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from kindlm.errors import Ok, Result
from kindlm.ports import ClientFactory, ModelClient
from kindlm.suite import ProviderSettings

__all__ = ["Clients"]


class Clients:
    """One client for each distinct provider setting.

    Building an SDK client is slow (it loads certificates), and only a provider that is really
    called needs its key.
    """

    def __init__(self, factory: ClientFactory) -> None:
        self._factory = factory
        self._made: list[tuple[ProviderSettings, Result[ModelClient]]] = []

    def get(self, settings: ProviderSettings) -> Result[ModelClient]:
        """Return the client of a provider, or the reason why there is none."""
        for known, client in self._made:
            if known == settings:
                return client
        client = self._factory(settings)
        self._made.append((settings, client))
        return client

    async def __aenter__(self) -> Self:
        """Use as `async with`, so that no connection outlives the run."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all clients."""
        for _, client in self._made:
            if isinstance(client, Ok):
                await client.value.aclose()
