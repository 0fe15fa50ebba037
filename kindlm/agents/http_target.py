"""Where an agent is reached over HTTP, checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from kindlm.agents.failures import SHORTEST_HIDDEN, Who, bad_option
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# A value of these is no secret, however long it is.
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An agent's server: its URL, and the headers that it is sent with each request."""

    who: Who
    endpoint: str
    headers: Mapping[str, str]


def http_target(target: AgentTarget) -> Result[HttpTarget]:
    """Check the endpoint and the headers of an agent; no error holds a header's value."""
    who = Who(target.id, _secrets(target))
    error = _wrong_endpoint(who, target.endpoint) or _wrong_header(who, target.headers)
    if error is not None:
        return Err(error)
    return Ok(HttpTarget(who, target.endpoint, target.headers))


def unknown_option(target: AgentTarget, known: Collection[str]) -> KindlmError | None:
    """Return the error of an option that the adapter does not take."""
    unknown = next((name for name in target.options if name not in known), None)
    if unknown is None:
        return None
    hint = hint_for(unknown, tuple(known), "Known")
    return bad_option(Who(target.id), f"unknown option {unknown!r}", hint)


def _wrong_endpoint(who: Who, endpoint: str) -> KindlmError | None:
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if good and endpoint.isprintable():
        return None
    hint = "Write it like http://127.0.0.1:8000/chat"
    return bad_option(who, "its `endpoint` is no http or https URL", hint)


def _wrong_header(who: Who, headers: Mapping[str, str]) -> KindlmError | None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            return bad_option(who, f"{name!r} is no name of a header")
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            message = f"its header {name!r} has characters that no header can carry"
            return bad_option(who, message, "Spaces, quotes or line ends may have come with it")
    return None


def _secrets(target: AgentTarget) -> frozenset[str]:
    """Return what may be a credential: values of headers, with and without their scheme."""
    found = set()
    for name, value in target.headers.items():
        if name.lower() not in _HARMLESS_HEADERS:
            found |= {value, value.rpartition(" ")[2]}
    try:
        password = urlsplit(target.endpoint).password
    except ValueError:
        password = None
    if password:
        found |= {password, unquote(password)}
    return frozenset(secret for secret in found if len(secret) >= SHORTEST_HIDDEN)
