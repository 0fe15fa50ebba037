"""`kindlm history rebuild`: compute the tables again from the events."""

from __future__ import annotations

from pathlib import Path

from kindlm.cli.console import make_console, note, refuse
from kindlm.cli.history import existing_history
from kindlm.cli.options import DATABASE
from kindlm.errors import ErrorCode
from kindlm.projections import PROJECTIONS
from kindlm_store import EventLog, ProjectionError


def rebuild_command(db: Path | None = DATABASE) -> None:
    """Recompute all tables from the recorded events."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = make_console()
    columns = TextColumn("rebuilding"), BarColumn(), MofNCompleteColumn()
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("rebuild", total=None)
    database = existing_history(db).database
    try:
        with EventLog.open(database, projections=PROJECTIONS, repair=True) as log, bar:
            log.rebuild(progress=lambda done, total: bar.update(task, completed=done, total=total))
            problems = log.projection_errors()
    except ProjectionError as error:
        problems = {error.projection: str(error)}
    if problems:
        listed = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        refuse(
            f"Not all tables could be computed: {listed}.",
            "No event is lost. Update kindlm and run it again: kindlm history rebuild",
            code=ErrorCode.UNKNOWN_ERROR,
        )
    note(f"All tables were computed again from {bar.tasks[0].completed:,.0f} events.")
