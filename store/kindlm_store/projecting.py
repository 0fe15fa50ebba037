"""Projections: tables that SQL folds from events, each from its own checkpoint.

A projection consists of tables, views, and statements that fold the events of some types. A
statement reads `new_events`, one batch of events: those of one commit, or up to 5,000 of a rebuild.
Its result must not depend on where batches end.

Each projection is folded in a savepoint. If it fails, the events are recorded all the same, and its
tables stay behind until a rebuild. Tables of a newer version are never changed.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from kindlm_store.database import code_of, immediate, roll_back
from kindlm_store.locks import setup_lock
from kindlm_store.reading import last_position
from kindlm_store.store_errors import ProjectionError

Progress = Callable[[int, int], None]
"""Called with the position that a rebuild has reached, and the last one."""

_PIECE = 5_000
"""The most events of a batch."""

_DISK_TROUBLE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
}

MISREADS_NUMBERS = (3, 43) <= sqlite3.sqlite_version_info < (3, 51)
"""SQLite 3.43 and 3.46 parse some decimal numbers with a wrong last digit; 3.40 and 3.51 do not."""


class Fold(NamedTuple):
    """A statement, and the types of the events that it folds."""

    types: frozenset[str]
    sql: str


_FIELDS = re.compile(r"FIELDS OF (\S+) \(([^)]+)\)")
# Comments directly above a section are not part of the one before it.
_SECTION = re.compile(r"^(?: *--.*\n)* *(ON|VIEW) ([\w. ]+):\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Projection:
    """A read model: tables folded from events, and views over them.

    Its SQL begins with CREATE TABLE and CREATE INDEX statements, separated by semicolons. Sections
    follow. `VIEW name:` begins the SELECT of a view. `ON type type:` begins a fold: a statement
    that folds events of these types into tables, after the folds before it.

    A fold reads `new_events`, with the columns type, seq, version (the position in the stream), at,
    id, stream, subject, data (JSON), and those of `columns`. `INSERT INTO t BY NAME SELECT … AS c`
    fills the columns that the SELECT names, and `DO UPDATE BY NAME` after it updates them.
    `FIELDS OF data (a, b_ref)` reads columns from the members of their names: `b_ref` from the
    reference to the text `b`, and REAL columns as `real(data ->> 'path')` reads decimal numbers.

    Attributes:
        name: Its name; unique in a file.
        version: Increase it with any change of the SQL. The projection is then folded again from
            the first event when the log is opened.
        sql: The SQL. Names of tables, indexes and views are unique among the projections of a file.
        columns: More columns of `new_events`, also for the other projections of a log: name → SQL
            over its other columns.
        parts: The kind of each table, index and view, and the statement that creates it, by name.
        folds: The folds, in order.
    """

    name: str
    version: int
    sql: str
    columns: Mapping[str, str] = field(default_factory=dict)
    parts: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)
    folds: list[Fold] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        create, *sections = _SECTION.split(self.sql)
        decimal = re.findall(r"(\w+) REAL", create)
        for statement in filter(None, (" ".join(each.split()) for each in create.split(";"))):
            command, kind, name, *_ = statement.split()
            if command != "CREATE":
                raise ValueError(f"no line says which events this folds: {statement}")
            self.parts[name] = kind.lower(), statement
        for kind, names, sql in zip(sections[::3], sections[1::3], sections[2::3], strict=True):
            if kind == "VIEW":
                select = dedent(sql).strip()
                self.parts[names] = "view", f"CREATE VIEW {quoted(names)} AS \n{select}\n"
            else:
                expanded = _FIELDS.sub(lambda found: _columns(found[1], found[2], decimal), sql)
                self.folds.append(Fold(frozenset(names.split()), expanded))

    @property
    def tables(self) -> dict[str, str]:
        """The CREATE TABLE statements, by the names of the tables."""
        return {name: sql for name, (kind, sql) in self.parts.items() if kind == "table"}

    @property
    def views(self) -> dict[str, str]:
        """The CREATE VIEW statements, by the names of the views."""
        return {name: sql for name, (kind, sql) in self.parts.items() if kind == "view"}


def _columns(data: str, names: str, decimal: Collection[str]) -> str:
    columns = []
    for name in names.replace(",", " ").split():
        path = f"$.{name.removesuffix('_ref')}.$ref" if name.endswith("_ref") else name
        value = f"{data} ->> '{path}'"
        columns.append(f"{f'real({value})' if name in decimal else value} AS {name}")
    return ", ".join(columns)


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class State(NamedTuple):
    """The recorded state of a projection in the file; version 0 if it was never folded."""

    version: int = 0
    checkpoint: int = 0
    error: str | None = None


def read_states(connection: sqlite3.Connection) -> defaultdict[str, State]:
    """Return the recorded states of the projections in the file, by name."""
    # Someone who changes a file may store other types.
    rows = connection.execute(
        "SELECT name, CAST(version AS INTEGER), CAST(checkpoint AS INTEGER), error FROM projections"
    )
    return defaultdict(State, {name: State(*state) for name, *state in rows})


def problem_of(projection: Projection, state: State) -> str | None:
    """Return why this code cannot read the tables of a projection; None if it can."""
    found, known = state.version, projection.version
    if found > known:
        return f"has version {found} in this file, this program knows {known}: update the program"
    return f"has version {found} in this file, older than {known}" if found < known else state.error


def projection_errors(
    connection: sqlite3.Connection, projections: Iterable[Projection]
) -> dict[str, str]:
    """Return why this code cannot read the tables of projections, by name; {} if it can."""
    states = read_states(connection)
    problems = {p.name: problem_of(p, states[p.name]) for p in projections}
    return {name: problem for name, problem in problems.items() if problem}


def behind_the_log(connection: sqlite3.Connection, projections: Iterable[Projection]) -> list[str]:
    """Return the projections whose recorded state does not include the last event.

    `EventLog` folds in the transaction that appends. So another program has written events, or
    someone has changed the recorded state.
    """
    last, states = last_position(connection), read_states(connection)
    current = [p.name for p in projections if problem_of(p, states[p.name]) is None]
    return [name for name in current if states[name].checkpoint != last]


def names_in(stored: str) -> set[str]:
    """Return the names of tables or views in a stored list; none if someone changed the list."""
    try:
        return {name for name in json.loads(stored) if isinstance(name, str)}
    except (ValueError, TypeError):
        return set()


# With a subquery in place of this table, SQLite would scan the changed table for each of its rows.
_BATCH = """
CREATE TEMP TABLE IF NOT EXISTS batch (
  type TEXT, seq INTEGER, version INTEGER, at TEXT, raw_id BLOB, stream TEXT, subject TEXT,
  data TEXT{columns}, PRIMARY KEY (type, seq)) WITHOUT ROWID
"""

_FILL = """
INSERT INTO batch
SELECT *{columns}
  FROM (SELECT t.name AS type, e.seq, e.version, e.at, e.id, s.name AS stream, e.subject AS subject,
               e.data AS data
          FROM events e
          CROSS JOIN streams s ON s.id = e.stream
          CROSS JOIN event_types t ON t.id = e.type
         WHERE e.seq > ? AND e.seq <= ?)
"""

_NEW_EVENTS = """
WITH new_events AS (
  SELECT *, (SELECT printf('%s-%s-%s-%s-%s', substr(h, 1, 8), substr(h, 9, 4), substr(h, 13, 4),
                           substr(h, 17, 4), substr(h, 21))
               FROM (SELECT lower(hex(raw_id)) AS h)) AS id
    FROM batch WHERE type IN ({types}))
"""

_INTO = re.compile(
    r"\s*((?:INSERT|REPLACE) INTO \w+) BY NAME\s+(SELECT.*?)(ON CONFLICT.*)?$", re.DOTALL
)

_REAL = re.compile(r"\breal\((\S+) ->> ('[^']+')\)")
_DECIMAL = re.compile(r"-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+)")

_BUILT: dict[tuple[Fold, tuple[str, ...]], str] = {}
"""The final SQL of folds, by fold and more columns, for all logs of the process."""


def _decimal_number(text: str | None) -> float | None:
    """Return a decimal number in JSON, which Python rounds correctly; None for anything else."""
    return float(text) if text is not None and _DECIMAL.fullmatch(text) else None


class Projector:
    """Folds all projections of a log through one connection.

    A rebuild runs the same statements on temporary tables of the same names.
    """

    def __init__(self, connection: sqlite3.Connection, projections: Sequence[Projection]) -> None:
        self._connection = connection
        self.projections = tuple(projections)
        self._columns = {name: sql for p in projections for name, sql in p.columns.items()}
        columns = "".join(f", {sql}" for sql in self._columns.values())
        self._fill = _FILL.format(columns=columns)
        if MISREADS_NUMBERS:
            connection.create_function("decimal_number", 1, _decimal_number, deterministic=True)
        self._create_batch()

    def fold(self) -> None:
        """Fold all new events in the open transaction; raise `sqlite3.Error` if that fails."""
        last, states = last_position(self._connection), read_states(self._connection)
        behind: defaultdict[int, list[Projection]] = defaultdict(list)
        for projection in self.projections:
            state = states[projection.name]
            if state.checkpoint < last and problem_of(projection, state) is None:
                behind[state.checkpoint].append(projection)
        for checkpoint, projections in behind.items():
            failed = self.advance(projections, checkpoint, last)
            for projection in projections:
                error = failed.get(projection.name)
                self._connection.execute(
                    "UPDATE projections SET checkpoint = ?, error = ? WHERE name = ?",
                    (last if error is None else checkpoint, error, projection.name),
                )

    def update(self, path: Path) -> None:
        """Fold projections that are missing or older in the file, and what others appended."""
        if self._outdated():
            with setup_lock(path):
                self._refold(self._outdated(), lambda _done, _last: None)
        if behind_the_log(self._connection, self.projections):
            with immediate(self._connection):
                self.fold()

    def _outdated(self) -> list[Projection]:
        """Return the projections whose tables must be folded again, from the first event.

        Someone may have raised a checkpoint, so that the next events would be left out.
        """
        # In this order, since other processes append and fold meanwhile.
        states, last = read_states(self._connection), last_position(self._connection)
        return [
            projection
            for projection in self.projections
            if (state := states[projection.name]).version < projection.version
            or (state.checkpoint > last and problem_of(projection, state) is None)
        ]

    def rebuild(self, path: Path, progress: Progress) -> None:
        """Fold all projections again, from the first event.

        Batches are folded into temporary tables, while other processes append. One transaction
        folds the last batch and replaces the tables. So readers see the old tables or the complete
        new ones, and a crash leaves nothing behind. A projection that fails keeps its old tables.
        Raises `ProjectionError` if the file has one in a newer version.
        """
        with setup_lock(path):
            states = read_states(self._connection)
            for projection in self.projections:
                state = states[projection.name]
                if state.version > projection.version:
                    raise ProjectionError(projection.name, problem_of(projection, state) or "")
            self._refold(self.projections, progress)

    def advance(
        self,
        projections: Sequence[Projection],
        after: int,
        until: int,
        progress: Progress = lambda _done, _last: None,
    ) -> dict[str, str]:
        """Fold the events after one position, up to and including another, in batches.

        Return the errors of the projections that failed, by name.
        """
        db = self._connection
        failed: dict[str, str] = {}
        while after < until:
            start, after = after, until
            if until - start > _PIECE:
                # Positions may have gaps, since another program can insert an event at any of them.
                (after,) = db.execute(
                    "SELECT max(seq) FROM"
                    " (SELECT seq FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?)",
                    (start, until, _PIECE),
                ).fetchone()
            db.execute("DELETE FROM batch")
            db.execute(self._fill, (start, after))
            types = {name for (name,) in db.execute("SELECT DISTINCT type FROM batch")}
            for projection in projections:
                if projection.name not in failed:
                    failed |= self._fold(projection, types)
            progress(after, until)
        return failed

    def _fold(self, projection: Projection, types: set[str]) -> dict[str, str]:
        """Fold the batch, which has events of some types; return the error by name, if it fails."""
        db = self._connection
        failed: dict[str, str] = {}
        db.execute("SAVEPOINT fold")
        try:
            for fold in projection.folds:
                if not fold.types.isdisjoint(types):
                    key = fold, tuple(self._columns)
                    if key not in _BUILT:
                        _BUILT[key] = self._build(fold)
                    db.execute(_BUILT[key])
        # Such as invalid JSON, or a key that exists already.
        except sqlite3.Error as error:
            if code_of(error) in _DISK_TROUBLE or not db.in_transaction:
                raise
            db.execute("ROLLBACK TO fold")
            failed[projection.name] = f"{type(error).__name__}: {error}"
        db.execute("RELEASE fold")
        return failed

    def _build(self, fold: Fold) -> str:
        types = ", ".join(f"'{name}'" for name in sorted(fold.types))
        new_events = _NEW_EVENTS.format(types=types)
        number = r"\1 ->> \2"
        if MISREADS_NUMBERS:
            number = rf"coalesce(decimal_number(\1 -> \2), {number})"
        sql = _REAL.sub(number, fold.sql)
        if found := _INTO.match(sql):
            insert, select, ending = found.groups("")
            described = self._connection.execute(f"{new_events}{select} LIMIT 0").description
            names = [quoted(name) for name, *_ in described]
            changes = ", ".join(f"{name} = excluded.{name}" for name in names)
            ending = ending.replace("UPDATE BY NAME", f"UPDATE SET {changes}")
            sql = f"{insert} ({', '.join(names)}) {select} {ending}"
        return new_events + sql

    def _create_batch(self) -> None:
        columns = "".join(f", {quoted(name)}" for name in self._columns)
        self._connection.execute(_BATCH.format(columns=columns))

    def _refold(self, projections: Sequence[Projection], progress: Progress) -> None:
        if not projections:
            return
        db = self._connection
        try:
            # The tables of a long history are large. Changing this drops all temporary tables.
            db.execute("PRAGMA temp_store = FILE")
            self._create_batch()
            for projection in projections:
                for sql in projection.tables.values():
                    db.execute(sql.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
            failed: dict[str, str] = {}
            end, last = 0, last_position(db)
            while last - end > _PIECE:
                left = [each for each in projections if each.name not in failed]
                failed |= self.advance(left, end, last, progress)
                end, last = last, last_position(db)
            with immediate(db):  # no other process appends
                last = last_position(db)
                left = [each for each in projections if each.name not in failed]
                failed |= self.advance(left, end, last, progress)
                for projection in projections:
                    self._replace(projection, last, failed.get(projection.name))
        finally:
            roll_back(db)
            db.execute("PRAGMA temp_store = MEMORY")
            self._create_batch()

    def _replace(self, projection: Projection, checkpoint: int, error: str | None) -> None:
        """Replace the tables and views of a projection by the temporary tables.

        If the projection failed (`error`), it keeps tables of the same version, if it has them.
        """
        db = self._connection
        if error is not None:
            kept = db.execute(
                "UPDATE projections SET error = ? WHERE name = ? AND version = ?",
                (error, projection.name, projection.version),
            )
            if kept.rowcount:
                return
        row = db.execute(
            "SELECT tables, views FROM projections WHERE name = ?", (projection.name,)
        ).fetchone()
        old_tables, old_views = map(names_in, row or ("[]", "[]"))
        for view in old_views | projection.views.keys():
            db.execute(f"DROP VIEW IF EXISTS main.{quoted(view)}")
        for table in old_tables | projection.tables.keys():
            db.execute(f"DROP TABLE IF EXISTS main.{quoted(table)}")
        for table, sql in projection.tables.items():
            db.execute(sql.replace("CREATE TABLE ", "CREATE TABLE main.", 1))
            db.execute(f"INSERT INTO main.{table} SELECT * FROM temp.{table}")  # noqa: S608
            db.execute(f"DROP TABLE temp.{table}")
        for kind, sql in projection.parts.values():
            if kind != "table":
                db.execute(sql)
        made = (json.dumps([*projection.tables]), json.dumps([*projection.views]))
        db.execute(
            "INSERT OR REPLACE INTO projections (name, version, checkpoint, error, tables, views)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (projection.name, projection.version, checkpoint, error, *made),
        )
