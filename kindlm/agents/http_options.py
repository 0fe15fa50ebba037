"""The settings of an HTTP agent, checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from kindlm.agents.failures import Who, bad_option
from kindlm.agents.http_request import PLACEHOLDERS, REQUESTS, placeholders
from kindlm.agents.json_values import PATH
from kindlm.agents.reply_reading import QUERY_TEXT_KEYS, TEXT_KEYS, Reading
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget

__all__ = ["HttpSettings", "http_settings"]

_OPTIONS = ("request", "body", "responsePath", "toolCallsPath")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# A value of these is no secret, however long it is.
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_SHORTEST_SECRET = 6


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How an HTTP agent is talked to."""

    who: Who
    endpoint: str
    headers: Mapping[str, str]
    form: str
    template: Any
    reading: Reading


def http_settings(target: AgentTarget) -> Result[HttpSettings]:
    """Check a target and return its settings; no error holds a header's value."""
    who = Who(target.id, _secrets(target))
    error = _wrong_endpoint(who, target.endpoint) or _wrong_header(who, target.headers)
    error = error or _wrong_option(who, target.options)
    if error is not None:
        return Err(error)
    options = target.options
    form = options.get("request", REQUESTS[0])
    reading = Reading(
        QUERY_TEXT_KEYS if form == "query" else TEXT_KEYS,
        options.get("responsePath"),
        options.get("toolCallsPath"),
    )
    return Ok(
        HttpSettings(who, target.endpoint, target.headers, form, options.get("body"), reading)
    )


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


def _wrong_option(who: Who, options: Mapping[str, Any]) -> KindlmError | None:
    for name in options:
        if name not in _OPTIONS:
            return bad_option(who, f"unknown option {name!r}", hint_for(name, _OPTIONS, "Known"))
    form = options.get("request", REQUESTS[0])
    if form not in REQUESTS:
        hint = hint_for(str(form), REQUESTS, "Known")
        return bad_option(who, f"`request` is {form!r}", hint)
    for name in ("responsePath", "toolCallsPath"):
        path = options.get(name)
        if path is not None and not (isinstance(path, str) and PATH.fullmatch(path)):
            return bad_option(who, f"`{name}` is no path", "Write it like data.items[0].text")
    for name in placeholders(options.get("body")):
        if name not in PLACEHOLDERS:
            hint = hint_for(name, PLACEHOLDERS, "Known")
            return bad_option(who, f"`body` has the unknown placeholder {{{{{name}}}}}", hint)
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
    return frozenset(secret for secret in found if len(secret) >= _SHORTEST_SECRET)
