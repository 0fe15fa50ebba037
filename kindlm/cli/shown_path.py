"""Paths as they are shown to a user."""

from __future__ import annotations

from pathlib import Path

__all__ = ["shown_path"]


def shown_path(path: Path) -> str:
    """Return a path as a user would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
