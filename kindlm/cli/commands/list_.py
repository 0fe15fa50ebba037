"""`kindlm list`: what `kindlm test` would run."""

from __future__ import annotations


def list_command() -> None:
    """List what `kindlm test` would run."""
