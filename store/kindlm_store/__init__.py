"""An append-only, hash-chained event store on SQLite.

Programs that only record do not load `erasing`, `merging`, `salvage` and `verification`: import
these modules by name.
"""

from kindlm_store.database import open_reader, unreadable_wal
from kindlm_store.locks import holder, is_held, stream_lock
from kindlm_store.log import EventLog
from kindlm_store.new_event import Append, HeadOf, NewEvent, Text, utc_now
from kindlm_store.projecting import Projection, behind_the_log, projection_errors
from kindlm_store.reading import Head, RecordedEvent
from kindlm_store.redaction import REDACTED, Redactor
from kindlm_store.schema_check import ForeignSchemaError, SchemaProblem, schema_problems
from kindlm_store.store_errors import (
    ConflictError,
    CorruptDatabaseError,
    EmptyFileError,
    LockHeldError,
    NewerDatabaseError,
    NotAnEventLogError,
    OpenError,
    ProjectionError,
    SealedError,
    StoreClosedError,
    StoreError,
    WriteFailedError,
)
from kindlm_store.writer import Ticket

__all__ = [
    "REDACTED",
    "Append",
    "ConflictError",
    "CorruptDatabaseError",
    "EmptyFileError",
    "EventLog",
    "ForeignSchemaError",
    "Head",
    "HeadOf",
    "LockHeldError",
    "NewEvent",
    "NewerDatabaseError",
    "NotAnEventLogError",
    "OpenError",
    "Projection",
    "ProjectionError",
    "RecordedEvent",
    "Redactor",
    "SchemaProblem",
    "SealedError",
    "StoreClosedError",
    "StoreError",
    "Text",
    "Ticket",
    "WriteFailedError",
    "behind_the_log",
    "holder",
    "is_held",
    "open_reader",
    "projection_errors",
    "schema_problems",
    "stream_lock",
    "unreadable_wal",
    "utc_now",
]
