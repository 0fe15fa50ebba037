"""Fills in `${env.NAME}` in the configuration of a project and in agents of scenarios."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}")


def unset_in(text: str, environ: Mapping[str, str]) -> list[str]:
    """Return the names of variables in a text that are unset or empty."""
    return [name for name in dict.fromkeys(_VARIABLE.findall(text)) if not environ.get(name)]


def put_in(text: str, environ: Mapping[str, str]) -> str:
    """Return a text with the values of its variables, which must be set."""
    return _VARIABLE.sub(lambda found: environ[found[1]], text)


def deferred(text: str) -> str:
    """Return a text whose variables kindlm fills in when it calls an agent.

    The recorded configuration then has the names of variables, and no secrets.
    """
    return _VARIABLE.sub(r"{{env.\1}}", text)
