"""Whether the write-ahead log beside a history holds writes that SQLite cannot take any more.

SQLite leaves out, without a word, what follows a frame of the log that is damaged: the history is
sound then, and lacks what was recorded last. The format of the log and of its index is SQLite's own
(https://sqlite.org/walformat.html).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct(">II I4x 8s8x")
"""Of the log: its magic number, the version, the bytes of a page, the salts."""

_MAGIC = {0x377F0682, 0x377F0683}
_USUAL_PAGE_BYTES = 4096

_FRAME = struct.Struct(">4xI 8s8x")
"""Of a frame: the pages of the file if a transaction ends with it, else 0; the salts."""

_INDEX = struct.Struct("=16xI 12x 8s")
"""Of the index: how many frames SQLite takes, the salts."""

_NO_SALTS = bytes(8)


def lost_writes(database: Path) -> int:
    """Return how many transactions of the log are lost to a history that is open now.

    What a process had not finished when it was killed does not count, nor what is left of before
    the log was begun anew. 0 if there is no log, or it cannot be read.
    """
    try:
        with Path(f"{database}-wal").open("rb") as log:
            magic, _, page_bytes, salts = _HEADER.unpack(log.read(_HEADER.size))
            frames = list(_frames(log, page_bytes if magic in _MAGIC else _USUAL_PAGE_BYTES))
        with Path(f"{database}-shm").open("rb") as index:
            taken, salts_taken = _INDEX.unpack(index.read(_INDEX.size))
    except (OSError, struct.error):
        return 0
    if taken == 0 and frames:
        if salts_taken not in (_NO_SALTS, salts):
            return 0  # a process is about to begin the log anew
        # Its beginning may be damaged, too.
        salts = Counter(salts for _, salts in frames).most_common(1)[0][0]
    return sum(ends and of == salts for ends, of in frames[taken:])


def _frames(log: BinaryIO, page_bytes: int) -> Iterator[tuple[bool, bytes]]:
    """Yield whether a transaction ends with a frame, and the salts of the log it is of."""
    while len(header := log.read(_FRAME.size)) == _FRAME.size:
        pages, salts = _FRAME.unpack(header)
        yield pages > 0, salts
        log.seek(page_bytes, 1)
