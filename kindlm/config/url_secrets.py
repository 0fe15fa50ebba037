"""Credentials in URLs: passwords, and values in the query whose names say that they are secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from kindlm.secrecy import SHORTEST_SECRET

__all__ = ["hide_in_urls", "secret_parts", "url_secrets"]

_SHORTEST = 8
"""Of a value in a query: `?sort_key=name` is no secret."""

_SECRET_NAME = re.compile(r"(?:key|token|secret|password)$", re.IGNORECASE)
_PASSWORD = re.compile(r"(://[^/\s:@\"']*):(?!\{\{)[^/\s@\"']+@")
_VALUE = re.compile(
    r"([?&][\w.-]*(?:key|token|secret|password)=)(?!\{\{)[^&#\s\"']+", re.IGNORECASE
)


def secret_parts(url: str) -> Iterator[str]:
    """Yield what is secret in a URL, as it is written there: also placeholders."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return
    if password:
        yield password
    for item in parts.query.split("&"):
        name, _, value = item.partition("=")
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST:
            yield value


def url_secrets(url: str) -> set[str]:
    """Return what is secret in a URL, as it is written there and as it is meant, if long enough."""
    found = {each for part in secret_parts(url) for each in (part, unquote(part))}
    return {each for each in found if len(each) >= SHORTEST_SECRET}


def hide_in_urls(text: str) -> str:
    """Return a text, such as a line of a file, with a mark for what is secret in its URLs."""
    return _VALUE.sub(r"\1…", _PASSWORD.sub(r"\1:…@", text))
