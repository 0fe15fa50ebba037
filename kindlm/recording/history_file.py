"""The log that runs are recorded in: opening it, and names for new streams."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from kindlm.projections import PROJECTIONS
from kindlm_store import EventLog, Redactor

_ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
_ID_LENGTH = 8

_IGNORED = """\
# What kindlm recorded. The schema lets editors complete kindlm.yaml.
*
!kindlm.schema.json
"""


def new_run_id() -> str:
    """Return a short random id; without letters and digits that are taken for one another."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))


def new_journal() -> str:
    """Return the name of a journal stream of this process alone.

    Journals of several processes, on one machine or many, never claim the same version.
    """
    return f"journal/{secrets.token_hex(10)}"


def make_folder(database: Path) -> None:
    """Make the folder of a history, if there is none.

    A `.kindlm` folder is kept out of version control: recorded conversations are not to be
    committed by accident.
    """
    folder = database.parent
    if folder.exists():
        return
    # Opening the history reports what cannot be written here.
    with suppress(OSError):
        folder.mkdir(parents=True)
        if folder.name == ".kindlm":
            (folder / ".gitignore").write_text(_IGNORED, encoding="utf-8")


def open_log(database: Path, secret: set[str]) -> EventLog:
    """Open the log with the redactor at its door; raise `OpenError` if that can't be done."""
    make_folder(database)
    return EventLog.open(database, projections=PROJECTIONS, redact=Redactor(secret))
