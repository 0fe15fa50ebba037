"""Credentials in URLs and in other texts that say where a service is (DSN).

These are passwords, tokens in the place of a user, and values whose names say that they are secret;
scheme, host and user are not secret: they stand in many texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import unquote, urlsplit

from kindlm.secrecy import SHORTEST_SECRET, is_ordinary

_SHORTEST = 8
"""Of a value in a query: `?sort_key=name` is no secret."""

_SECRET_NAME = re.compile(r"(?:key|token|secret|password|passwd|pwd)$", re.IGNORECASE)
_OF_A_PAGE = re.compile(
    r"(?:sort|order|group|partition|page|next|continuation)[_.-]?(?:key|token)$", re.IGNORECASE
)
"""What to sort by, or where a page begins, opens nothing."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?[A-Za-z][A-Za-z0-9+.-]*://\S+")
_HOSTS = re.compile(r"\[.*|[^:]*(?::\d*(?:,.*)?)?")
_UNESCAPED = re.compile(r"[^/\s:@]*:(\S+)@")
_NAMED = re.compile(r"([\w.-]+(?: [\w.-]+)?)\s*=(?:('[^']*'|\"[^\"]*\")|([^\s;]*))")
_VALUES = re.compile(rf"{_NAMED.pattern}(?:[\s;]+{_NAMED.pattern})*[\s;]*")
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
        if _is_secret(name) and len(value) >= _SHORTEST:
            yield value


def is_url(text: str) -> bool:
    """Tell whether all of a text is a URL, also one with two schemes: `jdbc:mysql://host/shop`."""
    return _URL.fullmatch(text) is not None


def url_secrets(text: str) -> set[str]:
    """Return what is secret in the URLs of a text, as written and as meant, if long enough."""
    starts = [*(match.start() for match in _SCHEME.finditer(text)), len(text)]
    urls = [text[start:end] for start, end in pairwise(starts)]
    written = {part for url in (text, *urls) for part in secret_parts(url)}
    written |= {part for url in urls for part in _of_user_info(url)}
    found = {each for part in written for each in (part, unquote(part))}
    return {each for each in found if len(each) >= SHORTEST_SECRET}


def dsn_secrets(text: str) -> set[str] | None:
    """Return what is secret in names with values (`host=db password=…`), None if it is no such."""
    if _VALUES.fullmatch(text) is None:
        return None
    found = {name: (quoted or bare).strip("'\"") for name, quoted, bare in _NAMED.findall(text)}
    return {
        value for name, value in found.items() if _is_secret(name) and len(value) >= SHORTEST_SECRET
    }


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _OF_A_PAGE.search(name) is None


def _of_user_info(url: str) -> Iterator[str]:
    """Yield the password of a URL, also if it was not escaped, and a token that is the user."""
    scheme, _, rest = url.partition("://")
    netloc = re.split(r"[/?#]", rest, maxsplit=1)[0]
    info, at, _ = netloc.rpartition("@")
    user, _, password = info.partition(":")
    # Who is asked for no password, or for a mere word, is no person.
    is_token = scheme in ("http", "https") and (not password or is_ordinary(password))
    if at and is_token and not is_ordinary(user):
        yield user
    # A slash or the like in a password ends it for a reader that follows the rules of URLs.
    unescaped = None if at or _HOSTS.fullmatch(netloc) else _UNESCAPED.match(rest)
    if unescaped:
        yield unescaped[1]


def hide_in_urls(text: str) -> str:
    """Return a text, such as a line of a file, with a mark for what is secret in its URLs."""
    return _VALUE.sub(r"\1…", _PASSWORD.sub(r"\1:…@", text))
