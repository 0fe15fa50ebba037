"""Sends spans to a receiver, by OTLP over HTTP.

Headers come from the variables of OpenTelemetry. They often hold a key, so no message shows their
values, even if the receiver's answer repeats them.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from kindlm import __version__
from kindlm.cli.console import fail, refuse
from kindlm.dataclass import dataclass
from kindlm.errors import broken
from kindlm.http_client import UNREACHABLE, open_client
from kindlm.recording.secrets import remember_secrets
from kindlm.secrecy import url_secrets
from kindlm.telemetry.spans import (
    OutSpan,
    as_json,
    as_protobuf,
    read_pairs,
    reads_protobuf,
    rejected_of,
)
from kindlm.unreachable import retry_after, unreachable_reason
from kindlm.wording import count, sentence
from kindlm_store import REDACTED, Redactor

_HEADER = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_TIMEOUT_S = 30.0
_RETRIED = frozenset({429, 502, 503, 504})
_TRIES = 5
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0

_CHECK = "Check the address, and that the receiver is running."
_REFUSED = (
    "Check the address, to which /v1/traces is added, and the key in OTEL_EXPORTER_OTLP_HEADERS. If"
    " it reads protobuf only: pip install 'kindlm[otel]'"
)


@dataclass(frozen=True, slots=True)
class Receiver:
    """The endpoint that spans are sent to."""

    url: str
    headers: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The address without user, password and query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def safe(self, text: str) -> str:
        """Return a text of the receiver as one short line, without the values of headers."""
        password = urlsplit(self.url).password or ""
        values = {value for each in self.headers.values() for value in (each, *each.split()[1:])}
        values = (values | {password, unquote(password)}) - {""}
        # `Redactor` leaves short values as they are.
        pattern = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
        return sentence(re.sub(pattern or "(?!)", REDACTED, Redactor(values)(text)))


@dataclass(slots=True)
class Sent:
    """The numbers of sent spans, and of those that the receiver rejected, and why."""

    spans: int = 0
    rejected: int = 0
    why: str = ""


def receiver(url: str, environ: Mapping[str, str]) -> Receiver:
    """Return the receiver at a URL, to which `/v1/traces` is added, with the configured headers."""
    remember_secrets(url_secrets(url))
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(httpx.URL(url).host)
    except (httpx.InvalidURL, ValueError):
        is_valid = False
    if not is_valid:
        refuse("--to needs an address.", "Write it as https://HOST or http://HOST:PORT")
    path = parts.path.rstrip("/")
    path = path if path.endswith("/v1/traces") else f"{path}/v1/traces"
    headers: dict[str, str] = {}
    for variable in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        found = read_pairs(environ.get(variable, ""))
        if found is None or not all(
            _HEADER.fullmatch(name) and value.isascii() and value.isprintable()
            for name, value in found.items()
        ):
            refuse(f"{variable} is not a list of headers.", "Write it as NAME=VALUE,NAME=VALUE")
        headers |= {name.lower(): value for name, value in found.items()}
    return Receiver(urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")), headers)


async def send(
    parts: Iterable[Sequence[OutSpan]], resource: Mapping[str, str], to: Receiver
) -> Sent:
    """Send spans, one request for each part. The first failure ends the command."""
    sent, is_protobuf = Sent(), reads_protobuf()
    kind = "application/x-protobuf" if is_protobuf else "application/json"
    headers = {
        **to.headers,
        "content-type": kind,
        "content-encoding": "gzip",
        "user-agent": f"kindlm/{__version__}",
    }
    write = as_protobuf if is_protobuf else as_json
    async with open_client() as client:
        for part in parts:
            body = write(part, resource)
            request = client.build_request(
                "POST", to.url, content=gzip.compress(body, mtime=0), headers=headers
            )
            rejected, why = await _post(client, request, to, sent)
            sent.spans += len(part)
            sent.rejected += rejected
            sent.why = to.safe(why) or sent.why
    return sent


async def _post(
    client: httpx.AsyncClient, request: httpx.Request, to: Receiver, sent: Sent
) -> tuple[int, str]:
    """Send a request, up to `_TRIES` times; return the number of rejected spans, and why."""
    tries = 0
    while True:
        asked_s = hint = None
        is_temporary = True
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                response = await client.send(request)
        except TimeoutError:
            why = f"it did not answer within {_TIMEOUT_S:.0f} s"
        except UNREACHABLE as error:
            why, hint = to.safe(unreachable_reason(error)), _CHECK
        else:
            status, kind = response.status_code, response.headers.get("content-type", "")
            if 200 <= status < 300:
                if "html" in kind:  # a web site that has a page at any address
                    _fail(to, sent, "it answered with a web page", _REFUSED)
                return rejected_of(kind, response.content)
            if 300 <= status < 400:
                _fail(to, sent, f"it redirects ({status})", _REFUSED)
            reason = to.safe(response.content.decode("utf-8", "replace"))
            why = f"it answered {status}{f': {reason}' if reason else ''}"
            is_temporary = status in _RETRIED
            hint = None if is_temporary else _REFUSED
            asked_s = retry_after(response.headers, datetime.now(UTC))
        tries += 1
        if not is_temporary or tries == _TRIES:
            _fail(to, sent, why, hint)
        wait_s = _FIRST_WAIT_S * 2 ** (tries - 1) if asked_s is None else asked_s
        await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))


def _fail(to: Receiver, sent: Sent, why: str, hint: str | None = None) -> NoReturn:
    """End the command after a failed request, and report how many spans were sent before."""
    if sent.spans:
        again = f"{count(sent.spans, 'span')} arrived. To send the rest, run it again: ids stay."
        hint = f"{hint} {again}" if hint else again
    fail([broken(f"Sending to {to.shown} failed: {why}", hint)])
