"""`kindlm label`: name a run."""

from __future__ import annotations

from pathlib import Path

from kindlm.cli.console import fail, fail_if, note, or_fail, refuse
from kindlm.cli.history import named_run
from kindlm.cli.journal import author, open_journal, record
from kindlm.cli.options import DATABASE, RUN_NAMES, argument, flag
from kindlm.errors import not_there
from kindlm.events.run import RunLabelled
from kindlm.history.run_names import find_run, label_problem
from kindlm.history.run_view import RunView


def label_command(
    run: str = argument("RUN", RUN_NAMES),
    name: str | None = argument("NAME", "The label.", default=None),
    remove: bool = flag("--remove", "Remove the label."),
    db: Path | None = DATABASE,
) -> None:
    """Name a run. A new label replaces the one before."""
    if (name is None) is not remove:
        refuse("Write either a NAME or --remove.", "For help: kindlm label --help")
    name = name and name.strip()
    fail_if(None if name is None else label_problem(name))
    with open_journal(db) as (log, reader):
        run = named_run(reader, run)
        if name and reader.execute("SELECT 1 FROM runs WHERE id = ?", (name,)).fetchone():
            refuse(f"{name!r} cannot be a label: it is the id of a run.", "Choose another name.")
        before = RunView(reader, run).info.label
        if name is None and before is None:
            fail([not_there(f"Run {run} has no label.", "The labels of all runs: kindlm runs")])
        last = reader.execute("SELECT at FROM run_labels WHERE run = ?", (run,)).fetchone()
        payload = RunLabelled(run=run, label=name, by=author())
        record(log, (payload, last[0] if last else None))
        if name is None:
            note(f"Removed the label {before!r} from run {run}.")
            return
        was = f" Its label was {before!r} before." if before not in (None, name) else ""
        note(f"Run {run} is now labelled {name!r}.{was}")
        # Other runs may have the label, too.
        means = or_fail(find_run(reader, name))
        if means != run:
            note(f"Run {means} has the same label and is newer: the label refers to that run.")
