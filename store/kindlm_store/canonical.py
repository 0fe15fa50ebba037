"""Canonical JSON and the hash chain. Contract: the exact bytes are described in store/README.md.

The hash of an event is SHA-256 over

    hash of the previous event of the stream, as stored (tag byte and 32 bytes)
    envelope of the event, in canonical JSON, UTF-8
    one newline
    data of the event, the stored text, UTF-8

The envelope of the event that seals its stream has the member `"seal":true`.
"""

from __future__ import annotations

import json
from hashlib import sha256
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHA256_TAG = b"\x01"
"""First byte of a stored hash: the algorithm. Another algorithm takes another byte."""

GENESIS = SHA256_TAG + bytes(32)
"""What stands for the hash before the first event of a stream."""


class CanonicalEncoder(json.JSONEncoder):
    """Writes a JSON value as text: members sorted by code point, no spaces, few escapes.

    Args:
        default: Returns a replacement for a value that JSON cannot hold, or raises TypeError.
    """

    def __init__(self, default: Callable[[object], object] | None = None) -> None:
        super().__init__(
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
            # A circular reference ends at Python's recursion limit.
            check_circular=False,
            default=default,
        )


def canonical_json(value: object) -> str:
    """A JSON value in canonical form."""
    return CanonicalEncoder().encode(value)


def event_hash(
    previous: bytes,
    data: bytes,
    *,
    id: bytes,  # noqa: A002 - the names of the members
    stream: str,
    version: int,
    type: str,  # noqa: A002
    schema: int,
    at: str,
    subject: str | None,
    seal: bool,
) -> bytes:
    """The tagged hash of an event, as stored.

    The envelope is put together by hand, since it is on the path of every event; a test holds it
    to `canonical_json`. `previous` is the tagged hash of the event before it in its stream, or
    `GENESIS`; `data` is the stored text; `seal` says that it seals its stream.
    """
    h = id.hex()
    sealing = '"seal":true,' if seal else ""
    about = "null" if subject is None else quoted(subject)
    envelope = (
        f'{{"at":{quoted(at)},"id":"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}",'
        f'"schema":{schema},{sealing}"stream":{quoted(stream)},"subject":{about},'
        f'"type":{quoted(type)},"version":{version}}}\n'
    )
    return SHA256_TAG + sha256(b"".join((previous, envelope.encode(), data))).digest()


def hash_text(stored: bytes) -> str:
    """A stored hash in its readable form, `sha256:<hex>`."""
    return f"sha256:{stored[1:].hex()}"


def stored_hash(text: str) -> bytes:
    """A stored hash from its readable form; ValueError if that is invalid."""
    return SHA256_TAG + bytes.fromhex(text.removeprefix("sha256:"))
