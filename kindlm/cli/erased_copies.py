"""Removes copies of content beside a history, after some of it was erased.

These are the search index, which the next search makes anew, and unfinished backups.
"""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path

from kindlm.cli.console import warn
from kindlm.recording.history_file import files_of

UNFINISHED_BACKUP = ".kindlm-part"
"""The end of the name of a backup in progress."""


def remove_copies(history: Path) -> None:
    """Remove the search index and unfinished backups; warn if the index cannot be removed."""
    from kindlm.history.search import index_file, remove_index

    try:
        remove_index(history)
    except OSError as error:
        warn(
            f"{index_file(history)} cannot be removed: {error.strerror or error}. It may hold"
            " words of what was erased.",
            "Delete that file: it is made anew when somebody searches.",
        )
    remove_unfinished_backups(history.parent)


def remove_unfinished_backups(folder: Path) -> None:
    """Remove the backups of killed processes in a folder: they hold all content of a history.

    The process of a backup in progress holds a lock on it.
    """
    for part in folder.glob(f".*{UNFINISHED_BACKUP}"):
        with suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for each in files_of(part):
                each.unlink(missing_ok=True)
