"""Errors of an event log, so that callers need not know those of `sqlite3`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kindlm_store.schema_check import SchemaProblem


class StoreError(Exception):
    """Root of all errors of this package."""


class OpenError(StoreError):
    """The file cannot be opened as an event log.

    Attributes:
        path: The file.
        reason: Why, in words for the user that follow "it".
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class NotAnEventLogError(OpenError):
    """The file is not an SQLite database, or belongs to another application."""


class NotSqliteError(NotAnEventLogError):
    """The file does not begin like an SQLite database: it is something else, or damaged."""


class EmptyFileError(NotAnEventLogError):
    """The file has no tables: the process that created it ended before it made them."""


class NewerDatabaseError(OpenError):
    """The file was written by a newer version of this package; it was not touched."""


class ForeignSchemaError(OpenError):
    """The schema has foreign or changed parts, or lacks some, so writing is not safe.

    Attributes:
        problems: The differences, at least one.
    """

    def __init__(self, path: Path, problems: Sequence[SchemaProblem]) -> None:
        kind, name, state, _ = problems[0]
        reason = {
            "foreign": f"has a foreign {kind} {name!r}",
            "changed": f"has a changed {kind} {name!r}",
            "missing": f"lacks the {kind} {name!r}",
        }[state]
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        super().__init__(path, f"{reason}{more}")
        self.problems = tuple(problems)


class CorruptDatabaseError(OpenError):
    """SQLite finds the file damaged."""


class ConflictError(StoreError):
    """An append does not fit the current state of its stream."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(f"{stream}: {reason}")
        self.stream = stream


class SealedError(ConflictError):
    """The stream is sealed and accepts no more events."""


class WriteFailedError(StoreError):
    """The file could not be written; this log writes nothing more."""


class StoreClosedError(StoreError):
    """The log was closed, or was opened before this process was forked."""


class ProjectionError(StoreError):
    """A projection cannot be folded or rebuilt."""

    def __init__(self, projection: str, reason: str) -> None:
        super().__init__(f"projection {projection}: {reason}")
        self.projection = projection


class LockHeldError(StoreError):
    """Another process holds the lock.

    Attributes:
        by: The holder, in words, as far as known.
    """

    def __init__(self, name: str, by: str) -> None:
        super().__init__(f"{name} is locked by {by}")
        self.by = by
