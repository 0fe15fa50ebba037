"""What is a secret, told by its name and its length alone."""

from __future__ import annotations

import re

__all__ = ["SHORTEST_SECRET", "is_credential_name", "is_secret_name"]

SHORTEST_SECRET = 8
"""What is taken out of all that is recorded has so many characters: less is in ordinary words."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_CREDENTIAL = re.compile(r"AUTH|COOKIE|KEY|TOKEN|SECRET|PASSWORD|SESSION", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of the environment holds a secret.

    Most are there for other programs. So fewer words count than for credentials: XAUTHORITY is a
    path, GIT_AUTHOR_NAME a name.
    """
    return _SECRET.search(name) is not None


def is_credential_name(name: str) -> bool:
    """Tell whether a header, or a variable written for a program, holds a credential."""
    return _CREDENTIAL.search(name) is not None
