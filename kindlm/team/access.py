"""Who may do what on a history server."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows.

    Attributes:
        name: Name of the token.
        scopes: Of push, pull and review.
        project: The only project that it is for, None for all.
        id: Of the token; no other token has it.
    """

    name: str
    scopes: frozenset[str]
    project: str | None
    id: str


class Access(Protocol):
    """Knows the tokens."""

    def grant_of(self, token: str) -> Grant | None:
        """Return what a token allows, None if it is not valid."""

    def problem_of(self, token: str) -> str:
        """Return what is wrong with a token that is not valid, as a sentence."""


class OneToken:
    """Access for who has one token, such as the workers of one run."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def grant_of(self, token: str) -> Grant | None:
        """Return what the token allows: to push and to pull."""
        if not hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self._token):
            return None
        return Grant("worker", frozenset({"push", "pull"}), None, "worker")

    def problem_of(self, token: str) -> str:
        """Return that a token is another one."""
        del token
        return "The token is unknown."
