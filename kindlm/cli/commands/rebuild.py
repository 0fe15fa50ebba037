"""`kindlm history rebuild`: compute the tables again from the events."""

from __future__ import annotations

from pathlib import Path

from kindlm.cli.console import note, refuse
from kindlm.cli.history import existing_history
from kindlm.cli.options import DATABASE
from kindlm.errors import ErrorCode
from kindlm.projections import PROJECTIONS
from kindlm_store import EventLog, ProjectionError


def rebuild_command(db: Path | None = DATABASE) -> None:
    """Recompute all tables from the recorded events."""
    database = existing_history(db).database
    try:
        with EventLog.open(database, projections=PROJECTIONS, repair=True) as log:
            log.rebuild()
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
    note("All tables were computed again from the events.")
