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
        default: Gives what stands for a value that JSON has no form for, or raises TypeError.
    """

    def __init__(self, default: Callable[[object], object] | None = None) -> None:
        super().__init__(
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
            # A circle ends at Python's recursion limit.
            check_circular=False,
            default=default,
        )


def canonical_json(value: object) -> str:
    """A JSON value in canonical form."""
    return CanonicalEncoder().encode(value)


def envelope(
    *,
    id: str,  # noqa: A002 - the names of the members
    stream: str,
    version: int,
    type: str,  # noqa: A002
    schema: int,
    at: str,
    subject: str | None,
    seal: bool,
) -> str:
    """All of an event but data and hash, in canonical JSON.

    Built by hand, since it is on the path of every event; a test holds it to `canonical_json`.
    """
    sealing = '"seal":true,' if seal else ""
    about = "null" if subject is None else quoted(subject)
    return (
        f'{{"at":{quoted(at)},"id":"{id}","schema":{schema},{sealing}"stream":{quoted(stream)},'
        f'"subject":{about},"type":{quoted(type)},"version":{version}}}'
    )


def event_hash(previous: bytes, envelope: str, data: bytes) -> bytes:
    """The tagged hash of an event, as stored.

    Args:
        previous: Tagged hash of the event before it in its stream, or `GENESIS`.
        envelope: What `envelope` makes of the event.
        data: The stored data text, UTF-8.
    """
    return SHA256_TAG + sha256(b"".join((previous, envelope.encode(), b"\n", data))).digest()


def hash_text(stored: bytes) -> str:
    """A stored hash in its readable form, `sha256:<hex>`."""
    return f"sha256:{stored[1:].hex()}"


def uuid_text(stored: bytes) -> str:
    """A stored id (16 bytes) in the readable form of a UUID."""
    text = stored.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
