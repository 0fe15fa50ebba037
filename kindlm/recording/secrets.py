"""What must never be written down: the values that the redactor at the store's door looks for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from kindlm.errors import ErrorCode
from kindlm.outcome import FailureCode, Outcome, Status
from kindlm.secrecy import (
    SHORTEST_SECRET,
    is_ordinary,
    is_secret_name,
    may_be_secret_name,
    may_name_a_service,
)
from kindlm.transcript import CostSource, FinishReason, Role, ToolProblemKind
from kindlm_store import Redactor

if TYPE_CHECKING:
    from kindlm import events

__all__ = [
    "redactor",
    "remember_secrets",
    "remembered_secrets",
    "secret_values",
    "vocabulary",
]


def vocabulary() -> frozenset[str]:
    """Return the words that events are made of: no value among them protects anything."""
    from kindlm import events

    words: set[str] = set()
    for model in _models(events.Payload) | _models(events.Data):
        for name, field in model.model_fields.items():
            words |= {name, field.alias or name}
            if name == "type" and isinstance(field.default, str):
                words.add(field.default)
    for enum in (Outcome, Status, FailureCode, Role, FinishReason, CostSource, ToolProblemKind):
        words |= {member.value for member in enum}
    return frozenset(words | set(ErrorCode.__members__))


def _models(base: type[events.Data]) -> set[type[events.Data]]:
    found = set(base.__subclasses__())
    return found.union(*(_models(model) for model in found))


_OF_A_USER = re.compile(r"[^\s:/@=]+:([^\s@]+(?:@(?!\w+\()[^\s@]+)*)(?:@\w+\(\S*)?")
"""`user:password`, also before `@tcp(host)/name`, as a DSN of Go has it."""

_REMEMBERED: set[str] = set()


def remember_secrets(values: Iterable[str]) -> None:
    """Keep the secrets of a run for what may have to be said of a crash later."""
    _REMEMBERED.update(values)


def remembered_secrets() -> frozenset[str]:
    """Return the secrets of all runs of this process."""
    return frozenset(_REMEMBERED)


def redactor(environ: Mapping[str, str]) -> Redactor:
    """Return what takes the secrets of an environment, and the remembered ones, out of texts."""
    return _redactor(frozenset(secret_values(environ, ())) | remembered_secrets())


@lru_cache(maxsize=4)
def _redactor(values: frozenset[str]) -> Redactor:
    return Redactor(values)


def _is_there(value: str) -> bool:
    """Tell whether a value is the path of a file or folder: HOME is in many texts, and is told."""
    # Path.exists() raises for what is too long to be one.
    return os.path.isabs(value) and os.path.exists(value)  # noqa: PTH110, PTH117


def secret_values(environ: Mapping[str, str], key_variables: Iterable[str]) -> set[str]:
    """Return the secrets of an environment.

    They are the values of the variables that configurations name as keys or give to agents, unless
    they name a file or folder, and of all variables whose names say KEY, TOKEN, SECRET or PASSWORD.
    Also what is no ordinary word, path or address of variables whose names end in AUTH, COOKIE,
    CREDENTIAL, DSN, PASS, PASSWD or PWD, and of the passwords in URLs, whatever their variable. Of
    a URL or a list of names with values (`host=db password=…`) only what is secret in it.
    """
    named = set(key_variables)
    values = {
        value.strip()
        for name, value in environ.items()
        if is_secret_name(name) or (name in named and not _is_there(value))
    }
    values |= {secret for secret in _perhaps_secret(environ) if not is_ordinary(secret)}
    long_enough = {value for value in values if len(value) >= SHORTEST_SECRET}
    # A variable such as CACHE_KEY=config_hash must not take the names out of our own events. To
    # find these takes a while, and most environments hold no secret.
    words = vocabulary() if long_enough else ()
    return {value for value in long_enough if not any(value in word for word in words)}


def _perhaps_secret(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what is secret in an environment unless it is ordinary."""
    for name, value in environ.items():
        stripped = value.strip()
        if may_be_secret_name(name) and not is_ordinary(stripped) and not _is_there(stripped):
            yield from _in_credential(name, stripped)
        if "://" in stripped and ("@" in stripped or "?" in stripped):
            # To import it takes a while, and most environments hold nothing for it to read.
            from kindlm.config.url_secrets import url_secrets

            yield from url_secrets(stripped)


def _in_credential(name: str, value: str) -> Iterator[str]:
    """Yield what is secret in the value of a variable that is named like a credential."""
    from kindlm.config.credentials import header_secrets
    from kindlm.config.url_secrets import dsn_secrets, is_url

    if may_name_a_service(name):
        if is_url(value):
            return  # who reads all URLs of the environment reads this one
        parts = dsn_secrets(value)
        if parts is not None:
            yield from parts
            return
        password = _OF_A_USER.match(value)
        if password:
            yield password[1]
    yield value
    yield from header_secrets({name: value})
