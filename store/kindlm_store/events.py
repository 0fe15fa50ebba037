"""The values of an event log: what is appended, and what is read."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from json import loads
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kindlm_store.canonical import event_hash, hash_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kindlm_store.new_event import NewEvent


@dataclass(frozen=True, slots=True)
class Text:
    """A text inside the data of an event that a person or model wrote; stored by reference."""

    body: str


@dataclass(frozen=True, slots=True)
class HeadOf:
    """Stands in the data of an event for the head hash of a stream at that moment.

    Replaced by `sha256:<hex>` when the event is written; earlier appends of the same submit count.
    """

    stream: str


class _Clock:
    """Timestamps and random bits for ids; ids grow strictly within the process."""

    _time_ns = staticmethod(time.time_ns)  # of Python itself, whatever stands in for it in a test

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0
        self._prefix = (-1, "")
        # Not the module's own generator: programs seed that one to repeat themselves.
        self._random = Random()  # noqa: S311 - ids must be unique, not secret
        os.register_at_fork(after_in_child=self._random.seed)

    def stamp(self) -> tuple[bytes, str]:
        """The id of a new event, a UUID of version 7, and the time: UTC, ISO 8601, microseconds."""
        now = self._time_ns()
        second, fraction = divmod(now // 1_000, 1_000_000)
        known, prefix = self._prefix
        if second != known:
            prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._prefix = second, prefix
        with self._lock:
            # UUIDv7 keeps 12 bits below the millisecond: steps of 2**-12 ms.
            self._last = tick = max(now * 4096 // 1_000_000, self._last + 1)
            random = self._random.getrandbits(62)
        high = (tick >> 12 & 0xFFFF_FFFF_FFFF) << 16 | 0x7000 | (tick & 0xFFF)
        id_ = (high << 64 | 0x8000_0000_0000_0000 | random).to_bytes(16)
        return id_, f"{prefix}.{fraction:06}Z"


stamp = _Clock().stamp


def uuid7() -> UUID:
    """A UUID of version 7 (RFC 9562): ordered by time, strictly within a process."""
    return UUID(bytes=stamp()[0])


def utc_now() -> str:
    """The time now, UTC, ISO 8601, microseconds."""
    return stamp()[1]


_SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.", re.ASCII)
_FRACTION = re.compile(r"\d{6}(?:Z|\+00:00)", re.ASCII)


def is_timestamp(text: str) -> bool:
    """Whether a text is UTC in ISO 8601 with microseconds, so that texts sort as times do."""
    return _is_second(text[:20]) and _FRACTION.fullmatch(text, 20) is not None


@lru_cache(maxsize=64)
def _is_second(text: str) -> bool:
    return _SECOND.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Append:
    """Events to append to one stream.

    Attributes:
        stream: Name of the stream.
        events: At least one.
        expected_version: Version the stream must have before; None appends wherever it ends.
        seal: Whether the stream takes nothing more afterwards.
    """

    stream: str
    events: Sequence[NewEvent]
    expected_version: int | None = None
    seal: bool = False


class Head(NamedTuple):
    """Where a stream ends.

    Attributes:
        version: Number of events in the stream.
        hash: Hash of the last one, `sha256:<hex>`.
        sealed: Whether nothing can be appended any more.
    """

    version: int
    hash: str
    sealed: bool


class RecordedEvent(NamedTuple):
    """An event as it was recorded: its row, and what that says.

    Attributes:
        position: Order of arrival in this file; differs between files.
        raw_id: Identity across files, 16 bytes.
        stream: Name of the stream.
        version: Position in the stream, from 1.
        type: Event type.
        schema: Version of the form that `data` has.
        at: UTC, ISO 8601, microseconds.
        subject: What inside the stream the event is about.
        json: The payload in canonical JSON; an authored text is `{"$ref": "<ref>"}`.
        raw_hash: Tagged hash over this event as stored and all before it.
    """

    position: int
    raw_id: bytes
    stream: str
    version: int
    type: str
    schema: int
    at: str
    subject: str | None
    json: str
    raw_hash: bytes

    @property
    def id(self) -> UUID:
        """Its identity across files."""
        return UUID(bytes=self.raw_id)

    @property
    def data(self) -> dict[str, Any]:
        """The payload."""
        data: dict[str, Any] = loads(self.json)
        return data

    @property
    def hash(self) -> str:
        """The hash, `sha256:<hex>`."""
        return hash_text(self.raw_hash)

    def hash_after(self, head: bytes, *, seal: bool) -> bytes:
        """The hash that it must have behind the event of another hash.

        Args:
            head: Tagged hash of the event before it in its stream, or `GENESIS`.
            seal: Whether it seals its stream.

        Raises:
            UnicodeEncodeError: It is not UTF-8, data apart.
        """
        return event_hash(
            head, self.json.encode(errors="surrogateescape"), id=self.raw_id, stream=self.stream,
            version=self.version, type=self.type, schema=self.schema, at=self.at,
            subject=self.subject, seal=seal,
        )  # fmt: skip
