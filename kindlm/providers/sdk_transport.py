"""What the transports on the OpenAI and the Anthropic SDK share.

Both SDKs are built alike. They give what their users rely on: credentials, base URLs, proxies,
TLS, headers, connection pooling, error classes. Requests go through the SDK's `post` as ready
JSON and come back as HTTP responses: building and parsing typed models for each call costs more
than the call, and the body is wanted as it was received. The SDKs' aiohttp transport takes half
the time of their default one when many calls run at once.
"""

from __future__ import annotations

import aiohttp
import httpx2

from kindlm.providers.client import HttpAnswer

__all__ = ["UNREACHABLE", "http_answer"]

UNREACHABLE = (httpx2.HTTPError, aiohttp.ClientError, OSError)
"""What the HTTP stack raises when no answer comes, beside the SDKs' own errors.

aiohttp's transport reports a refused or cut connection as a timeout. As the SDKs run without a
timeout of theirs, whatever they raise without a response is a matter of the network.
"""


def http_answer(response: httpx2.Response) -> HttpAnswer:
    """Return a response, already read to its end, as our own value."""
    return HttpAnswer(response.status_code, response.headers, response.text)
