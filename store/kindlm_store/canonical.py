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
from collections.abc import Callable
from hashlib import sha256
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kindlm_store.reading import RecordedEvent

SHA256_TAG = b"\x01"
"""First byte of a stored hash, which names the algorithm."""

GENESIS = SHA256_TAG + bytes(32)
"""The hash before the first event of a stream."""


def canonical_encoder(default: Callable[[object], object] | None = None) -> json.JSONEncoder:
    """Return the encoder of canonical JSON: members sorted by code point, no spaces, few escapes.

    `default` returns a replacement for a value that JSON cannot represent, or raises TypeError.
    """
    return json.JSONEncoder(
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        check_circular=False,  # Python's recursion limit ends a circular reference
        default=default,
    )


def canonical_json(value: object) -> str:
    """Return a JSON value in canonical form."""
    return canonical_encoder().encode(value)


def event_hash(previous: bytes, event: RecordedEvent, *, seal: bool) -> bytes:
    """Return the tagged hash that an event must have, as stored; its own hash is not read.

    `previous` is the tagged hash of the event before it in its stream, or `GENESIS`; `seal` is
    whether it seals its stream. For speed, the envelope is formatted here; a test compares it with
    `canonical_json`. Raises `UnicodeEncodeError` if a field other than the payload is not UTF-8.
    """
    h = event.raw_id.hex()
    sealing = '"seal":true,' if seal else ""
    about = "null" if event.subject is None else quoted(event.subject)
    envelope = (
        f'{{"at":{quoted(event.at)},"id":"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}",'
        f'"schema":{event.schema},{sealing}"stream":{quoted(event.stream)},"subject":{about},'
        f'"type":{quoted(event.type)},"version":{event.version}}}\n'
    )
    data = event.json.encode(errors="surrogateescape")
    return SHA256_TAG + sha256(b"".join((previous, envelope.encode(), data))).digest()


def hash_text(stored: bytes) -> str:
    """Return a stored hash in its readable form, `sha256:<hex>`."""
    return f"sha256:{stored[1:].hex()}"


def stored_hash(text: str) -> bytes:
    """Return the stored form of a readable hash; raise ValueError if it is invalid."""
    return SHA256_TAG + bytes.fromhex(text.removeprefix("sha256:"))
