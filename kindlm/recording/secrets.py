"""Collects the secrets of an environment, which the redactor keeps out of the store."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kindlm.errors import ErrorCode
from kindlm.secrecy import (
    SHORTEST_SECRET,
    is_ordinary,
    is_secret_name,
    may_be_secret_name,
    variable_secrets,
)
from kindlm_store import Redactor


@cache
def own_words() -> frozenset[str]:
    """Return the names and fixed values of kindlm's own events, which no secret may remove."""
    from kindlm.events import EVENTS
    from kindlm.events.codec import classes_in, stored_fields

    words = {"type", *EVENTS, *ErrorCode.__members__}
    kinds: list[Any] = [*EVENTS.values()]
    for kind in kinds:
        if issubclass(kind, StrEnum):
            words |= set(kind)
            continue
        for field in stored_fields(kind):
            words |= {field.name, field.key or field.name}
            kinds += [part for part in classes_in(field.annotation) if part not in kinds]
    return frozenset(words)


_LINE_OF_A_KEY = re.compile("[A-Za-z0-9+/=]{32,}")
"""A line of base64, as in a private key."""

_REMEMBERED: set[str] = set()

TOKENS: set[str] = set()
"""Tokens of history servers that this process was given; runs that begin later hide them, too."""


def remember_secrets(values: Iterable[str]) -> None:
    """Remember the secrets of a run, so that a later crash report does not show them."""
    _REMEMBERED.update(values)


def redactor() -> Redactor:
    """Return a function that removes remembered and environment secrets from texts."""
    return _redactor(frozenset(secret_values(os.environ, ()) | _REMEMBERED | TOKENS))


_redactor = lru_cache(maxsize=4)(Redactor)


def secret_values(environ: Mapping[str, str], key_variables: Iterable[str]) -> set[str]:
    """Return the secrets of an environment.

    These are secrets:

    - the values of variables that configurations name as keys or give to agents, unless they name a
      file or folder
    - the values of variables whose names contain KEY, TOKEN, SECRET or PASSWORD
    - the values of variables whose names end in AUTH, COOKIE, CREDENTIAL, DSN, PASS, PASSWD or PWD,
      except ordinary words, paths and addresses
    - the passwords in URLs, whatever their variable

    Of a URL or a list of names with values (`host=db password=…`), only the secret parts count. So
    do the secret parts of the file that GOOGLE_APPLICATION_CREDENTIALS names. If a secret is JSON
    or has several lines, its parts also count, since programs show these separately.
    """
    named, values = set(key_variables), set[str]()
    file = environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    with suppress(OSError, ValueError):
        # Path.is_file() raises for a name that is too long.
        if os.path.isfile(file):  # noqa: PTH113
            values.update(_members(Path(file).read_text("utf-8")))
    for name, written in environ.items():
        value = written.strip()
        if is_secret_name(name) or (name in named and not _is_path(value)):
            values.add(value)
        may_be_one = may_be_secret_name(name) and not _is_path(value)
        if may_be_one or ("://" in value and ("@" in value or "?" in value)):
            values |= set(variable_secrets(name, value))
    for value in tuple(values):
        for text in (value, *_members(value)):
            lines = (line.strip() for line in text.replace("\\n", "\n").splitlines())
            values.update((text, *filter(_LINE_OF_A_KEY.fullmatch, lines)))
    return {value for value in values if len(value) >= SHORTEST_SECRET}


def _members(text: str) -> Iterator[str]:
    """Yield the values of a JSON object whose keys mark them as secret."""
    try:
        found = [json.loads(text)] if text.lstrip().startswith("{") else []
    except (ValueError, RecursionError):
        return
    for value in found:  # grows as it goes
        for name, item in value.items():
            if isinstance(item, dict):
                found.append(item)
            elif isinstance(item, str) and is_secret_name(name) and not is_ordinary(item):
                yield item.strip()


def _is_path(value: str) -> bool:
    """Return whether a value is the path of a file or folder, like HOME: paths are not secret."""
    # Path.exists() raises for a name that is too long.
    return os.path.isabs(value) and os.path.exists(value)  # noqa: PTH110, PTH117
