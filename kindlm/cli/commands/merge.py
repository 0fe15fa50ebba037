"""`kindlm history merge`: merge histories of other machines or shards, in any order."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import typer

from kindlm.cli.console import fail, note, show, warn
from kindlm.cli.history import (
    db_option,
    merged_besides,
    project_here,
    remove_copies,
    warn_of_withheld,
)
from kindlm.cli.history_errors import RESTORE
from kindlm.cli.options import DATABASE, argument
from kindlm.errors import KindlmError, SourceLocation, broken, not_there
from kindlm.events import merge_of
from kindlm.recording.history_file import open_log
from kindlm.wording import count
from kindlm_store import CorruptDatabaseError, EmptyFileError, EventLog, open_reader
from kindlm_store.merging import Taken
from kindlm_store.salvage import is_damaged, salvage, scratch_log

_LOST = "SELECT count(*) FROM events WHERE stream NOT IN (SELECT id FROM streams)"

_BACKUP = "If there is a backup of it, merge that one, too: kindlm history merge BACKUP.db"


def merge_command(
    files: list[Path] = argument("DB", "Histories of other machines or shards."),
    db: Path | None = DATABASE,
) -> None:
    """Merge other histories into this one, in any order. Safe to repeat."""
    project = project_here(db)
    refused: list[KindlmError] = []
    with ExitStack() as opened:
        # Open all files before anything is merged.
        sources: dict[Path, sqlite3.Connection] = {}
        for file in files:
            if not file.exists():
                hint = "Name a history, such as .kindlm/kindlm.db of another machine."
                fail([not_there(f"There is no file {file}.", hint)])
            try:
                reader = open_reader(file)
            except EmptyFileError:
                reader = scratch_log()
            except CorruptDatabaseError as error:
                fail([broken(f"Nothing of {file} can be read: it {error.reason}.", RESTORE)])
            sources[file] = opened.enter_context(closing(reader))
        with open_log(project.database) as log:
            merged = [(file, *_take(log, file, reader)) for file, reader in sources.items()]
    if any(taken.erased or taken.filled for _, taken, _ in merged):
        remove_copies(project.database)
    for file, taken, lost in merged:
        besides = merged_besides(taken.known, taken.filled, taken.erased)
        note(f"{file}: {count(taken.added, 'event')} merged{besides}.")
        warn_of_withheld(taken.withheld, file)
        for refusal in taken.refused:
            if refusal.about in {each.stream for each in taken.refused}:
                continue  # a note on a run that was refused itself
            name = refusal.stream.replace("/", " ", 1)
            other = db_option(file)
            check = f"Check that history: kindlm history verify{other}"
            hints = {
                "going on": "Merge it again when it has ended.",
                "apart": "It was copied, and resumed in both histories. Both stay as they are; to"
                f" look at the other one: kindlm show {refusal.stream.removeprefix('run/')}{other}",
                "unsound": f"Everything else was merged. {check if lost is None else _BACKUP}",
            }
            message, hint = f"Nothing of {name} was merged: {refusal.reason}.", hints[refusal.kind]
            if refusal.kind == "going on":
                warn(message, hint)
            else:
                refused.append(broken(message, hint, SourceLocation(str(file))))
        what = None
        if lost:
            what = f"{count(lost, 'event')} of it can be read, but not which run they belong to"
        elif lost is not None and not (taken.added or taken.known or taken.refused):
            what = "Nothing that was recorded in it can be read"
        if what is not None:
            what = f"{what}: the history is damaged there."
            refused.append(broken(what, _BACKUP, SourceLocation(str(file))))
    if refused:
        show(refused)
        raise typer.Exit(1)
    note("See them with: kindlm runs")


def _take(log: EventLog, file: Path, reader: sqlite3.Connection) -> tuple[Taken, int | None]:
    """Merge a history, or the readable part of a damaged one.

    Returns:
        What was merged, and of a damaged history, the number of readable events whose run or
        journal is unknown.
    """
    merge = merge_of(log, reader, file)
    first = merge.taken
    try:
        merge.take()
    except CorruptDatabaseError as error:
        if error.path != file:
            raise
    else:
        if all(refusal.kind != "unsound" for refusal in first.refused) or not is_damaged(reader):
            return first, None
    warn(f"{file} is damaged: it is read row by row.")
    with closing(salvage(reader)) as copy:
        taken = merge_of(log, copy, file).take()
        taken.known -= first.added
        taken.streams.update(first.streams)
        return taken, copy.execute(_LOST).fetchone()[0]
