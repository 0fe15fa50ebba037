"""Exclusive advisory locks, one for each name, in a folder beside the database file.

The operating system releases a lock when its process ends, also by `kill -9`. The note in a lock
file says who holds it; the note has no effect on the lock.
"""

from __future__ import annotations

import fcntl
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from kindlm_store.new_event import utc_now
from kindlm_store.store_errors import LockHeldError, OpenError

_LEAST_PATIENCE_S = 0.1
"""How long to try for a lock at least: `is_held` of another process holds it for a moment."""

_PAUSE_S = 0.005
"""Seconds between tries."""

_NOTE_BYTES = 1_000


def _lock_file(database: str | os.PathLike[str], name: str) -> Path:
    folder = Path(f"{os.fspath(database)}.locks")
    return folder / f"{sha256(name.encode()).hexdigest()[:32]}.lock"


def _is_there(descriptor: int, file: Path) -> bool:
    """Return whether the open file still has that name: each holder removes it in the end."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _try(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        return False
    return True


@contextmanager
def stream_lock(
    path: str | os.PathLike[str], stream: str, *, patience_s: float = 0.0
) -> Iterator[None]:
    """Hold the lock of one stream of one database; wait for it up to `patience_s`.

    Raises `LockHeldError` if another process, or another part of this one, holds it, and
    `OpenError` if its file cannot be written.
    """
    file = _lock_file(path, stream)
    until = time.monotonic() + max(patience_s, _LEAST_PATIENCE_S)
    try:
        while (descriptor := _acquired(file)) is None:
            if time.monotonic() > until:
                raise LockHeldError(stream, holder(path, stream))
            time.sleep(_PAUSE_S)
    except OSError as error:
        reason = f"{file.parent.name}: {error.strerror or error}"
        raise OpenError(Path(path), f"cannot be locked ({reason})") from error
    try:
        yield
    finally:
        # On a disk that became read-only, the file stays; it locks nothing.
        with suppress(OSError):
            file.unlink()
        os.close(descriptor)


def _acquired(file: Path) -> int | None:
    """Return the open lock file; None if another holds it, or has just removed it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    with ExitStack() as unused:
        unused.callback(os.close, descriptor)
        if _try(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB) and _is_there(descriptor, file):
            note = f"process {os.getpid()} on {socket.gethostname()} since {utc_now()}"
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, note.encode(), 0)
            unused.pop_all()
            return descriptor
    return None


def is_held(path: str | os.PathLike[str], stream: str) -> bool:
    """Return whether any process holds the lock of the stream now, or another user may hold it."""
    try:
        descriptor = os.open(_lock_file(path, stream), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        return True
    try:
        return not _try(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def holder(path: str | os.PathLike[str], stream: str) -> str:
    """Return the holder of a stream's lock, in words, as far as known."""
    try:
        note = _lock_file(path, stream).read_bytes()[:_NOTE_BYTES].decode()
    except (OSError, ValueError):
        note = ""
    return note if note.startswith("process ") and note.isprintable() else "another process"


def setup_lock(database: Path) -> AbstractContextManager[None]:
    """Return the lock under which a file is created, migrated or refolded."""
    # Names of streams are not empty.
    return stream_lock(database, "", patience_s=math.inf)
