"""Opens the log that runs are recorded in, names new streams, and knows the files beside it."""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

from kindlm.projections import PROJECTIONS
from kindlm.recording.project import run_environment
from kindlm.recording.secrets import own_words, secret_values
from kindlm_store import EventLog, Redactor

_ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
_ID_LENGTH = 8

UNFINISHED_BACKUP = ".kindlm-part"
"""The end of the name of a backup in progress."""

_IGNORED = """\
# What kindlm recorded. The schema lets editors complete kindlm.yaml.
*
!kindlm.schema.json
"""


def new_run_id() -> str:
    """Return a short random id, without letters and digits that look alike."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))


def new_journal() -> str:
    """Return the name of a journal stream of this process alone, on any machine."""
    return f"journal/{secrets.token_hex(10)}"


def files_of(database: Path) -> list[Path]:
    """Return the file of a history, and the files that SQLite may keep beside it."""
    return [database.with_name(database.name + end) for end in ("", "-wal", "-shm", "-journal")]


def remove_unfinished_backups(folder: Path) -> None:
    """Remove the backups of killed processes in a folder: they hold all content of a history.

    The process of a backup in progress holds a lock on it.
    """
    for part in folder.glob(f".*{UNFINISHED_BACKUP}"):
        with suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for each in files_of(part):
                each.unlink(missing_ok=True)


def make_folder(database: Path) -> None:
    """Make the folder of a history; keep a new `.kindlm` folder out of version control."""
    folder = database.parent
    if folder.exists():
        return
    # Opening the history reports it if this cannot be written.
    with suppress(OSError):
        folder.mkdir(parents=True)
        if folder.name == ".kindlm":
            (folder / ".gitignore").write_text(_IGNORED, encoding="utf-8")


def project_secrets(root: Path) -> set[str]:
    """Return the secrets of the environment and of the `.env` file of a project."""
    return secret_values(run_environment([root], os.environ), ())


def open_log(database: Path, secret: set[str] | None = None) -> EventLog:
    """Open the log, and remove what is `secret` from everything that is written.

    By default, these are the secrets of the environment. Raises `OpenError`.
    """
    make_folder(database)
    hidden = secret_values(os.environ, ()) if secret is None else secret
    # The words take a while to collect, and most environments hold no secret.
    keep = own_words() if hidden else ()
    return EventLog.open(database, projections=PROJECTIONS, redact=Redactor(hidden), keep=keep)
