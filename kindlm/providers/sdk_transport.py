"""What the transports on the OpenAI and the Anthropic SDK share.

Both SDKs are built alike. They give what their users rely on: credentials, base URLs, proxies,
TLS, headers, connection pooling, error classes. Requests go through the SDK's `post` as ready
JSON and come back as HTTP responses: building and parsing typed models for each call costs more
than the call, and the body is wanted as it was received. The SDKs' aiohttp transport takes half
the time of their default one when many calls run at once. It is told to follow no redirects:
another host would get the conversation and, in `X-Api-Key`, the key.
"""

from __future__ import annotations

import logging

import aiohttp
import httpx2

from kindlm.providers.client import HttpAnswer

__all__ = ["UNREACHABLE", "http_answer", "silence_sdk_logs"]

UNREACHABLE = (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, aiohttp.ClientError, OSError)
"""What the HTTP stack raises when no answer comes, beside the SDKs' own errors.

aiohttp's transport reports a refused or cut connection as a timeout. As the SDKs run without a
timeout of theirs, whatever they raise without a response is a matter of the network.
"""


def silence_sdk_logs() -> None:
    """Keep the SDKs from logging requests: with ANTHROPIC_LOG=debug they print keys in clear.

    To be called once an SDK is loaded; what happens is in kindlm's own log, without keys.
    """
    for name in ("anthropic", "openai", "httpx2", "httpx"):
        logging.getLogger(name).setLevel(logging.ERROR)


def http_answer(response: httpx2.Response) -> HttpAnswer:
    """Return a response, already read to its end, as our own value."""
    return HttpAnswer(response.status_code, response.headers, response.text)
