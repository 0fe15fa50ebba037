"""An append-only, hash-chained event store on SQLite."""

from kindlm_store.copies import LogSource, Source, StoredEvent, StoredStream, StoredText
from kindlm_store.database import unreadable_wal
from kindlm_store.erasing import Erasable, Erased, Erasure, Erasures
from kindlm_store.errors import (
    ConflictError,
    CorruptDatabaseError,
    EmptyFileError,
    ForeignSchemaError,
    LockHeldError,
    NewerDatabaseError,
    NotAnEventLogError,
    NotSqliteError,
    OpenError,
    ProjectionError,
    SealedError,
    StoreClosedError,
    StoreError,
    WriteFailedError,
)
from kindlm_store.events import (
    Append,
    Head,
    HeadOf,
    RecordedEvent,
    Text,
    utc_now,
    uuid7,
)
from kindlm_store.locks import Holder, StreamLock, holder, is_held
from kindlm_store.log import EventLog, open_reader, verify_file
from kindlm_store.merge import Refusal, RefusedError, Taken
from kindlm_store.payload import NewEvent
from kindlm_store.project import (
    Fold,
    Projection,
    behind_the_log,
    changed_views,
    first_difference,
    on,
    projection_errors,
    recomputed,
)
from kindlm_store.redaction import REDACTED, Redactor
from kindlm_store.salvage import has_tables, is_damaged, salvage, salvage_file
from kindlm_store.verify import Problem, SchemaProblem, Verification, schema_problems
from kindlm_store.writer import Ticket

__all__ = [
    "REDACTED",
    "Append",
    "ConflictError",
    "CorruptDatabaseError",
    "EmptyFileError",
    "Erasable",
    "Erased",
    "Erasure",
    "Erasures",
    "EventLog",
    "Fold",
    "ForeignSchemaError",
    "Head",
    "HeadOf",
    "Holder",
    "LockHeldError",
    "LogSource",
    "NewEvent",
    "NewerDatabaseError",
    "NotAnEventLogError",
    "NotSqliteError",
    "OpenError",
    "Problem",
    "Projection",
    "ProjectionError",
    "RecordedEvent",
    "Redactor",
    "Refusal",
    "RefusedError",
    "SchemaProblem",
    "SealedError",
    "Source",
    "StoreClosedError",
    "StoreError",
    "StoredEvent",
    "StoredStream",
    "StoredText",
    "StreamLock",
    "Taken",
    "Text",
    "Ticket",
    "Verification",
    "WriteFailedError",
    "behind_the_log",
    "changed_views",
    "first_difference",
    "has_tables",
    "holder",
    "is_damaged",
    "is_held",
    "on",
    "open_reader",
    "projection_errors",
    "recomputed",
    "salvage",
    "salvage_file",
    "schema_problems",
    "unreadable_wal",
    "utc_now",
    "uuid7",
    "verify_file",
]
