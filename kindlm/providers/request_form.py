"""What the requests of an SDK to one path have in common: all but the body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multidict import CIMultiDict
from yarl import URL

if TYPE_CHECKING:
    import httpx2

__all__ = ["RequestForm", "form_of"]

_LENGTH = "content-length"


@dataclass(frozen=True, slots=True)
class RequestForm:
    """Where a request is posted, and its headers; the length of the body stands in for others."""

    url: URL
    headers: CIMultiDict[str]

    def headers_for(self, body: bytes) -> CIMultiDict[str]:
        """Return the headers of a request with this body, in the order of the SDK's own."""
        headers = self.headers.copy()
        headers[_LENGTH] = str(len(body))
        return headers


def form_of(requests: Sequence[httpx2.Request]) -> RequestForm | None:
    """Return the form that requests share, None if they differ or need more than a form can say.

    A header that changes from request to request (a signature, an id) makes them differ.
    """
    first = requests[0]
    if any(_parts(request) != _parts(first) for request in requests):
        return None
    if first.method != "POST" or first.url.userinfo or "sni_hostname" in first.extensions:
        return None
    # The same conversions as in the SDKs' aiohttp transport.
    return RequestForm(URL(str(first.url)), CIMultiDict(first.headers))


def _parts(request: httpx2.Request) -> tuple[object, ...]:
    headers = [(name, value) for name, value in request.headers.multi_items() if name != _LENGTH]
    return request.method, request.url, headers
