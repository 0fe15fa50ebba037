"""The `anthropic-foundry` provider: Anthropic's models on Microsoft Foundry, with an API key."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from kindlm.errors import Err
from kindlm.plugins import Access, Maybe, Provider
from kindlm.providers.anthropic_provider import API_VERSION, NO_KEY, WIRE, platform_client
from kindlm.providers.client import WireClient
from kindlm.providers.provider_failures import Endpoint, bad_address_part, missing_key
from kindlm.section import HostPart

_KEY = "ANTHROPIC_FOUNDRY_API_KEY"


class AnthropicFoundry(Provider):
    """Calls Microsoft Foundry with the key of `apiKeyEnv` or ANTHROPIC_FOUNDRY_API_KEY."""

    takes_seed: ClassVar[bool] = False
    takes_prefill: ClassVar[bool] = True

    resource: Maybe[HostPart] = Field(default=None, examples=["my-resource"])
    """The name of the resource, which begins its address. Required for `azure`; for
    `anthropic-foundry`, by default ANTHROPIC_FOUNDRY_RESOURCE."""

    def connect(self, access: Access) -> WireClient | Err:
        key, base_url = access.key, access.base_url
        if base_url is None:
            key = key or access.environ.get(_KEY, "").strip()
            if not key:
                return Err(missing_key(access.name, _KEY))
            resource = self.resource or access.environ.get("ANTHROPIC_FOUNDRY_RESOURCE")
            if wrong := bad_address_part(access.name, "resource", resource):
                return wrong
            base_url = f"https://{resource}.services.ai.azure.com/anthropic/"
        key = key or NO_KEY
        endpoint = Endpoint(access.name, base_url, access.key_variable or _KEY, key)

        def make(**settings: Any) -> Any:
            from anthropic import AsyncAnthropicFoundry

            return AsyncAnthropicFoundry(api_key=key, base_url=base_url, **settings)

        headers = {"anthropic-version": API_VERSION, "x-api-key": key, "api-key": key}
        return platform_client(endpoint, make, WIRE, headers=headers)
