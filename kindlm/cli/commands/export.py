"""`kindlm history export`: a recorded run as a file that another history can import.

The file holds the run, the runs that it was derived from, the repeats that `kindlm settle` added to
any of them, and what is noted of them.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.console import fail, note, warn
from kindlm.cli.export_file import write_export
from kindlm.cli.history import existing_history, fail_to_open, named_run, open_tables
from kindlm.cli.options import DatabaseOption, RunArgument, VerboseOption
from kindlm.cli.reporters import STDOUT, is_history, open_output, replaces
from kindlm.errors import KindlmError, misuse
from kindlm.wording import count
from kindlm_store import OpenError
from kindlm_store.database import snapshot, translated

_SOURCE = "SELECT source_run FROM runs WHERE id = ?"

_ADDED = """
SELECT id FROM runs WHERE mode = 'settled' AND source_run IN (SELECT value FROM json_each(?))
 ORDER BY started_at, id
"""

_KNOWN = "SELECT 1 FROM streams WHERE name = 'run/' || ?"

# What is noted of a run, and what took back its being a baseline.
_JOURNALS = """
SELECT DISTINCT j.stream FROM event_log j
 WHERE j.stream GLOB 'journal/*'
   AND (json_extract(j.data, '$.run') = :run
        OR j.type = 'baseline.removed' AND EXISTS (
          SELECT 1 FROM event_log s
           WHERE s.type = 'baseline.set' AND json_extract(s.data, '$.run') = :run
             AND json_extract(s.data, '$.project') = json_extract(j.data, '$.project')
             AND json_extract(s.data, '$.suite') = json_extract(j.data, '$.suite')
             AND json_extract(s.data, '$.label') IS json_extract(j.data, '$.label')))
"""

# A journal is exported whole, so that what it notes of other runs has to hold as well.
_SEALED = """
SELECT json_extract(data, '$.run') FROM event_log WHERE stream = ? AND type = 'run.sealed'
"""


def export_command(
    run: RunArgument = "latest",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; - is stdout."),
    ] = None,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Write a run as JSON Lines, for `kindlm history import`.

    Includes its content, labels, reviews and baselines.
    """
    del verbose
    if output == STDOUT:
        output = None
    path = existing_history(db).database
    replaced = False
    try:
        with closing(open_tables(path)) as reader, snapshot(reader, path):
            named = named_run(reader, run)
            runs, missing = _sources(reader, named)
            runs[-1:-1] = _added(reader, runs)
            streams = _streams(reader, runs)
            if output is None:
                with translated(path):
                    events = write_export(sys.stdout.buffer, named, streams, reader)
            elif is_history(output, path):
                fail([_unwritable(output, "it is the history")])
            else:
                replaced = replaces(output)
                with open_output(output) as file, translated(path):
                    events = write_export(file, named, streams, reader)
    except OpenError as error:
        fail_to_open(error)
    except OSError as error:
        if output is None:
            raise
        fail([_unwritable(output, error.strerror or str(error))])
    sys.stdout.buffer.flush()
    for source in missing:
        warn(f"Run {source}, which {runs[0]} was derived from, is not in this history.")
    if output is not None:
        place = f"{output}, in place of the file that was there" if replaced else output
        note(f"{', '.join(runs)}: {count(events, 'event')} written to {place}.")
        note(f"Bring it into another history: kindlm history import {output}")


def _sources(db: sqlite3.Connection, run: str) -> tuple[list[str], list[str]]:
    """Return the run with all that it was derived from, first the oldest; and what is not here."""
    runs = [run]
    while (row := db.execute(_SOURCE, (runs[0],)).fetchone()) and row[0] and row[0] not in runs:
        if db.execute(_KNOWN, (row[0],)).fetchone() is None:
            return runs, [row[0]]
        runs.insert(0, row[0])
    return runs, []


def _added(db: sqlite3.Connection, runs: list[str]) -> list[str]:
    """Return the other runs that hold repeats which `kindlm settle` added to some of these."""
    found = (row[0] for row in db.execute(_ADDED, (json.dumps(runs),)))
    return [run for run in found if run not in runs]


def _streams(db: sqlite3.Connection, runs: list[str]) -> list[str]:
    wanted = list(runs)
    journals: dict[str, None] = {}
    for run in wanted:
        for (journal,) in db.execute(_JOURNALS, {"run": run}).fetchall():
            if journal in journals:
                continue
            journals[journal] = None
            sealed = (row[0] for row in db.execute(_SEALED, (journal,)).fetchall())
            wanted += [other for other in sealed if other not in wanted]
    return [*(f"run/{run}" for run in wanted), *journals]


def _unwritable(output: Path, reason: str) -> KindlmError:
    return misuse(f"{output} cannot be written: {reason}.", "Name another file with -o.")
