"""The `openai` provider, and every endpoint that speaks its format, through the OpenAI SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import httpx2
import openai

from kindlm.providers.ambient import header_names
from kindlm.providers.client import HttpAnswer, NoAnswer, WireClient
from kindlm.providers.failures import Endpoint
from kindlm.providers.openai_wire import WIRE
from kindlm.providers.sdk_transport import UNREACHABLE, http_answer
from kindlm.suite import ProviderSettings

if TYPE_CHECKING:
    from openai._types import Headers

__all__ = ["openai_client"]

_BASE_URL = "https://api.openai.com/v1"
_NO_KEY = "unused"


def openai_client(
    settings: ProviderSettings, key: str | None, environ: Mapping[str, str]
) -> WireClient:
    """Make a client; without a key no `Authorization` is sent, as local servers like it."""
    base_url = settings.base_url or environ.get("OPENAI_BASE_URL") or _BASE_URL
    endpoint = Endpoint(settings.name, base_url, settings.api_key_env, key or "")
    sdk = openai.AsyncOpenAI(
        api_key=key or _NO_KEY,
        organization=settings.organization,
        base_url=base_url,
        max_retries=0,
        timeout=None,
        http_client=openai.DefaultAioHttpClient(),
    )
    return WireClient(endpoint, WIRE, _Transport(sdk, _headers(settings, key)))


class _Transport:
    def __init__(self, sdk: openai.AsyncOpenAI, headers: Headers) -> None:
        self._sdk = sdk
        self._headers = headers

    async def send(self, path: str, body: bytes) -> HttpAnswer:
        try:
            response = await self._sdk.post(
                path, cast_to=httpx2.Response, content=body, options={"headers": self._headers}
            )
        except openai.APIStatusError as error:
            response = error.response
        except (openai.APIError, *UNREACHABLE) as error:
            raise NoAnswer from error
        return http_answer(response)

    async def aclose(self) -> None:
        await self._sdk.close()


def _headers(settings: ProviderSettings, key: str | None) -> Headers:
    """Return what is said on each request so that the environment does not say it: see ambient."""
    headers: dict[str, str | openai.Omit] = {}
    if settings.base_url is not None:
        # The SDK itself reads these variables, and only from the process environment.
        headers = {
            name: openai.Omit() for name in header_names(os.environ, "OPENAI_CUSTOM_HEADERS")
        }
        headers["OpenAI-Project"] = openai.Omit()
        headers["OpenAI-Organization"] = settings.organization or openai.Omit()
        headers["Authorization"] = f"Bearer {key}" if key else openai.Omit()
    return headers
