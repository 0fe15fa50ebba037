"""Decides what is a secret: by its name, its length and whether it is an ordinary word."""

from __future__ import annotations

import re

SHORTEST_SECRET = 8
"""What is taken out of all that is recorded has so many characters: less is in ordinary words."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_CREDENTIAL = re.compile(r"AUTH|COOKIE|KEY|TOKEN|SECRET|PASSWORD|SESSION", re.IGNORECASE)

_PERHAPS_SECRET = re.compile(
    r"(?:^|_)(?:AUTH|COOKIES?|CREDENTIALS?|DSN|PASS|PASSWD|PWD)$", re.IGNORECASE
)
"""At the end, as a whole word: SSH_AUTH_SOCK, AUTH_MODE and COOKIE_DOMAIN hold no secrets."""

_OF_A_SERVICE = re.compile(r"(?:^|_)(?:AUTH|CREDENTIALS?|DSN)$", re.IGNORECASE)

_WORD = r"(?:[A-Z]?[a-z]{1,15}|[A-Z]{1,15})"
# One character in 64 of what base64 begins with is a slash.
_PATH = r"(?:(?:~|\.\.?|[A-Za-z]:)[/\\]|[/\\][\w .@~:-]*[/\\])[\w .@~:/\\-]*"
_ADDRESS = r"[a-z][a-z0-9+.-]*://[^@?]*"
_ORDINARY = re.compile(rf"{_WORD}(?:[ ,._-]{{1,2}}{_WORD}){{0,2}}|{_PATH}|{_ADDRESS}")


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of the environment holds a secret.

    Most are there for other programs. So fewer words count than for credentials: XAUTHORITY is a
    path, GIT_AUTHOR_NAME a name.
    """
    return _SECRET.search(name) is not None


def may_be_secret_name(name: str) -> bool:
    """Tell whether a variable of the environment holds a secret, unless its value is ordinary."""
    return _PERHAPS_SECRET.search(name) is not None


def may_name_a_service(name: str) -> bool:
    """Tell whether a variable that may hold a secret may say where a service is, too: a DSN."""
    return _OF_A_SERVICE.search(name) is not None


def is_ordinary(value: str) -> bool:
    """Tell whether a value is up to three words, a path, or an address that names no user.

    These would be found in texts that repeat no secret: AUTH=required, PWD=/home/me. A path that
    begins with a slash has two of them at least.
    """
    return _ORDINARY.fullmatch(value) is not None


def is_credential_name(name: str) -> bool:
    """Tell whether a header, or a variable written for a program, holds a credential."""
    return _CREDENTIAL.search(name) is not None
