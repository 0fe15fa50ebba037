"""The body of a request: received and unpacked in pieces, and bounded both ways.

Memory and disk are bounded, however a body is packed.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from kindlm.team.protocol import LONGEST_BODY, LONGEST_UNPACKED, ApiError

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

IN_MEMORY = 256 * 1024
"""Bytes of a temporary file up to which it needs no disk."""

_PIECE = 64 * 1024


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, error: ApiError, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.headers = headers or {}


class GoneError(Exception):
    """The client went away before all of its body was here."""


def invalid(message: str) -> RefusedError:
    """Return the refusal of a request that is not what it must be."""
    return RefusedError(ApiError(422, "validation_error", message))


def _too_large(limit: int, what: str) -> RefusedError:
    message = f"The body is larger than {limit:,} bytes{what}."
    return RefusedError(ApiError(413, "payload_too_large", message, {"limit": limit}))


async def receive_body(receive: Receive, headers: Mapping[bytes, bytes], file: Any) -> None:
    """Write a body to a file as it comes; not a byte more than there may be."""
    announced = headers.get(b"content-length", b"0")
    if int(announced) > LONGEST_BODY:
        raise _too_large(LONGEST_BODY, "")
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        piece = message.get("body", b"")
        size += len(piece)
        if size > LONGEST_BODY:
            raise _too_large(LONGEST_BODY, "")
        file.write(piece)
        more = message.get("more_body", False)
    file.seek(0)


def unpack(packed: Any, out: Any, encoding: str) -> int:
    """Unpack a body; return its size. What is read of it next is its beginning."""
    if encoding == "identity":
        shutil.copyfileobj(packed, out)
        size: int = out.tell()
        out.seek(0)
        return size
    inflate = zlib.decompressobj(wbits=31)
    size, piece = 0, packed.read(_PIECE)
    if not piece:
        return 0
    try:
        while piece and not inflate.eof:
            unpacked = inflate.decompress(piece, _PIECE)
            size += len(unpacked)
            if size > LONGEST_UNPACKED:
                raise _too_large(LONGEST_UNPACKED, " once it is unpacked")
            out.write(unpacked)
            piece = inflate.unconsumed_tail or packed.read(_PIECE)
    except zlib.error:
        raise invalid("The body is not gzip, or damaged.") from None
    if not inflate.eof:
        raise invalid("The gzip of the body ends early.")
    if inflate.unused_data or piece:
        raise invalid("Something follows the gzip of the body.")
    out.seek(0)
    return size
