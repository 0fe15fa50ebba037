"""Decides which names and values are secret.

The name of a variable, header, option or part of a query says that its value is one. Of a value,
passwords in URLs and in other texts that say where a service is (DSN) are secret, and what follows
a scheme such as `Bearer`. Ordinary words, paths and addresses are not: they stand in many texts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import unquote, urlsplit

SHORTEST_SECRET = 8
"""What is taken out of all that is recorded has so many characters: less is in ordinary words."""

HIDDEN = "[hidden]"
"""Stands for a credential in what is recorded."""

_NAMES = "KEY|TOKEN|SECRET|PASSWORD"
_SECRET = re.compile(_NAMES, re.IGNORECASE)
_CREDENTIAL = re.compile(rf"AUTH|COOKIE|SESSION|{_NAMES}", re.IGNORECASE)
_OPTION = re.compile(rf"(?:{_NAMES})$", re.IGNORECASE)
_OF_A_QUERY = re.compile(rf"(?:{_NAMES}|PASSWD|PWD)$", re.IGNORECASE)

_OF_A_PAGE = re.compile(
    r"(?:sort|order|group|partition|page|next|continuation)[_.-]?(?:key|token)$", re.IGNORECASE
)
"""What to sort by, or where a page begins, opens nothing."""

_PERHAPS_SECRET = re.compile(
    r"(?:^|_)(?:AUTH|COOKIES?|CREDENTIALS?|DSN|PASS|PASSWD|PWD)$", re.IGNORECASE
)
"""At the end, as a whole word: SSH_AUTH_SOCK, AUTH_MODE and COOKIE_DOMAIN hold no secrets."""

# Such a name may stand for where a service is, too.
_OF_A_SERVICE = re.compile(r"(?:^|_)(?:AUTH|CREDENTIALS?|DSN)$", re.IGNORECASE)

_WORD = r"(?:[A-Z]?[a-z]{1,15}|[A-Z]{1,15})"
# One character in 64 of what base64 begins with is a slash.
_PATH = r"(?:(?:~|\.\.?|[A-Za-z]:)[/\\]|[/\\][\w .@~:-]*[/\\])[\w .@~:/\\-]*"
_ADDRESS = r"[a-z][a-z0-9+.-]*://[^@?]*"
_ORDINARY = re.compile(rf"{_WORD}(?:[ ,._-]{{1,2}}{_WORD}){{0,2}}|{_PATH}|{_ADDRESS}")

# Bounded, or a long word would take time quadratic in its length.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")
# All of a text, also with two schemes: `jdbc:mysql://host/shop`.
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?[A-Za-z][A-Za-z0-9+.-]*://\S+")
_HOSTS = re.compile(r"\[.*|[^:]*(?::\d*(?:,.*)?)?")
_UNESCAPED = re.compile(r"[^/\s:@]*:(\S+)@")
_NAMED = re.compile(r"([\w.-]+(?: [\w.-]+)?)\s*=(?:('[^']*'|\"[^\"]*\")|([^\s;]*))")
_VALUES = re.compile(rf"{_NAMED.pattern}(?:[\s;]+{_NAMED.pattern})*[\s;]*")
_PASSWORD = re.compile(r"(://[^/\s:@\"']*):(?!\{\{)[^/\s@\"']+@")
_VALUE = re.compile(rf"([?&][\w.-]*(?:{_NAMES})=)(?!\{{\{{)[^&#\s\"']+", re.IGNORECASE)

_OF_A_USER = re.compile(r"[^\s:/@=]+:([^\s@]+(?:@(?!\w+\()[^\s@]+)*)(?:@\w+\(\S*)?")
"""`user:password`, also before `@tcp(host)/name`, as a DSN of Go has it."""

_PLACEHOLDER = re.compile(r"\{\{[\w.]+\}\}")


def is_secret_name(name: str) -> bool:
    """Return whether a variable of the environment holds a secret.

    Most are there for other programs. So fewer words count than for credentials: XAUTHORITY is a
    path, GIT_AUTHOR_NAME a name.
    """
    return _SECRET.search(name) is not None


def is_secret_option(name: str) -> bool:
    """Return whether an option of a configuration holds a secret: `apiKey`, and not `keyFile`."""
    return _OPTION.search(name) is not None


def may_be_secret_name(name: str) -> bool:
    """Return whether a variable of the environment holds a secret, unless its value is ordinary."""
    return _PERHAPS_SECRET.search(name) is not None


def is_credential_name(name: str) -> bool:
    """Return whether a header, or a variable written for a program, holds a credential."""
    return _CREDENTIAL.search(name) is not None


def is_ordinary(value: str) -> bool:
    """Return whether a value is up to three words, a path, or an address that names no user.

    These would be found in texts that repeat no secret: AUTH=required, PWD=/home/me. A path that
    begins with a slash has two of them at least.
    """
    return _ORDINARY.fullmatch(value) is not None


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
        if is_secret_key(name) and len(value) >= SHORTEST_SECRET:
            yield value


def url_secrets(text: str) -> set[str]:
    """Return what is secret in the URLs of a text, as written and as meant, if long enough."""
    starts = [*(match.start() for match in _SCHEME.finditer(text)), len(text)]
    urls = [text[start:end] for start, end in pairwise(starts)]
    written = {part for url in (text, *urls) for part in secret_parts(url)}
    written |= {part for url in urls for part in _of_user_info(url)}
    found = {each for part in written for each in (part, unquote(part))}
    return {each for each in found if len(each) >= SHORTEST_SECRET}


def _dsn_secrets(text: str) -> set[str] | None:
    """Return what is secret in names with values (`host=db password=…`), None if it is no such."""
    if _VALUES.fullmatch(text) is None:
        return None
    found = {name: (quoted or bare).strip("'\"") for name, quoted, bare in _NAMED.findall(text)}
    return {
        value
        for name, value in found.items()
        if is_secret_key(name) and len(value) >= SHORTEST_SECRET
    }


def is_secret_key(name: str) -> bool:
    """Return whether a part of a query or of an object holds a secret."""
    return _OF_A_QUERY.search(name) is not None and _OF_A_PAGE.search(name) is None


def _of_user_info(url: str) -> Iterator[str]:
    """Yield the password of a URL, also if it was not escaped, and a token that is the user."""
    scheme, _, rest = url.partition("://")
    netloc = re.split(r"[/?#]", rest, maxsplit=1)[0]
    info, at, _ = netloc.rpartition("@")
    user, _, password = info.partition(":")
    # Who is asked for no password, or for a mere word, is not a person.
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


def variable_secrets(name: str, value: str) -> Iterator[str]:
    """Yield what is secret in a variable that is named like a credential, or that holds a URL.

    What is an ordinary word, path or address is not.
    """
    parts = list(_in_credential(name, value)) if may_be_secret_name(name) else []
    if "://" in value:
        parts += url_secrets(value)
    yield from (part for part in parts if not is_ordinary(part))


def _in_credential(name: str, value: str) -> Iterator[str]:
    if is_ordinary(value):
        return
    if _OF_A_SERVICE.search(name):
        if _URL.fullmatch(value):
            return  # what is secret in a URL is, whatever its variable
        parts = _dsn_secrets(value)
        if parts is not None:
            yield from parts
            return
        password = _OF_A_USER.match(value)
        if password:
            yield password[1]
    yield value
    yield from header_secrets({name: value})


def header_secrets(headers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the credentials that are written out in headers, of 8 characters or more."""
    for name, value in headers.items():
        if isinstance(value, str):
            yield from (
                part for part in _literal_parts(name, value) if len(part) >= SHORTEST_SECRET
            )


def _literal_parts(name: str, value: str) -> Iterator[str]:
    """Yield what is secret in a header: all of it, what follows the scheme, values of cookies."""
    if not is_credential_name(name) or not _is_literal(value):
        return
    yield value
    _, _, credentials = value.partition(" ")
    for part in (credentials.strip(), *(item.partition("=")[2] for item in value.split(";"))):
        if part and _is_literal(part):
            yield part
            yield from _decoded(part)


def _is_literal(value: str) -> bool:
    """Return whether anything is left of a value without its placeholders and its scheme."""
    rest = _PLACEHOLDER.sub("", value)
    scheme, _, after = rest.partition(" ")
    return bool(after.strip() if _PLACEHOLDER.search(value) else scheme)


def _decoded(part: str) -> Iterator[str]:
    """Yield user and password of Basic authorization."""
    try:
        text = base64.b64decode(part, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    user, colon, password = text.partition(":")
    if colon and user.isprintable():
        yield text
        yield password


def program_secrets(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is secret in variables of a program, of 8 characters or more."""
    for name, value in variables.items():
        if isinstance(value, str):
            found = _literal_secrets(str(name), value)
            yield from (part for part in found if len(part) >= SHORTEST_SECRET)


def _literal_secrets(name: str, value: str) -> Iterator[str]:
    """Yield what is secret in a variable of a program, as far as it is written out."""
    yield from _literal_parts(name, value)
    found = variable_secrets(name, value)
    yield from (part for part in found if not _PLACEHOLDER.search(part))


def hide_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers as they may be recorded: a mark for what is written out, not for {{env.X}}."""
    return {name: HIDDEN if _is_literal(value) else value for name, value in headers.items()}


def hide_credentials(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables of a program as they may be recorded: a mark for credentials."""
    return {
        name: HIDDEN if any(True for _ in _literal_secrets(name, value)) else value
        for name, value in variables.items()
    }
