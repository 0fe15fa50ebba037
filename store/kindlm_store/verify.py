"""Checks a log against its own hashes.

Proves that no stored event or text was changed since it was written, and that every stream ends
where it says it ends; with heads that were noted elsewhere, also that nothing was cut off a stream
or written anew. It cannot prove that a whole file was not replaced by another consistent one.

What is stored is taken as it is, type by type and byte by byte: a text column that holds a blob
of the same bytes is a change too.

Also holds the tables, indexes, triggers and views of a file to those that this code makes. A
trigger that somebody else has put on a table changes what is folded into it, and so does a table
with a computed column in the place of ours. So nothing is written into such a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kindlm_migrations.statements import EVENT_LOG
from kindlm_store.append import WITHHELD, digest_of, ref_of
from kindlm_store.canonical import GENESIS, event_hash, hash_text
from kindlm_store.erasing import erased_by_log
from kindlm_store.errors import ForeignSchemaError
from kindlm_store.project import SHADOW
from kindlm_store.reading import decode

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kindlm_store.erasing import Erasures
    from kindlm_store.events import RecordedEvent
    from kindlm_store.project import Projection


Claims = Mapping[str, Callable[["RecordedEvent"], Mapping[str, str]]]
"""Event type → the heads, by stream, that an event of this type noted."""

_UUID_BYTES = 16
_REFS_AT_ONCE = 10_000
_ASKED_AT_ONCE = 500

_CONTENTS = "SELECT ref, salt, digest, body FROM contents"

# Inside a string of JSON a quotation mark is escaped: this is found as a member name only.
_REF = re.compile(rb'"\$ref":"([^"\\]*)"')


class Problem(NamedTuple):
    """Something that is not as it was written.

    Attributes:
        stream: The stream it is in; None for texts and what belongs to no stream.
        version: The event it is at; None if it is no single one.
        what: What is wrong.
    """

    stream: str | None
    version: int | None
    what: str


@dataclass(slots=True)
class Verification:
    """What a check found.

    Attributes:
        streams: Number of streams that were checked.
        events: Number of events that were checked.
        texts: Number of texts that were checked.
        erased: Number of texts that were erased.
        withheld: Number of texts that never came here.
        heads: Number of noted heads that were compared.
        problems: What is wrong; empty if nothing is.
    """

    streams: int = 0
    events: int = 0
    texts: int = 0
    erased: int = 0
    withheld: int = 0
    heads: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Expected(NamedTuple):
    """What a log is held to besides its own hashes.

    Attributes:
        heads: Stream → hash, `sha256:<hex>`, that one of its events must have: what was noted as
            its head at some time.
        claims: Event type → heads that an event of this type noted.
        erasures: Event type → texts that an event of this type erased; None: any may be gone.
    """

    heads: Mapping[str, str]
    claims: Claims
    erasures: Erasures | None


class _StoredText(bytes):
    """The bytes of a TEXT column, to tell it from a BLOB."""

    __slots__ = ()


_COLUMN_TYPES: dict[str, tuple[type, ...]] = {
    "id": (bytes,),
    "version": (int,),
    "type": (int,),
    "schema": (int,),
    "at": (_StoredText,),
    "subject": (_StoredText, type(None)),
    "data": (_StoredText,),
    "hash": (bytes,),
}


@dataclass(slots=True)
class _Stream:
    """A stream on its way: its row as stored, and how far its events were followed."""

    name: str
    stored_version: Any
    stored_head: Any
    sealed: Any
    unmet: set[str]
    version: int = 0
    head: bytes = GENESIS


def verify(
    connection: sqlite3.Connection,
    stream: str | None,
    expected: Expected,
) -> Verification:
    """Check one stream with the texts it refers to, or the whole file.

    Args:
        connection: Of its own, to read with; its text factory is changed.
        stream: Name of the stream; None checks all.
        expected: What it is held to besides its hashes.
    """
    connection.row_factory = None
    connection.text_factory = _StoredText
    connection.execute("BEGIN")
    try:
        check = _Check(connection, stream)
        check.note(expected.heads)
        check.note_claims(expected.claims)
        found = check.run()
        connection.text_factory = str
        if expected.erasures is not None:
            check.compare_erased(expected.erasures)
        return found
    finally:
        connection.execute("ROLLBACK")


class _Check:
    """One check, on one snapshot of the file.

    Rows are read from the tables themselves, never from an index that could still have what a row
    had once.
    """

    def __init__(self, connection: sqlite3.Connection, only: str | None) -> None:
        self._connection = connection
        self._only = only
        self._result = Verification()
        self._types: dict[Any, Any] = dict(
            connection.execute("SELECT id, name FROM event_types NOT INDEXED")
        )
        self._heads: dict[str, set[str]] = {}
        self._refs: dict[bytes, tuple[str, int]] = {}
        self._empty: set[str] = set()

    def note(self, heads: Mapping[str, str]) -> None:
        """Expect these hashes in these streams."""
        for stream, head in heads.items():
            if self._only in (None, stream):
                self._heads.setdefault(stream, set()).add(head)

    def note_claims(self, claims: Claims) -> None:
        """Expect what events noted as heads of streams."""
        numbers = {number: _shown(name) for number, name in self._types.items()}
        for number, name in numbers.items():
            if name not in claims:
                continue
            for row in self._connection.execute(
                "SELECT events.seq, events.id, streams.name, events.version, ?, events.schema,"
                " events.at, events.subject, events.data, events.hash FROM events"
                " JOIN streams ON streams.id = events.stream WHERE events.type = ?",
                (name, number),
            ):
                decoded = (v.decode() if type(v) is _StoredText else v for v in row)
                try:
                    self.note(claims[name](decode(decoded)))
                # The event was tampered with, in whatever way; it has a problem of its own too.
                except Exception as error:  # noqa: BLE001
                    what = f"what the event notes cannot be read ({type(error).__name__})"
                    self._problem(_shown(row[2]), row[3], what)

    def run(self) -> Verification:
        """Check everything; a second call would count twice."""
        streams = self._streams()
        for seq, number, *columns in self._event_rows():
            stream = streams.get(number)
            if stream is not None:
                self._check_event(stream, columns)
            elif self._only is None:
                self._problem(None, None, f"the event at position {seq} belongs to no stream")
            if len(self._refs) > _REFS_AT_ONCE:
                self._check_refs()
        self._check_refs()
        for stream in streams.values():
            self._check_end(stream)
        expected = {*self._heads} if self._only is None else {self._only}
        for name in sorted(expected - {stream.name for stream in streams.values()}):
            self._problem(name, None, "there is no such stream")
        if self._only is None:
            for row in self._connection.execute(f"{_CONTENTS} NOT INDEXED"):
                self._check_text(*row)
        return self._result

    def compare_erased(self, erasures: Erasures) -> None:
        """Look for texts that are gone although no event says that they were erased."""
        try:
            gone = erased_by_log(self._connection, erasures, self._empty)
        # An event was tampered with, in whatever way; it has a problem of its own.
        except Exception as error:  # noqa: BLE001
            what = f"what was erased cannot be read from the events ({type(error).__name__})"
            self._problem(None, None, what)
            return
        for ref in sorted(self._empty - gone):
            self._problem(None, None, f"text {ref} is gone, and no event says that it was erased")

    def _problem(self, stream: str | None, version: object, what: str) -> None:
        at = version if isinstance(version, int) else None
        self._result.problems.append(Problem(stream, at, what))

    def _streams(self) -> dict[Any, _Stream]:
        streams = {}
        for number, name, version, head, sealed in self._connection.execute(
            "SELECT id, name, version, head, sealed FROM streams NOT INDEXED"
        ):
            shown = _shown(name)
            if self._only in (None, shown):
                if type(name) is not _StoredText:
                    self._problem(shown, None, "the name of the stream is not a text")
                streams[number] = _Stream(
                    shown, version, head, sealed, {*self._heads.get(shown, ())}
                )
        self._result.streams = len(streams)
        self._result.heads = sum(len(stream.unmet) for stream in streams.values())
        return streams

    def _event_rows(self) -> Iterator[tuple[Any, ...]]:
        columns = "seq, stream, id, version, type, schema, at, subject, data, hash"
        if self._only is None:
            return self._connection.execute(
                f"SELECT {columns} FROM events NOT INDEXED ORDER BY seq"  # noqa: S608
            )
        return self._connection.execute(
            f"SELECT {columns} FROM events NOT INDEXED WHERE seq IN"  # noqa: S608
            " (SELECT seq FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?))"
            " ORDER BY seq",
            (self._only,),
        )

    def _check_event(self, stream: _Stream, columns: list[Any]) -> None:
        stream.version += 1
        self._result.events += 1
        stored = columns[-1]
        expected = self._expected_hash(stream, columns)
        if isinstance(expected, str):
            self._problem(stream.name, stream.version, expected)
        elif expected != stored:
            self._problem(stream.name, stream.version, "the event does not match its hash")
        # On from what is stored, so that one changed event is one problem.
        if type(stored) is bytes:
            stream.head = stored
            stream.unmet.discard(hash_text(stored))

    def _expected_hash(self, stream: _Stream, columns: list[Any]) -> bytes | str:
        """The hash an event must have, or why it can have none."""
        wrong = [
            name
            for (name, kinds), value in zip(_COLUMN_TYPES.items(), columns, strict=True)
            if type(value) not in kinds
        ]
        if wrong:
            return f"not in the stored form: {', '.join(wrong)}"
        id_, version, type_number, schema, at, subject, data, _ = columns
        type_name = self._types.get(type_number)
        if version != stream.version:
            return f"the version is {version}"
        if len(id_) != _UUID_BYTES or type(type_name) is not _StoredText:
            return "the id or the type is not in the stored form"
        try:
            expected = event_hash(
                stream.head,
                data,
                id=id_,
                stream=stream.name,
                version=version,
                type=type_name.decode(),
                schema=schema,
                at=at.decode(),
                subject=None if subject is None else subject.decode(),
                seal=stream.sealed == 1 and version == stream.stored_version,
            )
        except UnicodeDecodeError:
            return "not UTF-8"
        for ref in _REF.findall(data):
            self._refs.setdefault(ref, (stream.name, version))
        return expected

    def _check_end(self, stream: _Stream) -> None:
        end = (stream.version, stream.head)
        if not stream.version or end != (stream.stored_version, stream.stored_head):
            self._problem(stream.name, None, "the stream does not end where its record says")
        if type(stream.stored_head) is not bytes or stream.sealed not in (0, 1):
            self._problem(stream.name, None, "the record of the stream is not in the stored form")
        for head in sorted(stream.unmet):
            self._problem(stream.name, None, f"no event has the hash that was noted: {head}")

    def _check_refs(self) -> None:
        """Look for the texts that events refer to; check them, if no one else will."""
        refs = list(self._refs)
        for start in range(0, len(refs), _ASKED_AT_ONCE):
            asked = [_shown(ref) for ref in refs[start : start + _ASKED_AT_ONCE]]
            marks = ",".join("?" * len(asked))
            for row in self._connection.execute(f"{_CONTENTS} WHERE ref IN ({marks})", asked):
                self._refs.pop(row[0], None)
                if self._only is not None:
                    self._check_text(*row)
        for ref, (stream, version) in self._refs.items():
            self._problem(stream, version, f"text {_shown(ref)} is missing")
        self._refs.clear()

    def _check_text(self, ref: Any, salt: Any, digest: Any, body: Any) -> None:
        kinds = (type(ref), type(salt), type(digest), type(body))
        if type(ref) is _StoredText and salt is digest is body is None:
            self._result.erased += 1
            self._empty.add(_shown(ref))
        elif type(ref) is _StoredText and salt == WITHHELD and digest is body is None:
            self._result.withheld += 1
        elif kinds != (_StoredText, bytes, bytes, _StoredText):
            self._problem(None, None, f"text {_shown(ref)}: not in the stored form")
        else:
            self._result.texts += 1
            if ref_of(salt, body).encode() != ref or digest_of(body) != digest:
                self._problem(None, None, f"text {_shown(ref)} does not match its reference")


def _shown(raw: object) -> str:
    """A stored name for a message, whatever it is."""
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else repr(raw)


_NAMED = re.compile(r'CREATE (TABLE|INDEX|TRIGGER|VIEW) "?(\w+)')
_MIGRATIONS = "_sqlite_migrations"
"""The table in which sqlite-utils notes migrations, with an index that it makes itself."""


class SchemaProblem(NamedTuple):
    """Something in the schema of a file that is not as this code makes it.

    Attributes:
        kind: What it is.
        name: Its name.
        state: Not of this code; of this code, but other than it is made; or not there.
        projection: The projection that it belongs to: it can be made anew. None for all others.
    """

    kind: str
    name: str
    state: Literal["foreign", "changed", "missing"]
    projection: str | None


class _Made(NamedTuple):
    """What is made: of which kind, by which statement, of what."""

    kind: str
    sql: str
    projection: str | None


class SchemaGuard:
    """Refuses to write into a file whose schema is not as this code makes it.

    Args:
        path: The file, for the error.
        projections: The projections of this code.
        mend: Whether what belongs to projections may be changed: it is made anew.
    """

    def __init__(self, path: Path, projections: Sequence[Projection], *, mend: bool) -> None:
        self._path = path
        self._projections = tuple(projections)
        self._mend = mend
        self._seen: int | None = None

    def check(self, connection: sqlite3.Connection) -> None:
        """Look at the schema, unless it is the one that was looked at last.

        Raises:
            ForeignSchemaError: Something in it is foreign or changed.
        """
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        if version == self._seen:
            return
        problems = [
            problem
            for problem in schema_problems(connection, self._projections)
            if problem.state != "missing"
            # A table by itself changes nothing of ours.
            and (problem.kind, problem.state) != ("table", "foreign")
            and not (self._mend and problem.projection)
        ]
        if problems:
            raise ForeignSchemaError(self._path, problems)
        self._seen = version


def schema_problems(
    connection: sqlite3.Connection, projections: Sequence[Projection]
) -> list[SchemaProblem]:
    """Return what of the schema is not as this code makes it.

    Of a projection in another version than this code has, only the names are known.
    """
    # One statement each, so that nobody can swap tables in between without being noticed.
    found = {
        name: (kind, table, sql.strip())
        for kind, name, table, sql in connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        )
    }
    versions: dict[str, int] = {}
    others: set[str] = {_MIGRATIONS}
    known = {projection.name: projection.version for projection in projections}
    for name, version, *lists in connection.execute(
        "SELECT name, version, tables, views FROM projections"
    ):
        versions[name] = version
        if known.get(name) != version:
            for names in lists:
                with suppress(ValueError, TypeError):
                    others.update(json.loads(names))
    made = _made([p for p in projections if versions.get(p.name) == p.version])
    problems = []
    for name, one in made.items():
        if name not in found:
            problems.append(SchemaProblem(one.kind, name, "missing", one.projection))
        elif (found[name][0], found[name][2]) != (one.kind, one.sql):
            problems.append(SchemaProblem(found[name][0], name, "changed", one.projection))
    for name, (kind, table, _) in found.items():
        is_known = name in made or {
            # Of a table in another version, also one that a killed rebuild of it has left.
            "index": table.removesuffix(SHADOW) in others,
            "view": name in others,
            "table": name.removesuffix(SHADOW) in others or name.startswith("sqlite_"),
        }.get(kind)
        if not is_known:
            problems.append(SchemaProblem(kind, name, "foreign", None))
    return problems


def _made(projections: Sequence[Projection]) -> dict[str, _Made]:
    made = {}
    for statement in EVENT_LOG:
        match = _NAMED.match(statement.strip())
        assert match is not None
        made[match[2]] = _Made(match[1].lower(), statement.strip(), None)
    for projection in projections:
        for kind, statements in (
            ("table", projection.tables),
            ("index", projection.indexes),
            ("view", projection.create_views()),
        ):
            for name, sql in statements.items():
                made[name] = _Made(kind, sql.strip(), projection.name)
    return made
