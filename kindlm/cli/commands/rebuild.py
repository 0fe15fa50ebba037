"""`kindlm rebuild`: compute the tables that reports read anew from the events."""

from __future__ import annotations

from kindlm.cli.options import DatabaseOption, VerboseOption


def rebuild_command(db: DatabaseOption = None, verbose: VerboseOption = False) -> None:
    """Compute all tables anew from the recorded events."""
    from kindlm.cli.console import fail, make_console, note
    from kindlm.cli.history import existing_history, fail_to_open
    from kindlm.cli.rebuilding import broken_projections, rebuild_with_progress
    from kindlm_store import OpenError, ProjectionError

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
