"""Texts by reference: each is stored once, found by its digest, named by a salted hash.

The reference of a text gives nothing away about it once the row is emptied: without the salt,
nobody can try whether it was a certain text.

A row without its text says why. An erased one is empty and stays so. A withheld one has an empty
salt: its text never came here, and whoever has it may bring it.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from kindlm_store.bulk import insert_rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

_REF_TAG = b"kindlm_store:text:1\n"
"""Keeps the hash of a reference apart from every other use of SHA-256."""

_REF_BYTES = 24
_SALT_BYTES = 16
_REMEMBERED = 10_000
"""Digests kept in memory; a row weighs about 300 bytes."""

_ASKED_AT_ONCE = 500

WITHHELD = b""
"""The salt of a text that was never sent; no stored text has it."""


def digest_of(body: bytes) -> bytes:
    """What an existing row is found by."""
    return sha256(body).digest()


def ref_of(salt: bytes, body: bytes) -> str:
    """The reference of a text: 32 characters of base64url."""
    digest = sha256(b"".join((_REF_TAG, salt, body))).digest()
    return urlsafe_b64encode(digest[:_REF_BYTES]).decode()


class ContentWriter:
    """Stores texts through the write connection, each once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._refs: dict[bytes, str] = {}

    def forget(self) -> None:
        """Drop what is remembered: another connection may have erased texts since."""
        self._refs.clear()

    def store(self, bodies: Iterable[str]) -> dict[str, str]:
        """Store texts that are not there yet, inside the open transaction.

        Returns:
            The reference of each text.
        """
        encoded = {body: body.encode() for body in bodies}
        digests = {body: digest_of(raw) for body, raw in encoded.items()}
        self._recall([digest for digest in digests.values() if digest not in self._refs])
        new = []
        for body, digest in digests.items():
            if digest not in self._refs:
                salt = os.urandom(_SALT_BYTES)
                self._refs[digest] = ref = ref_of(salt, encoded[body])
                new.append((ref, salt, digest, body))
        if new:
            insert_rows(self._connection, "INSERT INTO contents (ref, salt, digest, body)", new)
        refs = {body: self._refs[digest] for body, digest in digests.items()}
        if len(self._refs) > _REMEMBERED:
            self._refs.clear()
        return refs

    def _recall(self, digests: list[bytes]) -> None:
        for start in range(0, len(digests), _ASKED_AT_ONCE):
            asked = digests[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(asked))
            self._refs.update(
                self._connection.execute(
                    f"SELECT digest, ref FROM contents WHERE digest IN ({marks})",  # noqa: S608
                    asked,
                )
            )
