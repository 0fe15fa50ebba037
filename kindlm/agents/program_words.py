"""The words of a command: as they are run, and as messages name the program."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["program_name", "runnable"]

_PYTHON = ("python", "python3")


def runnable(words: Sequence[str]) -> list[str]:
    """Return the words, where `python` is the Python that runs kindlm."""
    first, *rest = words
    return [sys.executable if first in _PYTHON else first, *rest]


def program_name(words: Sequence[str]) -> str:
    """Return the program as the user wrote it; of a script for Python, the script too."""
    first, *rest = words
    is_script = first in _PYTHON and rest and not rest[0].startswith("-")
    return " ".join([first, *rest[: 1 if is_script else 0]])
