"""`kindlm rebuild`: compute the tables that reports read anew from the events."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from kindlm.cli.console import fail, make_console, note
from kindlm.cli.history import existing_history, fail_to_open
from kindlm.cli.options import DatabaseOption, VerboseOption
from kindlm.errors import ErrorCode, KindlmError
from kindlm.projections import PROJECTIONS
from kindlm_store import EventLog, OpenError, ProjectionError

if TYPE_CHECKING:
    from rich.console import Console


def rebuild_command(db: DatabaseOption = None, verbose: VerboseOption = False) -> None:
    """Compute all tables anew from the recorded events."""
    del verbose
    console = make_console()
    database = existing_history(db).database
    try:
        events, problems = rebuild_with_progress(database, console)
    except OpenError as error:
        fail_to_open(error)
    except ProjectionError as error:
        fail([broken_projections({error.projection: str(error)})], console)
    if problems:
        fail([broken_projections(problems)], console)
    note(f"All tables are computed anew from {events:,} events.", console)


def rebuild_with_progress(database: Path, console: Console) -> tuple[int, dict[str, str]]:
    """Fold all projections anew; return the number of events, and what could not be folded.

    Raises `OpenError` if the file can't be opened, `ProjectionError` if a newer version of kindlm
    keeps its tables.
    """
    events = 0
    bar = Progress(
        TextColumn("rebuilding"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with EventLog.open(database, projections=PROJECTIONS, mend=True) as log, bar:
        task = bar.add_task("rebuild", total=None)

        def advance(done: int, total: int) -> None:
            nonlocal events
            events = done
            bar.update(task, completed=done, total=total)

        log.rebuild(progress=advance)
        return events, log.projection_errors()


def broken_projections(problems: Mapping[str, str]) -> KindlmError:
    """Return the error that some tables could not be computed."""
    listed = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"Not all tables could be computed: {listed}.",
        "No event is lost. Update kindlm and run it again: kindlm rebuild",
    )
