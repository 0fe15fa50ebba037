"""Taking a pushed or pulled file into a history: all of it, or nothing.

Everything in it is held to its hashes, its form and what is here already. It adds events and fills
texts that were withheld; it erases nothing, and what was erased here stays so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import BinaryIO

from kindlm.events.run import ContentsPurged
from kindlm.history.search import remove_index
from kindlm.recording.export_file import Export, LineError, read_export
from kindlm.recording.foreign_events import merge_of, require_known_form
from kindlm.team.protocol import ApiError, PushAnswer
from kindlm_store import EventLog, RecordedEvent
from kindlm_store.merging import RefusedError

Allowed = Callable[[Mapping[str, frozenset[str | None]]], None]
"""Raises `ApiError` if streams may not be written: their names, each with its projects.

None among them is a project that neither the file nor the history names.
"""

_LONGEST_MESSAGE = 500

_CONFLICTS = ("apart", "behind", "going on")

_PROJECTS = """
SELECT s.name, e.version, json_extract(e.data, '$.project') AS project,
       json_extract(e.data, '$.run') AS run, json_extract(e.data, '$.source_run') AS source
  FROM streams s JOIN events e ON e.stream = s.id
 WHERE s.name GLOB 'journal/*' OR e.version = 1 OR project IS NOT NULL OR source IS NOT NULL
"""

_EVENT_LINE = """
SELECT seq FROM events WHERE version = ? AND stream = (SELECT id FROM streams WHERE name = ?)
"""

_RECORDED = """
SELECT project FROM runs WHERE id = :run
UNION
SELECT project FROM suites WHERE run = :run AND project IS NOT NULL
"""


def take_body(log: EventLog, file: BinaryIO, *, allowed: Allowed) -> PushAnswer:
    """Take a file, unpacked, into a history.

    Raises:
        ApiError: 409 where a stream went on apart, lacks events here or is being written, 422 with
            the line where the file is not as it was written, and what `allowed` raises.
        OpenError: The history cannot be written.
    """
    try:
        with read_export(file) as export:
            allowed(_projects(export, log))
            try:
                merge = merge_of(
                    log, export.log, log.path, begins=export.begins, accept=_require_welcome
                )
                taken = merge.take(together=True)
            except RefusedError as error:
                raise _explained(error, export.log) from None
    except LineError as error:
        raise _invalid(f"Line {error.line} {error}.", line=error.line) from None
    if taken.filled:
        # It is made anew by the next search, with what has been filled in.
        with suppress(OSError):
            remove_index(log.path)
    return PushAnswer(taken.added, taken.known, taken.filled)


def recorded_projects(db: sqlite3.Connection, run: str) -> set[str | None]:
    """Return the projects that a recorded run is about: its own, and those of its suites.

    A run that is not there is about None.
    """
    return {row["project"] for row in db.execute(_RECORDED, {"run": run}).fetchall()} or {None}


def _require_welcome(event: RecordedEvent) -> None:
    """Raise `ValueError` for an event that is not taken from elsewhere."""
    if event.type == ContentsPurged.type:
        message = "a file cannot erase content here: purge it in this history"
        raise ValueError(message)
    require_known_form(event)


def _projects(export: Export, log: EventLog) -> dict[str, frozenset[str | None]]:
    """Return of each stream of a file the projects that it is about.

    Raises:
        LineError: That cannot be read.
    """
    streams = [name for (name,) in export.log.execute("SELECT name FROM streams")]
    found: dict[str, set[str | None]] = {name: set() for name in streams}
    noted: list[tuple[str, str]] = []
    derived: list[tuple[str, str]] = []
    try:
        for name, version, project, run, source in export.log.execute(_PROJECTS):
            if project is not None:
                found[name].add(str(project))
            elif name.startswith("run/") and version == 1:
                found[name].add(None)
            if name.startswith("journal/") and (run is not None or project is None):
                noted.append((name, f"run/{run}"))
            if source is not None:
                derived.append((name, f"run/{source}"))
    except sqlite3.OperationalError as error:
        raise LineError(1, f"comes before data that SQLite cannot read ({error})") from None
    with closing(log.reader()) as reader:

        def recorded(run: str) -> set[str | None]:
            return recorded_projects(reader, run.removeprefix("run/"))

        for name in streams:
            if name.startswith("run/") and (name in export.begins or not found[name]):
                found[name] |= recorded(name)
        for name, run in noted:
            found[name] |= found[run] if run in found else recorded(run)
        for name, source in derived:
            # The run that it was derived from may be nowhere; it is no other project's then.
            found[name] |= (found.get(source) or recorded(source)) - {None}
    return {name: frozenset(projects) for name, projects in found.items()}


def _explained(refusal: RefusedError, source: sqlite3.Connection) -> ApiError:
    """Return the answer to a file of which a stream cannot be taken."""
    message = f"{str(refusal).replace('/', ' ', 1)}."
    if refusal.kind in _CONFLICTS:
        return ApiError(409, message, {"stream": refusal.stream, "reason": refusal.kind})
    row = None
    if refusal.version is not None:
        row = source.execute(_EVENT_LINE, (refusal.version, refusal.stream)).fetchone()
    elif refusal.ref is not None:
        row = source.execute("SELECT rowid FROM contents WHERE ref = ?", (refusal.ref,)).fetchone()
    # What is wrong with no single line is not what the header says.
    return _invalid(message, line=row[0] if row else 1)


def _invalid(message: str, *, line: int) -> ApiError:
    # It may quote what the file holds, of whatever length.
    return ApiError(422, message[:_LONGEST_MESSAGE], {"line": line})
