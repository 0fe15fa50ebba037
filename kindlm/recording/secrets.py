"""What must never be written down: the values that the redactor at the store's door looks for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from kindlm import events
from kindlm.config.credentials import (
    address_secrets,
    credential_variables,
    given_variables,
    literal_secrets,
)
from kindlm.config.interpolation import names_in
from kindlm.errors import ErrorCode
from kindlm.formats.evalview.variables import variables_in
from kindlm.outcome import FailureCode, Outcome, Status
from kindlm.suite import Suite
from kindlm.transcript import CostSource, FinishReason, Role, ToolProblemKind
from kindlm_store import Redactor

__all__ = [
    "redactor",
    "remember_secrets",
    "remembered_secrets",
    "secret_values",
    "short_secrets",
    "suite_secrets",
    "vocabulary",
]

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values are no secrets worth the name, and would be found in ordinary words."""


def vocabulary() -> frozenset[str]:
    """Return the words that events are made of: no value among them protects anything."""
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


def suite_secrets(environ: Mapping[str, str], suites: Iterable[Suite]) -> set[str]:
    """Return the secrets of an environment that suites run in, and those written into them."""
    variables: set[str] = set()
    written: set[str] = set()
    for suite in suites:
        variables |= _key_variables(suite) | given_variables(suite)
        written |= literal_secrets(suite) | address_secrets(suite, environ)
    return secret_values(environ, variables) | written


def short_secrets(environ: Mapping[str, str], suite: Suite) -> list[str]:
    """Return the secret variables that a suite uses and whose values are too short to be hidden."""
    used = {name for name in _variables(suite) if _SECRET_NAME.search(name)} | _key_variables(suite)
    return sorted(name for name in used if 0 < len(environ.get(name, "").strip()) < _SHORTEST)


def _variables(suite: Suite) -> set[str]:
    """Return the variables that the configuration of a suite names, in the way of its format."""
    if suite.front_end == "evalview":
        return variables_in(suite.config_text)
    written = names_in(suite.config_text)
    return {name.removeprefix("env.") for name in written if name.startswith("env.")}


def _key_variables(suite: Suite) -> set[str]:
    """Return the variables that a suite names as keys, or puts where credentials stand."""
    keys = (settings.api_key_env for settings in suite.providers.values())
    return {key for key in keys if key} | credential_variables(suite)


def _is_there(value: str) -> bool:
    """Tell whether a value is the path of a file or folder: HOME is in many texts, and is told."""
    # Path.exists() raises for what is too long to be one.
    return os.path.isabs(value) and os.path.exists(value)  # noqa: PTH110, PTH117


def secret_values(environ: Mapping[str, str], key_variables: Iterable[str]) -> set[str]:
    """Return the secrets of an environment.

    They are the values of the variables that configurations name as keys or give to agents, unless
    they name a file or folder, and of all variables whose names say KEY, TOKEN, SECRET or PASSWORD.
    """
    named = set(key_variables)
    values = {
        value.strip()
        for name, value in environ.items()
        if _SECRET_NAME.search(name) or (name in named and not _is_there(value))
    }
    # A variable such as CACHE_KEY=config_hash must not take the names out of our own events.
    words = vocabulary()
    return {
        value
        for value in values
        if len(value) >= _SHORTEST and not any(value in word for word in words)
    }
