"""Writes and takes the bodies of pushes and pulls, in the form of an export.

A push sends what a history server lacks. Each body continues the previous one, so an interrupted
push continues where it stopped. The same history and the same heads give the same bytes.

A body is taken completely or not at all, after checks of its hashes, its form, and its agreement
with this history. It adds events and fills in withheld texts. It never erases texts or restores
erased ones.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

from kindlm.events import merge_of, require_known_form
from kindlm.events.execution_events import RAW_BODY
from kindlm.events.run import ContentsPurged
from kindlm.history.search import remove_index
from kindlm.recording.export_file import (
    Export,
    LineError,
    Part,
    event_line,
    header_line,
    read_export,
    text_lines,
)
from kindlm.team.protocol import (
    LONGEST_BODY,
    LONGEST_UNPACKED,
    NO_EVENTS,
    ApiError,
    PushAnswer,
    StreamEnd,
)
from kindlm.team.withholding import Withholding
from kindlm_store import EventLog, RecordedEvent
from kindlm_store.canonical import hash_text
from kindlm_store.erasing import ref_under, refs_in
from kindlm_store.merging import Note, RefusedError
from kindlm_store.reading import events_after, hash_at, stored_texts

_AIM = 4_000_000
"""Bytes of a body before compression, unless a single event has more; below all limits."""

_PIECE = 500


class NotSentError(Exception):
    """An event holds content to withhold, or is too large; the message says which and why."""


def bodies(
    db: sqlite3.Connection,
    run: str,
    streams: Sequence[str],
    heads: Mapping[str, StreamEnd],
    withhold: Withholding | None = None,
    most: int = LONGEST_BODY,
) -> Iterator[bytes]:
    """Yield gzipped bodies with the events that a server lacks of the streams of a run.

    A stream that has as many events on the server, or more, but another end, is sent without
    events: the server then compares it, and refuses a body with a stream that differs.

    Args:
        db: The history. The next push sends what is appended meanwhile.
        run: The run to push, for the header of a body.
        streams: Names of its streams in the order of `streams_of`: journals after their runs.
        heads: Where the streams end on the server, without those that it does not have.
        withhold: What to leave out; None: nothing.
        most: The limit for the bytes of a gzipped body.

    Raises:
        NotSentError: An event itself holds content to withhold, or does not fit with its texts. The
            bodies before it may be sent.
    """
    new_body = partial(_Body, db, run, withhold or Withholding(), most)
    body = new_body()
    for part in _parts(db, streams, heads):
        version = part.after
        if version == part.until:
            body.parts[part.stream] = part
        while version < part.until:
            piece = events_after(db, part.stream, version, min(_PIECE, part.until - version))
            for event in piece:
                if not body.add(event):
                    yield body.packed()
                    body = new_body()
                    body.add(event)
            version = piece[-1].version
    if body.parts:
        yield body.packed()


def _parts(
    db: sqlite3.Connection, streams: Sequence[str], heads: Mapping[str, StreamEnd]
) -> Iterator[Part]:
    """Yield the part of each stream to send; it is empty if streams are only to be compared."""
    # One query, since a journal is appended together with the end of the run that it notes.
    ends = dict(db.execute("SELECT name, version FROM streams").fetchall())
    for name in streams:
        until, there = ends[name], heads.get(name, NO_EVENTS)
        if there.version < until:
            yield Part(name, there.version, until)
        else:
            here = hash_at(db, name, until)
            if there.version > until or here is None or hash_text(here) != there.head:
                yield Part(name, until, until)


@dataclass(slots=True)
class _Body:
    """A growing body, as lines of whole events."""

    db: sqlite3.Connection
    run: str
    withhold: Withholding
    most: int
    parts: dict[str, Part] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    refs: set[str] = field(default_factory=set)

    def add(self, event: RecordedEvent) -> bool:
        """Add an event with its texts that the body lacks; return whether it fits."""
        if reason := self.withhold.objection(event):
            message = f"event {event.version:,} of {event.stream}: {reason}"
            raise NotSentError(message)
        refs = [ref for ref in refs_in([event.json]) if ref not in self.refs]
        texts = list(text_lines(self.db, refs, self._withheld(event)))
        line = event_line(event)
        size = len(line) + sum(map(len, texts))
        if self.lines and self.size + size > min(_AIM, self.most * 4 // 5):
            return False
        self.lines += [*texts, line]
        self.size += size
        self.refs.update(refs)
        begun = self.parts.get(event.stream, Part(event.stream, event.version - 1, 0))
        self.parts[event.stream] = begun._replace(until=event.version)
        return True

    def _withheld(self, event: RecordedEvent) -> Callable[[str], bool]:
        """Return which texts of an event are withheld.

        If any other text of the event is withheld, so is the raw body of the answer.
        """
        withhold, raw = self.withhold, ref_under(RAW_BODY, event.json)
        if event.version <= withhold.pulled.get(event.stream, 0):
            return withhold.always
        if raw is None or not withhold.redacts:
            return withhold
        bodies = {ref: body for ref, _, _, body in stored_texts(self.db, refs_in([event.json]))}
        body = bodies.pop(raw, None)
        if body is None or not any(withhold(text) for text in bodies.values() if text is not None):
            return withhold
        return lambda text: text == body or withhold(text)

    def packed(self) -> bytes:
        """Return the gzipped body; raise `NotSentError` if its only event is too large."""
        lines = [header_line(self.run, self.parts.values(), self.db), *self.lines]
        packed = gzip.compress(b"".join(lines), 6, mtime=0)
        if sum(map(len, lines)) > LONGEST_UNPACKED or len(packed) > self.most:
            *_, (stream, _, version) = self.parts.values()
            what = "is too large with its content, which --texts or upload.includeArtifacts sends"
            raise NotSentError(f"event {version:,} of {stream} {what}")
        return packed


Allowed = Callable[[Mapping[str, frozenset[str | None]]], None]
"""Raises `ApiError` if streams may not be written, given by name with their projects.

None stands for a project that neither the file nor the history names.
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


_RUNS_OF_STREAM = """
SELECT substr(:stream, 5) WHERE :stream GLOB 'run/*'
UNION
SELECT json_extract(data, '$.run') FROM event_log
 WHERE stream = :stream AND stream GLOB 'journal/*' AND json_extract(data, '$.run') IS NOT NULL
"""


def take_body(
    log: EventLog, file: BinaryIO, *, allowed: Allowed, note: Note | None = None
) -> PushAnswer:
    """Take an uncompressed file into a history, together with the append of `note`.

    Raises:
        ApiError: 409 if a stream differs here, lacks earlier events here, or is being written; 422
            with the line if the file is invalid; and whatever `allowed` raises.
        OpenError: The history cannot be written.
    """
    try:
        with read_export(file) as export:
            allowed(_projects(export, log))
            try:
                merge = merge_of(
                    log, export.log, log.path, begins=export.begins, accept=_require_welcome
                )
                taken = merge.take(together=True, note=note)
            except RefusedError as error:
                raise _explained(error, export.log) from None
    except LineError as error:
        raise _invalid(f"Line {error.line} {error}.", line=error.line) from None
    if taken.filled:
        # The next search makes the index again, with the filled texts.
        with suppress(OSError):
            remove_index(log.path)
    return PushAnswer(taken.added, taken.known, taken.filled)


def recorded_projects(db: sqlite3.Connection, run: str) -> set[str | None]:
    """Return the projects of a recorded run and of its suites; `{None}` for an unknown run."""
    return {row["project"] for row in db.execute(_RECORDED, {"run": run}).fetchall()} or {None}


def runs_of_stream(db: sqlite3.Connection, stream: str) -> list[str]:
    """Return the run of a stream, or the runs that a journal has notes on."""
    return [run for (run,) in db.execute(_RUNS_OF_STREAM, {"stream": stream}).fetchall()]


def _require_welcome(event: RecordedEvent) -> None:
    """Raise `ValueError` for an event that may not come from another history."""
    if event.type == ContentsPurged.type:
        message = "a file cannot erase content here: purge it in this history"
        raise ValueError(message)
    require_known_form(event)


def _projects(export: Export, log: EventLog) -> dict[str, frozenset[str | None]]:
    """Return the projects of each stream of a file.

    Raises:
        LineError: The file holds data that SQLite cannot read.
    """
    streams = [name for (name,) in export.log.execute("SELECT name FROM streams")]
    found: dict[str, set[str | None]] = {name: set() for name in streams}
    others: list[tuple[str, str, set[None]]] = []
    """Runs whose projects count for a stream. A source run that is nowhere adds no project."""
    try:
        for name, version, project, run, source in export.log.execute(_PROJECTS):
            if project is not None:
                found[name].add(str(project))
            elif name.startswith("run/") and version == 1:
                found[name].add(None)
            if name.startswith("journal/") and (run is not None or project is None):
                others.append((name, str(run), set()))
            if source is not None:
                others.append((name, str(source), {None}))
    except sqlite3.OperationalError as error:
        raise LineError(1, f"comes before data that SQLite cannot read ({error})") from None
    with closing(log.reader()) as db:
        for name in streams:
            if name.startswith("run/") and (name in export.begins or not found[name]):
                found[name] |= recorded_projects(db, name[4:])
        for name, run, without in others:
            found[name] |= (found.get(f"run/{run}") or recorded_projects(db, run)) - without
    return {name: frozenset(projects) for name, projects in found.items()}


def _explained(refusal: RefusedError, source: sqlite3.Connection) -> ApiError:
    """Return the error for a file with a stream that was refused."""
    message = f"{str(refusal).replace('/', ' ', 1)}."
    if refusal.kind in _CONFLICTS:
        return ApiError(409, message, {"stream": refusal.stream, "reason": refusal.kind})
    row = None
    if refusal.version is not None:
        row = source.execute(_EVENT_LINE, (refusal.version, refusal.stream)).fetchone()
    elif refusal.ref is not None:
        row = source.execute("SELECT rowid FROM contents WHERE ref = ?", (refusal.ref,)).fetchone()
    # Without a single wrong line, the header is wrong about the file.
    return _invalid(message, line=row[0] if row else 1)


def _invalid(message: str, *, line: int) -> ApiError:
    # The message may quote long content of the file.
    return ApiError(422, message[:_LONGEST_MESSAGE], {"line": line})
