"""Paths as they are shown to a user."""

from __future__ import annotations

import shlex
from pathlib import Path


def shown_path(path: Path) -> str:
    """Return a path as a user would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def db_option(named: Path | None) -> str:
    """Return what a command needs besides, to read the history that the user named with --db."""
    return "" if named is None else f" --db {shlex.quote(shown_path(named))}"
