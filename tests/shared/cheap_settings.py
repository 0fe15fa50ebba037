"""What tests leave out of kindlm, since it takes long and shows nothing in most of them."""

from __future__ import annotations

import os
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import certifi


@contextmanager
def without_dask() -> Iterator[None]:
    """Let Datasette be loaded without the arrays of Dask, which its Pint loads where it can."""
    is_loaded = "dask.array" in sys.modules
    if not is_loaded:
        sys.modules["dask.array"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if not is_loaded:
            del sys.modules["dask.array"]


def wait_for_no_disk() -> None:
    """Let histories opened from here on skip what only a power cut needs: SQLite's fsyncs.

    They take a fifth of the time of most commands. Processes started anew still wait for the disk.
    """
    from kindlm_store import database

    database.SYNCHRONOUS = "OFF"


def copy_new_histories() -> None:
    """Let a new history be a copy of an empty one: to make its tables takes long.

    Processes started anew make them, and so do tests of the store with projections of their own.
    """
    from kindlm.projections import PROJECTIONS
    from kindlm_store import EventLog

    make: Any = EventLog.open
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kindlm.db"
        make(file, projections=PROJECTIONS).close()
        empty = file.read_bytes()

    def open_copy(
        _: type[EventLog], path: str | os.PathLike[str], *, projections: Any = (), **options: Any
    ) -> Any:
        if projections is PROJECTIONS:
            # What cannot be written is reported by the store.
            with suppress(OSError):
                _put(Path(path), empty)
        return make(path, projections=projections, **options)

    EventLog.open = classmethod(open_copy)  # type: ignore[method-assign, assignment]


def _put(path: Path, content: bytes) -> None:
    """Write a file if there is none, at once as a whole."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
        os.link(part, path)
    finally:
        part.unlink(missing_ok=True)


def trust_no_authority() -> None:
    """Let clients of HTTP leave the certificates of authorities unread: 25 ms for each client.

    No server of a test has one of these. Certificates that tests name are read.
    """
    read = ssl.SSLContext.load_verify_locations
    of_authorities = {certifi.where(), *ssl.get_default_verify_paths(), None}

    def load(
        self: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None
    ) -> None:
        if cadata is not None or not {cafile, capath} <= of_authorities:
            read(self, cafile, capath, cadata)

    ssl.SSLContext.load_verify_locations = load  # type: ignore[method-assign]
