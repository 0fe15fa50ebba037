"""Clients of other packages: what they raise is an error, and so is what is no reply."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kindlm import plugins
from kindlm.errors import Err, Ok, Result
from kindlm.ports import ModelClient, ModelReply, ModelRequest
from kindlm.suite import ProviderSettings

_log = logging.getLogger(__name__)


def client_of_package(
    settings: ProviderSettings, key: str | None, environ: Mapping[str, str]
) -> Result[ModelClient] | None:
    """Return the client of a provider of another package, None if no package has its type."""
    found = plugins.find(plugins.Provider, settings.type)
    if found is None or isinstance(found, Err):
        return found
    plugin = plugins.installed(plugins.Provider.group)[settings.type][0]
    try:
        provider = found.value.model_validate(dict(settings.options))
        client = provider.connect(plugins.Access(settings.base_url, key, environ))
    except plugins.CRASHES as error:
        return Err(plugins.crashed(plugin, "cannot connect", error))
    return Ok(_ClientOfPackage(plugin, client))


class _ClientOfPackage:
    """Implements `ports.ModelClient`."""

    def __init__(self, plugin: plugins.Plugin, client: ModelClient) -> None:
        self._plugin = plugin
        self._client = client

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        """Make the call; see `plugins.answered`."""
        return await plugins.answered(
            self._plugin, lambda: self._client.complete(request), ModelReply, request.timeout_s
        )

    async def aclose(self) -> None:
        """Close all connections; a failure costs no verdict, and is logged."""
        try:
            await self._client.aclose()
        except plugins.CRASHES:
            _log.warning("%s could not be closed", self._plugin, exc_info=True)
