"""The `anthropic` provider through the Anthropic SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kindlm.providers.ambient import header_names
from kindlm.providers.anthropic_wire import WIRE
from kindlm.providers.client import WireClient
from kindlm.providers.failures import Endpoint
from kindlm.providers.request_form import form_cache
from kindlm.providers.sdk_transport import Sdk, SdkTransport
from kindlm.suite import ProviderSettings

if TYPE_CHECKING:
    import anthropic


_BASE_URL = "https://api.anthropic.com"
_NO_KEY = "unused"
_API_VERSION = "2023-06-01"
"""The last version that takes `temperature` and `top_p`, which suites set and judges need.

Later ones refuse them for all models; of what is used here nothing else differs. A model that
takes no temperature refuses it in this version, too, and is then asked without.
"""


def anthropic_client(
    settings: ProviderSettings, key: str | None, environ: Mapping[str, str]
) -> WireClient:
    """Make a client; an endpoint of one's own gets a placeholder where it needs no key."""
    base_url = settings.base_url or environ.get("ANTHROPIC_BASE_URL") or _BASE_URL
    endpoint = Endpoint(settings.name, base_url, settings.api_key_env, key or "")

    def load() -> Sdk:
        import anthropic

        def connect(http_client: Any) -> anthropic.AsyncAnthropic:
            return anthropic.AsyncAnthropic(
                api_key=key or _NO_KEY,
                base_url=base_url,
                max_retries=0,
                timeout=None,
                http_client=http_client,
            )

        return Sdk(anthropic, connect, _headers(settings, key or _NO_KEY))

    configured = settings.base_url is not None
    cache = form_cache("anthropic", base_url, endpoint.key, configured=configured)
    return WireClient(endpoint, WIRE, SdkTransport(WIRE.path, load, cache))


def _headers(settings: ProviderSettings, key: str) -> dict[str, str | anthropic.Omit]:
    """Return the headers that are ours on each request: see ambient.

    The SDK sends the key as `Authorization` alone; gateways made for this API version look for
    `X-Api-Key`, and the API takes either.
    """
    import anthropic

    # The SDK itself reads this variable, and only from the process environment.
    ambient = tuple(header_names(os.environ, "ANTHROPIC_CUSTOM_HEADERS"))
    ours: dict[str, str | anthropic.Omit] = {
        "anthropic-version": _API_VERSION,
        "X-Api-Key": key,
    }
    if settings.base_url is None:
        taken = {name.lower() for name in ambient}
        return {name: value for name, value in ours.items() if name.lower() not in taken}
    ours["Authorization"] = f"Bearer {key}"
    return {name: anthropic.Omit() for name in ambient} | ours
