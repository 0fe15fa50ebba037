"""New events to append, encoded in the form in which they are stored.

An event encodes its data when it is made, so later changes by the caller are not stored. Only data
that SQLite cannot store as it is gets copied and cleaned first. `Text` and `HeadOf` leave gaps in
the JSON text, which the writer fills.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime
from functools import lru_cache
from itertools import chain, zip_longest
from random import Random
from threading import Lock
from typing import Any
from uuid import UUID

from kindlm_store.canonical import canonical_encoder

MAX_DEPTH = 128
"""Levels of nesting that data may have; SQLite's JSON functions and Python's parser allow more."""

_MAX_BITS = 14_000
"""Bits of the largest integer: Python refuses to parse more than 4,300 digits."""

_MARK = secrets.token_hex(16)
"""Marks a gap while data is encoded; random, so that data cannot forge it."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text by a person or a model, in the data of an event; stored by reference."""

    body: str


@dataclass(frozen=True, slots=True)
class HeadOf:
    """Stands in the data of an event for the hash of the last event of a stream.

    The writer puts `sha256:<hex>` in its place; earlier appends of the same submit count.
    """

    stream: str


class _Clock:
    """Makes timestamps and ids; ids grow strictly within the process."""

    _time_ns = staticmethod(time.time_ns)  # the real clock, even where a test replaces it

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0
        # Programs seed the global generator for reproducibility.
        self._random = Random()  # noqa: S311 - ids must be unique, not secret
        os.register_at_fork(after_in_child=self._random.seed)

    def stamp(self) -> tuple[bytes, str]:
        """Return the id of a new event, a UUID of version 7 (RFC 9562), and the time (UTC)."""
        now = self._time_ns()
        second, fraction = divmod(now // 1_000, 1_000_000)
        with self._lock:
            # UUIDv7 keeps 12 bits below the millisecond: steps of 2**-12 ms.
            self._last = tick = max(now * 4096 // 1_000_000, self._last + 1)
            random = self._random.getrandbits(62)
        high = (tick >> 12 & 0xFFFF_FFFF_FFFF) << 16 | 0x7000 | (tick & 0xFFF)
        id_ = (high << 64 | 0x8000_0000_0000_0000 | random).to_bytes(16)
        return id_, f"{_shown(second)}.{fraction:06}Z"


@lru_cache(maxsize=1)
def _shown(second: int) -> str:
    """Return a second since 1970 as ISO 8601; most events share theirs with the one before."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


stamp = _Clock().stamp


def utc_now() -> str:
    """Return the time now, UTC, ISO 8601, microseconds."""
    return stamp()[1]


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|\+00:00)", re.ASCII)


def is_timestamp(text: str) -> bool:
    """Return whether a text is UTC in ISO 8601 with microseconds, so that texts sort by time.

    The years 1 and 9999 are refused, so that every time can be shown in any time zone.
    """
    try:
        year = datetime.fromisoformat(text).year
    except ValueError:
        return False
    return _TIME.fullmatch(text) is not None and MINYEAR < year < MAXYEAR


class NewEvent:
    """An event to append; the store's README describes its fields.

    `data` is a JSON object, which may contain `Text` and `HeadOf` anywhere. `at` is None for now.
    Raises `ValueError`, with the part, if it cannot be stored.
    """

    __slots__ = ("at", "gaps", "parts", "raw_id", "schema", "subject", "texts", "type")

    parts: list[str]
    """The data in canonical JSON, split at the gaps."""
    gaps: list[Text | HeadOf]
    """The values of the gaps, in order."""
    texts: list[str]
    """The bodies of the texts among the gaps."""

    def __init__(
        self,
        type: str,  # noqa: A002 - the name of the field
        data: Mapping[str, Any],
        schema: int = 1,
        subject: str | None = None,
        at: str | None = None,
    ) -> None:
        self.raw_id, self.at = stamp()
        if at is not None:
            if not is_timestamp(at):
                raise ValueError(f"{at!r} is not a time in UTC, ISO 8601, with microseconds")
            self.at = at
        if schema < 1:
            raise ValueError(f"schema {schema} of {type}: must be 1 or more")
        self.type, self.schema, self.subject = require_name("type", type), schema, subject
        if subject is not None:
            require_name("subject", subject)
        self.gaps, self.texts = _encoder.gaps, _encoder.texts = [], []
        try:
            encoded = _encoder.encode(data)
            together = "".join((encoded, *self.texts))
            if not together.isascii():
                # Raises for a lone surrogate.
                together.encode()
            is_fit = (
                encoded[0] == "{"
                and "\\u0000" not in encoded
                and '"$ref":' not in encoded
                and encoded.count("[") + encoded.count("{") < MAX_DEPTH
                and "\0" not in together
            )
        except (TypeError, ValueError, RecursionError):
            is_fit = False
        if not is_fit:
            self.gaps, self.texts = _encoder.gaps, _encoder.texts = [], []
            encoded = _encoder.encode(cleaned(data, scrub, ()))
        self.parts = encoded.split(f'"{_MARK}"')

    @property
    def id(self) -> UUID:
        """The identity of the event in all files."""
        return UUID(bytes=self.raw_id)

    @property
    def data(self) -> dict[str, Any]:
        """The data as given, with `Text` and `HeadOf`."""
        text = self.fill(f'{{"{_MARK}":{number}}}' for number in range(len(self.gaps)))

        def original(members: dict[str, Any]) -> Any:
            return self.gaps[members[_MARK]] if _MARK in members else members

        data: dict[str, Any] = json.loads(text, object_hook=original)
        return data

    def fill(self, values: Iterable[str]) -> str:
        """Return the data in canonical JSON, with JSON values in its gaps."""
        return "".join(chain.from_iterable(zip_longest(self.parts, values, fillvalue="")))

    def with_data(self, data: Mapping[str, Any]) -> NewEvent:
        """Return the same event with other data."""
        event = NewEvent(self.type, data, self.schema, self.subject, self.at)
        event.raw_id = self.raw_id
        return event


@dataclass(frozen=True, slots=True)
class Append:
    """One or more events to append to one stream.

    `expected_version` is that of the stream before them, None for any. `seal` seals the stream
    afterwards, so that it accepts no more events.
    """

    stream: str
    events: Sequence[NewEvent]
    expected_version: int | None = None
    seal: bool = False


def redacted(
    events: Sequence[NewEvent], redact: Callable[[str], str], keep: Collection[str] = ()
) -> Sequence[NewEvent]:
    """Return events without the secrets that `redact` removes from a text; `keep` as in `open`.

    `redact` gets all strings of all events joined. Only if it changes them, it gets those of each
    event, and then each string and `Text` by itself. Strings that may contain a secret in pieces,
    since they have escapes or events of a stream, always go by themselves.
    """
    pieces: list[str] = []
    # Texts whose lines or strings may be pieces of a secret.
    alone: list[str] = []
    may_spell = False
    for event in events:
        pieces += event.parts
        written = "".join(event.parts)
        may_spell = may_spell or "\\" in written or "data:" in written
        for body in event.texts:
            (alone if '"' in body or "\n" in body or "\r" in body else pieces).append(body)
    # A secret that was cut is found before a quotation mark, and a new line ends all strings.
    # Strings in single quotation marks are not joined.
    alone.append("'\n".join(pieces).replace('"', "'"))
    if not may_spell and list(map(redact, alone)) == alone:
        return events
    if len(events) > 1:
        return [each for event in events for each in redacted([event], redact, keep)]
    (event,) = events
    return [event.with_data(cleaned(event.data, lambda text: scrub(redact(text)), keep))]


def scrub(text: str) -> str:
    """Replace lone surrogates and NUL, which UTF-8 or SQLite cannot store, by U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@lru_cache(maxsize=4_096)
def require_name(what: str, name: object) -> str:
    """Return the name of a stream, a type or a subject (`what`); raise `ValueError` for no name."""
    if not isinstance(name, str) or not name or scrub(name) != name:
        message = f"{what} {name!r}: must be a text, not empty, without NUL or lone surrogates"
        raise ValueError(message)
    return name


class _Encoder(threading.local):
    """Encodes the data of one event at a time in each thread, and collects its gaps."""

    gaps: list[Text | HeadOf]
    texts: list[str]

    def __init__(self) -> None:
        self.encode = canonical_encoder(self._stand_in).encode

    def _stand_in(self, value: object) -> object:
        if isinstance(value, Text):
            self.texts.append(value.body)
        elif isinstance(value, Mapping):
            return dict(value)
        elif not isinstance(value, HeadOf):
            raise TypeError
        self.gaps.append(value)
        return _MARK


_encoder = _Encoder()


def cleaned(
    value: object,
    clean: Callable[[str], str],
    keep: Collection[str],
    path: str = "data",
    depth: int = MAX_DEPTH,
) -> Any:
    """Return a copy of data, or of the part at a path, with `clean` applied to every string.

    Names and strings in `keep` stay, but no `Text` does. `depth` is the number of levels that the
    part may have. Raises `ValueError`, with the path, if a part cannot be stored.
    """
    if not depth:
        reason = f"is nested deeper than {MAX_DEPTH} levels"
    elif depth == MAX_DEPTH and not isinstance(value, Mapping):
        reason = f"is a {type(value).__name__}, not a mapping"
    elif isinstance(value, str):
        return value if value in keep else clean(str.__str__(value))
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        reason = "is an integer of more than 4,000 digits"
    elif isinstance(value, float) and not math.isfinite(value):
        reason = f"is {value}, which JSON cannot represent"
    elif value is None or isinstance(value, int | float | HeadOf):
        return value
    elif isinstance(value, Text):
        return Text(clean(value.body))
    elif isinstance(value, list | tuple):
        items = enumerate(value)
        return [cleaned(item, clean, keep, f"{path}[{index}]", depth - 1) for index, item in items]
    elif isinstance(value, Mapping):
        result: dict[str, Any] = {}
        for name, member in value.items():
            key = unused = name if name in keep else _cleaned_name(name, clean, path)
            copies = 1
            while unused in result:  # cleaning made two names equal
                copies += 1
                unused = f"{key} ({copies})"
            result[unused] = cleaned(member, clean, keep, f"{path}.{name}", depth - 1)
        return result
    else:
        reason = f"is a {type(value).__name__}, which JSON cannot represent"
    raise ValueError(f"{path} {reason}")


def _cleaned_name(name: object, clean: Callable[[str], str], path: str) -> str:
    if not isinstance(name, str):
        reason = f"is named by a {type(name).__name__}, not a string"
    elif name == "$ref":
        reason = "is a reserved name: an authored document goes into a Text"
    else:
        return clean(str.__str__(name))
    raise ValueError(f"{path}.{name} {reason}")
