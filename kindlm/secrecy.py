"""Decides which names and values are secret.

The name of a variable, header, option or query parameter shows that its value is secret. In values,
passwords in URLs and data source names (DSN) are secret, and credentials after a scheme such as
`Bearer`. Ordinary words, paths and URLs are not, since they occur in other text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import unquote, urlsplit

from kindlm.document import section

SHORTEST_SECRET = 8
"""The length from which secrets are removed from recorded text; shorter ones occur in words."""

HIDDEN = "[hidden]"
"""Replaces a credential in recorded configuration."""

_NAMES = "KEY|TOKEN|SECRET|PASSWORD"
_SECRET = re.compile(_NAMES, re.IGNORECASE)
_CREDENTIAL = re.compile(rf"AUTH|COOKIE|SESSION|{_NAMES}", re.IGNORECASE)
_OPTION = re.compile(rf"(?:{_NAMES})$", re.IGNORECASE)
_OF_A_QUERY = re.compile(rf"(?:{_NAMES}|PASSWD|PWD)$", re.IGNORECASE)

_OF_A_PAGE = re.compile(
    r"(?:sort|order|group|partition|page|next|continuation)[_.-]?(?:key|token)$", re.IGNORECASE
)
"""Names of keys for sorting and paging, which are no secrets."""

_PERHAPS_SECRET = re.compile(
    r"(?:^|_)(?:AUTH|COOKIES?|CREDENTIALS?|DSN|PASS|PASSWD|PWD)$", re.IGNORECASE
)
"""Only at the end of a name: SSH_AUTH_SOCK, AUTH_MODE and COOKIE_DOMAIN are no secrets."""

# Variables with such names may contain the address of a service.
_OF_A_SERVICE = re.compile(r"(?:^|_)(?:AUTH|CREDENTIALS?|DSN)$", re.IGNORECASE)

_WORD = r"(?:[A-Z]?[a-z]{1,15}|[A-Z]{1,15})"
# Base64 may begin with a slash, so a path needs two of them.
_PATH = r"(?:(?:~|\.\.?|[A-Za-z]:)[/\\]|[/\\][\w .@~:-]*[/\\])[\w .@~:/\\-]*"
_ADDRESS = r"[a-z][a-z0-9+.-]*://[^@?]*"
_ORDINARY = re.compile(rf"{_WORD}(?:[ ,._-]{{1,2}}{_WORD}){{0,2}}|{_PATH}|{_ADDRESS}")

# The limit prevents quadratic time for a long word.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")
# Also with two schemes: `jdbc:mysql://host/shop`.
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?[A-Za-z][A-Za-z0-9+.-]*://\S+")
_HOSTS = re.compile(r"\[.*|[^:]*(?::\d*(?:,.*)?)?")
_UNESCAPED = re.compile(r"[^/\s:@]*:(\S+)@")
_NAMED = re.compile(r"([\w.-]+(?: [\w.-]+)?)\s*=(?:('[^']*'|\"[^\"]*\")|([^\s;]*))")
_VALUES = re.compile(rf"{_NAMED.pattern}(?:[\s;]+{_NAMED.pattern})*[\s;]*")
_PASSWORD = re.compile(r"(://[^/\s:@\"']*):(?!\{\{)[^/\s@\"']+@")
_VALUE = re.compile(rf"([?&][\w.-]*(?:{_NAMES})=)(?!\{{\{{)[^&#\s\"']+", re.IGNORECASE)

_OF_A_USER = re.compile(r"[^\s:/@=]+:([^\s@]+(?:@(?!\w+\()[^\s@]+)*)(?:@\w+\(\S*)?")
"""`user:password`, also before `@tcp(host)/name`, as in a DSN of Go."""

_PLACEHOLDER = re.compile(r"\{\{[\w.]+\}\}")


def is_secret_name(name: str) -> bool:
    """Return whether an environment variable holds a secret.

    It is stricter than `is_credential_name`, since most variables are for other programs:
    XAUTHORITY is a path, GIT_AUTHOR_NAME a name.
    """
    return _SECRET.search(name) is not None


def is_secret_option(name: str) -> bool:
    """Return whether an option of a configuration holds a secret: `apiKey`, but not `keyFile`."""
    return _OPTION.search(name) is not None


def may_be_secret_name(name: str) -> bool:
    """Return whether an environment variable holds a secret unless its value is ordinary."""
    return _PERHAPS_SECRET.search(name) is not None


def is_credential_name(name: str) -> bool:
    """Return whether a header, or a variable written for a program, holds a credential."""
    return _CREDENTIAL.search(name) is not None


def is_ordinary(value: str) -> bool:
    """Return whether a value is up to three words, a path, or a URL without a user.

    Such values occur in other text, too: AUTH=required, PWD=/home/me.
    """
    return _ORDINARY.fullmatch(value) is not None


def secret_parts(url: str) -> Iterator[str]:
    """Yield the secret parts of a URL as written; they may be placeholders."""
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
    """Return the secrets in the URLs of a text, both escaped and unescaped, if long enough."""
    starts = [*(match.start() for match in _SCHEME.finditer(text)), len(text)]
    urls = [text[start:end] for start, end in pairwise(starts)]
    written = {part for url in (text, *urls) for part in secret_parts(url)}
    written |= {part for url in urls for part in _of_user_info(url)}
    found = written | set(map(unquote, written))
    return {part for part in found if len(part) >= SHORTEST_SECRET}


def _dsn_secrets(text: str) -> set[str] | None:
    """Return the secrets in a text such as `host=db password=…`, None for another form."""
    if _VALUES.fullmatch(text) is None:
        return None
    found = {name: (quoted or bare).strip("'\"") for name, quoted, bare in _NAMED.findall(text)}
    return {
        value
        for name, value in found.items()
        if is_secret_key(name) and len(value) >= SHORTEST_SECRET
    }


def is_secret_key(name: str) -> bool:
    """Return whether a query parameter, or a key of an object, holds a secret."""
    return _OF_A_QUERY.search(name) is not None and _OF_A_PAGE.search(name) is None


def _of_user_info(url: str) -> Iterator[str]:
    """Yield the password of a URL, even if it is not escaped, or a token in place of the user."""
    scheme, _, rest = url.partition("://")
    netloc = re.split(r"[/?#]", rest, maxsplit=1)[0]
    info, at, _ = netloc.rpartition("@")
    user, _, password = info.partition(":")
    # A user without a password, or with an ordinary word as password, is a token.
    is_token = scheme in ("http", "https") and (not password or is_ordinary(password))
    if at and is_token and not is_ordinary(user):
        yield user
    # An unescaped slash in a password would end the host.
    unescaped = None if at or _HOSTS.fullmatch(netloc) else _UNESCAPED.match(rest)
    if unescaped:
        yield unescaped[1]


def hide_in_urls(text: str) -> str:
    """Return a text, such as a line of a file, with the secrets in its URLs hidden."""
    return _VALUE.sub(r"\1…", _PASSWORD.sub(r"\1:…@", text))


def variable_secrets(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in a variable that is named like a credential, or contains a URL."""
    parts = list(_in_credential(name, value)) if may_be_secret_name(name) else []
    if "://" in value:
        parts += url_secrets(value)
    yield from (part for part in parts if not is_ordinary(part))


def _in_credential(name: str, value: str) -> Iterator[str]:
    if is_ordinary(value):
        return
    if _OF_A_SERVICE.search(name):
        if _URL.fullmatch(value):
            return  # `variable_secrets` handles URLs
        if (parts := _dsn_secrets(value)) is not None:
            yield from parts
            return
        if password := _OF_A_USER.match(value):
            yield password[1]
    yield value
    yield from header_secrets({name: value})


def header_secrets(headers: Mapping[str, Any]) -> Iterator[str]:
    """Yield credentials that are written in headers, if long enough."""
    return _long_parts(headers, _literal_parts)


def _literal_parts(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in a header: the value, the part after its scheme, values of cookies."""
    if not is_credential_name(name) or not _is_literal(value):
        return
    yield value
    _, _, credentials = value.partition(" ")
    for part in (credentials.strip(), *(item.partition("=")[2] for item in value.split(";"))):
        if part and _is_literal(part):
            yield part
            yield from _decoded(part)


def _is_literal(value: str) -> bool:
    """Return whether a value has more than placeholders and a scheme."""
    rest = _PLACEHOLDER.sub("", value)
    scheme, _, after = rest.partition(" ")
    return bool(after.strip() if _PLACEHOLDER.search(value) else scheme)


def _decoded(part: str) -> Iterator[str]:
    """Yield the credentials of Basic authentication, and the password."""
    try:
        text = base64.b64decode(part, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    user, colon, password = text.partition(":")
    if colon and user.isprintable():
        yield text
        yield password


def program_secrets(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the secrets in variables of a program, if long enough."""
    return _long_parts(variables, _literal_secrets)


def entry_secrets(entry: Any) -> Iterator[str]:
    """Yield the secrets in the headers and variables of an agent or a service, if long enough.

    The entry is not validated yet: values of another shape are left out.
    """
    yield from header_secrets(section(entry, "headers"))
    yield from program_secrets(section(entry, "env"))


def _long_parts(
    values: Mapping[str, Any], parts_of: Callable[[str, str], Iterator[str]]
) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, str):
            yield from (part for part in parts_of(name, value) if len(part) >= SHORTEST_SECRET)


def _literal_secrets(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in a variable of a program that are no placeholders."""
    yield from _literal_parts(name, value)
    found = variable_secrets(name, value)
    yield from (part for part in found if not _PLACEHOLDER.search(part))


def hide_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers for the record: values are hidden unless they are only placeholders."""
    return {name: HIDDEN if _is_literal(value) else value for name, value in headers.items()}


def hide_in_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an agent, or a service, with the credentials in `env` hidden."""
    env = {
        name: HIDDEN if any(True for _ in _literal_secrets(name, value)) else value
        for name, value in (options.get("env") or {}).items()
    }
    return {**options, "env": env} if env else dict(options)
