"""The search index of `kindlm browse`, where texts were erased: none of their words may stay."""

from __future__ import annotations

from pathlib import Path

from kindlm.cli.console import warn
from kindlm.history.search import index_file, remove_index


def forget_erased(history: Path) -> None:
    """Remove the index, which is made anew when somebody searches; say so if that fails."""
    try:
        remove_index(history)
    except OSError as error:
        warn(
            f"{index_file(history)} can not be removed: {error.strerror or error}. It may hold"
            " words of what was erased.",
            "Delete that file: it is made anew when somebody searches.",
        )
