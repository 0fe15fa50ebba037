"""OpenAI's Assistants API (v2), through the OpenAI SDK: one request each, answers as they came.

Requests are made by path, not by the SDK's own methods for threads and runs: those are deprecated,
and what they return has lost the body as it was received.

What the environment says of OpenAI (OPENAI_API_KEY, OPENAI_BASE_URL, further headers) counts as
long as no other server is configured. Nothing ambient is sent to one that is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import openai

from kindlm.agents import failures
from kindlm.agents.failures import Who
from kindlm.agents.http_exchange import MAX_BODY_BYTES
from kindlm.agents.reply_reading import UnreadableReply
from kindlm.errors import ErrorCode, KindlmError
from kindlm.sdk_http import bounded_by, http_library, tls_context
from kindlm.strict_json import parse_json, unique_keys

__all__ = ["OPENAI_URL", "UNANSWERED", "AssistantsApi", "is_openai", "path"]

_HTTP = http_library(openai)

OPENAI_URL = "https://api.openai.com/v1"

_BETA = {"OpenAI-Beta": "assistants=v2"}
_NAMES = {
    name.lower(): name
    for name in ("Authorization", "OpenAI-Beta", "OpenAI-Organization", "OpenAI-Project")
}
_NO_KEY = "unused"
_MAX_PAGES = 20
_PAGE = 100

# With OPENAI_LOG=debug the SDK prints keys in clear.
for _name in ("openai", "httpx2", "httpx"):
    logging.getLogger(_name).setLevel(logging.ERROR)


class AssistantsApi:
    """A connection to one server, to be closed.

    Args:
        who: the agent, for errors.
        base_url: where the server is.
        key: what authorizes, None if the headers do, or nothing.
        headers: what each request says besides.
        ambient: whether settings of the environment reach the server.
    """

    def __init__(
        self, who: Who, base_url: str, key: str | None, headers: Mapping[str, str], *, ambient: bool
    ) -> None:
        self._who = who
        self._base_url = base_url
        said: dict[str, Any] = {} if ambient else _nothing_ambient()
        if key is None:
            said["Authorization"] = openai.Omit()
        written = {name.lower(): name for name in said}
        for name in headers:
            said.pop(written.get(name.lower(), name), None)
        # openai 2 sends a header twice whose name is written in another case than its own.
        named = {_NAMES.get(name.lower(), name): value for name, value in headers.items()}
        self._headers = {**_BETA, **said, **named}
        self._sdk = openai.AsyncOpenAI(
            api_key=key or _NO_KEY,
            base_url=base_url,
            max_retries=0,
            timeout=None,
            http_client=openai.DefaultAsyncHttpxClient(
                verify=tls_context(_HTTP),
                follow_redirects=False,
                event_hooks={"response": [bounded_by(_HTTP, MAX_BODY_BYTES, _TooLong)]},
            ),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._sdk.close()

    async def post(self, to: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a JSON object; return the one that is answered.

        Raises what `error_of` has the words for.
        """
        sent = self._sdk.post(
            to, cast_to=_HTTP.Response, body=body, options={"headers": self._headers}
        )
        return _object((await sent).text)

    async def get(self, at: str, **query: Any) -> dict[str, Any]:
        """Return the object that is at a path; see `post`."""
        got = await self._sdk.get(
            at,
            cast_to=_HTTP.Response,
            options={"headers": self._headers, "params": query},
        )
        return _object(got.text)

    async def list(self, at: str, **query: Any) -> list[dict[str, Any]]:
        """Return the objects of a list, page by page; see `post`."""
        found: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        for _ in range(_MAX_PAGES):
            page = await self.get(at, limit=_PAGE, **query, **after)
            data = page.get("data")
            if not isinstance(data, list):
                raise UnreadableReply(f"the list at {at} has no `data`")
            found += [item for item in data if isinstance(item, dict)]
            last = found[-1].get("id") if found else None
            if page.get("has_more") is not True or not data or not isinstance(last, str):
                return found
            after = {"after": last}
        raise UnreadableReply(f"the list at {at} has more than {_MAX_PAGES} pages")

    def error_of(self, raised: Exception) -> KindlmError:
        """Return the error of a request that was answered with none, or not at all."""
        cause: BaseException | None = raised
        while cause is not None and not isinstance(cause, _TooLong):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            message = f"{self._who.title} sent more than {MAX_BODY_BYTES // 1_000_000} MB"
            return failures.failed(self._who, ErrorCode.PROVIDER_API_ERROR, message)
        if isinstance(raised, openai.APIStatusError):
            response = raised.response
            return failures.of_status(
                self._who, response.status_code, response.headers, response.text
            )
        if isinstance(raised, UnreadableReply):
            return failures.of_reply(self._who, str(raised), "")
        return failures.of_network(self._who, self._base_url, raised)


class _TooLong(Exception):  # noqa: N818 - it names what arrived
    """A body that is longer than any answer."""


UNANSWERED = (
    *(openai.APIError, _HTTP.HTTPError, _HTTP.InvalidURL, OSError),
    *(_TooLong, UnreadableReply),
)
"""What requests raise."""


def path(*parts: str) -> str:
    """Return a path of names and ids; ids come from the server, and stay in their places."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def is_openai(endpoint: str) -> bool:
    """Tell whether an endpoint is OpenAI's own, or none at all."""
    if not endpoint:
        return True
    parts, ours = urlsplit(endpoint), urlsplit(OPENAI_URL)
    return (parts.scheme, parts.netloc) == (ours.scheme, ours.netloc)


def _object(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text, unique_keys)
    except ValueError as error:
        raise UnreadableReply(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise UnreadableReply("no JSON object")
    return value


def _nothing_ambient() -> dict[str, Any]:
    """Return what keeps the SDK from sending what only the environment says."""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    names = [line.partition(":")[0].strip() for line in lines if ":" in line]
    return {name: openai.Omit() for name in (*names, "OpenAI-Project", "OpenAI-Organization")}
