"""Makes the client of a provider from its settings, with its key and the environment.

`packages` finds providers: kindlm's own are modules named `NAME_provider.py`. SDKs take up to a
second to import, so only making a client imports them. If a client of another package raises, or
returns something that is not a reply, the call fails with an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

from kindlm import packages
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.garbage import put_off
from kindlm.plugins import Access, Provider
from kindlm.ports import ModelClient, ModelReply, ModelRequest
from kindlm.providers.provider_failures import missing_key, unusable_key
from kindlm.suite import ProviderSettings
from kindlm.values import is_url


def make_client(settings: ProviderSettings, *, environ: Mapping[str, str]) -> Result[ModelClient]:
    """Make the client of a provider; `Ports.clients` with `environ` bound.

    Errors: an unknown type (PROVIDER_NOT_FOUND), a missing or invalid key (PROVIDER_AUTH_ERROR), an
    invalid URL (CONFIG_VALIDATION_ERROR), a faulty package (UNKNOWN_ERROR), and errors of
    `connect`. `environ` includes the variables of `.env` files.
    """
    access = check_settings(settings, environ)
    if isinstance(access, Err):
        return access
    if packages.own(Provider, settings.type) is not None:
        with put_off():
            made = options_of(settings).connect(access.value)
        return made if isinstance(made, Err) else Ok(made)
    of_package = packages.made(
        Provider,
        settings.type,
        lambda kind: (settings.options or kind()).connect(access.value),
        ModelClient,
        unknown=f"Provider {settings.name!r} has the unknown type {settings.type!r}",
        failing="cannot connect",
    )
    return of_package if isinstance(of_package, Err) else Ok(_ClientOfPackage(*of_package.value))


def options_of(settings: ProviderSettings) -> Provider:
    """Return the options of a provider, or its defaults if the suite has none."""
    return settings.options or _kind_of(settings)()


def _kind_of(settings: ProviderSettings) -> type[Provider]:
    """Return the class of a provider, `Provider` for an unknown type or a faulty package."""
    if settings.options is not None:
        return type(settings.options)
    kind = packages.own(Provider, settings.type)
    if kind is None and isinstance(found := packages.find(Provider, settings.type), Ok):
        kind = found.value
    return kind or Provider


def check_settings(settings: ProviderSettings, environ: Mapping[str, str]) -> Result[Access]:
    """Return the access to a provider, or the error of its address or key."""
    kind = _kind_of(settings)
    address, place = settings.base_url, f"providers.{settings.name}.baseUrl"
    if address is None and kind.address_variable is not None:
        address, place = kind.ambient_address(environ), kind.address_variable
    if address is not None and not _is_http_url(address):
        hint = "Write it like http://127.0.0.1:8080/v1"
        return Err(misuse(f"{place} is not an http or https URL", hint))
    variable, key = settings.api_key_env, None
    if variable is None and settings.base_url is None:
        variable = kind.usual_key_variable
    if variable is not None and kind.takes_key:
        key = environ.get(variable, "").strip()
        if not key:
            return Err(missing_key(settings.name, variable))
        if not (key.isascii() and key.isprintable()):
            return Err(unusable_key(settings.name, variable))
        if address is not None and urlsplit(address).username is not None:
            message = f"{place} has a user or a password, beside the key in {variable}"
            return Err(misuse(message, "Remove it from the address; kindlm sends the key alone"))
    return Ok(
        Access(
            settings.base_url,
            key,
            environ,
            settings.name,
            settings.api_key_env,
            settings.organization,
        )
    )


def _is_http_url(url: str) -> bool:
    if not is_url(url):
        return False
    # The SDKs accept fewer URLs, and load httpx anyway.
    from httpx import URL, InvalidURL

    try:
        return bool(URL(url).host)
    except (InvalidURL, ValueError):
        return False


_log = logging.getLogger(__name__)
_CLOSE_S = 10.0
"""How long the client of a package may take to close its connections."""


class _ClientOfPackage:
    """Implements `ports.ModelClient`."""

    def __init__(self, plugin: packages.Plugin, client: ModelClient) -> None:
        self._plugin = plugin
        self._client = client

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        return await packages.answered(
            self._plugin, lambda: self._client.complete(request), ModelReply, request.timeout_s
        )

    async def aclose(self) -> None:
        """Close all connections; a failure is logged and changes no verdict."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._client.aclose()
        except packages.CRASHES:
            _log.warning("%s could not be closed", self._plugin, exc_info=True)
