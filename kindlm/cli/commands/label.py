"""`kindlm label`: give a recorded run a name, by which other commands find it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.console import fail, note, or_fail, refuse, warn
from kindlm.cli.history import misused
from kindlm.cli.journal import author, journal_event, open_journal
from kindlm.cli.options import DatabaseOption, RunArgument, VerboseOption
from kindlm.errors import ErrorCode
from kindlm.events import RunLabelled
from kindlm.history.run_names import find_run, label_problem
from kindlm.history.run_view import RunView
from kindlm.recording.log import new_journal


def label_command(
    run: RunArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name.", show_default=False)
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name away.")] = False,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Give a run a name. A run has one: the last that it was given."""
    del verbose
    if (name is None) is not remove:
        fail([misused("A run is given a NAME, or it is taken away with --remove.", "label")])
    if name is None:
        remove_label(db, run)
    else:
        label_run(db, run, name)


def label_run(database: Path | None, wanted: str, label: str) -> None:
    """Give a run a name, in place of the one that it has; tell what the name means now."""
    if (problem := label_problem(label)) is not None:
        fail([problem])
    with open_journal(database) as (log, db):
        run = or_fail(find_run(db, wanted))
        if db.execute("SELECT 1 FROM runs WHERE id = ?", (label,)).fetchone():
            refuse(f"{label!r} can not be a label: it is the id of a run.", "Choose another name.")
        before = RunView(db, run).info.label
        payload = RunLabelled(run=run, label=label, by=author())
        log.append(new_journal(), [journal_event(payload, _last_change(db, run))])
        was = f" It was labelled {before!r} before." if before not in (None, label) else ""
        note(f"Run {run} is labelled {label!r} now.{was}")
        if (meant := _beginning_of(db, label)) is not None:
            warn(
                f"The id of run {meant} begins with {label!r}, too: it names the labelled run now.",
                f"Type more of that id, or take the label away: kindlm label {run} --remove",
            )
        means = or_fail(find_run(db, label))
        if means != run:
            note(f"Run {means} has that label, too, and is newer: it is the one that it names.")
        elif others := _others(db, run, label):
            note(f"It names this run now, and no longer {others}, which is older.")


def remove_label(database: Path | None, wanted: str) -> None:
    """Take the name of a run away, whether it began with it or was given it later."""
    with open_journal(database) as (log, db):
        run = or_fail(find_run(db, wanted))
        before = RunView(db, run).info.label
        if before is None:
            refuse(
                f"Run {run} has no label.",
                "The labels of all runs: kindlm runs",
                code=ErrorCode.CONFIG_NOT_FOUND,
            )
        payload = RunLabelled(run=run, by=author())
        log.append(new_journal(), [journal_event(payload, _last_change(db, run))])
    note(f"Run {run} has no label any more; it was {before!r}.")


def _last_change(db: sqlite3.Connection, run: str) -> str | None:
    row = db.execute("SELECT at FROM run_labels WHERE run = ?", (run,)).fetchone()
    return row[0] if row else None


def _others(db: sqlite3.Connection, run: str, label: str) -> str | None:
    """Return the newest other run that has a label."""
    row = db.execute(
        "SELECT run FROM run_list WHERE label = ? AND run <> ? ORDER BY started_at DESC LIMIT 1",
        (label, run),
    ).fetchone()
    return row[0] if row else None


def _beginning_of(db: sqlite3.Connection, label: str) -> str | None:
    """Return a run whose id begins like a label."""
    query = "SELECT id FROM runs WHERE substr(id, 1, length(:label)) = :label ORDER BY id LIMIT 1"
    row = db.execute(query, {"label": label}).fetchone()
    return row[0] if row else None
