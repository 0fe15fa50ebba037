"""Errors of an event log, so that callers need not know those of `sqlite3`."""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """Root of all errors of this package."""


class OpenError(StoreError):
    """The file cannot be opened as an event log; `reason` says why, in words that follow "it"."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class NotAnEventLogError(OpenError):
    """The file is not an SQLite database, or belongs to another application."""


class EmptyFileError(NotAnEventLogError):
    """The file has no tables: the process that created it ended before it made them."""


class NewerDatabaseError(OpenError):
    """The file was written by a newer version of this package; it was not touched."""


class CorruptDatabaseError(OpenError):
    """SQLite finds the file damaged."""


class ConflictError(StoreError):
    """An append does not fit the current state of its stream."""


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
    """Another process holds the lock; `by` is the holder, in words, as far as known."""

    def __init__(self, name: str, by: str) -> None:
        super().__init__(f"{name} is locked by {by}")
        self.by = by
