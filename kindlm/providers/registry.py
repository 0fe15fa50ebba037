"""Finds the client of a provider by its type. A new provider is one module and one line here.

Nothing heavy is imported before a client is made: an SDK costs up to a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeAlias
from urllib.parse import urlsplit

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.garbage import put_off
from kindlm.ports import ModelClient
from kindlm.providers.failures import missing_key, unusable_key
from kindlm.suite import ProviderSettings

Maker: TypeAlias = Callable[[ProviderSettings, str | None, Mapping[str, str]], ModelClient]

_MAKERS = {
    "openai": "kindlm.providers.openai_client:openai_client",
    "anthropic": "kindlm.providers.anthropic_client:anthropic_client",
    "ollama": "kindlm.providers.ollama_client:ollama_client",
    "scripted": "kindlm.providers.scripted:scripted_client",
}
_DEFAULT_KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


def make_client(settings: ProviderSettings, *, environ: Mapping[str, str]) -> Result[ModelClient]:
    """Make the client of a provider; bind `environ` to get a `ports.ClientFactory`.

    Errors: an unknown type (PROVIDER_NOT_FOUND), a key that is missing or that no HTTP header can
    carry (PROVIDER_AUTH_ERROR), a base URL that is none (CONFIG_VALIDATION_ERROR). `environ` holds
    what `.env` files say, too.
    """
    where = _MAKERS.get(settings.type)
    key = check_settings(settings, environ)
    if isinstance(key, Err):
        return key
    if where is None:
        from kindlm.providers.of_packages import client_of_package

        return client_of_package(settings, key.value, environ) or Err(_unknown(settings))
    module, _, name = where.partition(":")
    with put_off():
        maker: Maker = getattr(import_module(module), name)
        return Ok(maker(settings, key.value, environ))


def check_settings(settings: ProviderSettings, environ: Mapping[str, str]) -> Result[str | None]:
    """Return the key of a provider that can be called, None if it does without."""
    if settings.base_url is not None and not _is_http_url(settings.base_url):
        return Err(_bad_url(settings))
    return _key(settings, environ)


def _key(settings: ProviderSettings, environ: Mapping[str, str]) -> Result[str | None]:
    """Return the key. An endpoint of one's own, with no variable named, does without."""
    variable = settings.api_key_env
    if variable is None and settings.base_url is None:
        variable = _DEFAULT_KEY_VARIABLES.get(settings.type)
    if variable is None or settings.type == "scripted":
        return Ok(None)
    key = environ.get(variable, "").strip()
    if not key:
        return Err(missing_key(settings.name, variable))
    if not (key.isascii() and key.isprintable()):
        return Err(unusable_key(settings.name, variable))
    return Ok(key)


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            return False
        # What the SDKs take for a URL is stricter; they load httpx or its like next.
        from httpx import URL, InvalidURL
    except ValueError:
        return False
    try:
        URL(url)
    except (InvalidURL, ValueError):
        return False
    return True


def _bad_url(settings: ProviderSettings) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"providers.{settings.name}.baseUrl is no http or https URL",
        "Write it like http://127.0.0.1:8080/v1",
    )


def _unknown(settings: ProviderSettings) -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        f"Provider {settings.name!r} has the unknown type {settings.type!r}",
        f"Known types: {', '.join(sorted(_MAKERS))}",
    )
