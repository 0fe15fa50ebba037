"""What is done with the bytes of requests and answers: unpacked for the record, and one change."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

MAX_RECORDED_BYTES = 10_000_000
"""A body with more is passed on, and cannot be read for the record."""

_MAX_HELD_BYTES = 100_000
"""No event that reports tokens is longer."""

_WBITS = {"gzip": 47, "deflate": 15}
_USAGE_ASKED = b',"stream_options":{"include_usage":true}}'
_EVENT_END = re.compile(rb"\r?\n\r?\n")


def unpacked(data: bytes, encoding: str) -> str | None:
    """Return a body as text; None if it cannot be read, whatever the reason."""
    encoding = encoding.strip().lower()
    try:
        if encoding in _WBITS:
            unpacking = zlib.decompressobj(_WBITS[encoding])
            data = unpacking.decompress(data, MAX_RECORDED_BYTES + 1)
        elif encoding not in ("", "identity"):
            return None  # providers are asked for none of these
        return data.decode() if len(data) <= MAX_RECORDED_BYTES else None
    except (zlib.error, UnicodeDecodeError):
        return None


def with_usage_asked(data: bytes, body: Any, encoding: str) -> bytes | None:
    """Return a request for a stream of completions that asks for its tokens, too.

    None if it says itself whether it does, or if it is no such request. Nothing else in it changes.
    """
    if encoding or not isinstance(body, dict) or body.get("stream") is not True:
        return None
    if "stream_options" in body:
        return None
    return data.rstrip()[:-1] + _USAGE_ASKED


class WithoutUsage:
    """Takes the event that reports the tokens out of a stream of events, as its bytes come."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def pass_on(self, chunk: bytes) -> bytes:
        """Return what is to be passed on by now: whole events, and what is too long to hold."""
        whole, start = bytearray(), 0
        # What ends an event may have begun before.
        searched = max(len(self._rest) - 3, 0)
        self._rest += chunk
        for end in _EVENT_END.finditer(self._rest, searched):
            event = self._rest[start : end.end()]
            start = end.end()
            if not _only_reports_usage(event):
                whole += event
        if len(self._rest) - start > _MAX_HELD_BYTES:
            whole += self._rest[start:]
            start = len(self._rest)
        del self._rest[:start]
        return bytes(whole)

    def rest(self) -> bytes:
        """Return what is left at the end of the stream."""
        return b"" if _only_reports_usage(self._rest) else bytes(self._rest)


def _only_reports_usage(event: bytes | bytearray) -> bool:
    if b'"usage"' not in event or not event.startswith(b"data:"):
        return False
    try:
        chunk = json.loads(event[5:])
    except (ValueError, RecursionError):
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and bool(chunk.get("usage"))
