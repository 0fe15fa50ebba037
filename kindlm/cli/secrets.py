"""What must never be written down: the values that the redactor at the store's door looks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["secret_values"]

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values are no secrets worth the name, and would be found in ordinary words."""


def secret_values(environ: Mapping[str, str], key_variables: Iterable[str]) -> set[str]:
    """Return the secrets of an environment.

    They are the values of the variables that configurations name as keys, and of all variables
    whose names say KEY, TOKEN, SECRET or PASSWORD.
    """
    named = set(key_variables)
    values = {
        value.strip()
        for name, value in environ.items()
        if name in named or _SECRET_NAME.search(name)
    }
    return {value for value in values if len(value) >= _SHORTEST}
