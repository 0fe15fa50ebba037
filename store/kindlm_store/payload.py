"""A new event, in the form in which it is stored.

The data of an event is encoded when the event is made, so that nothing the caller changes later is
stored. Most data is encoded once, by the C encoder, and only looked over; data with something that
a database cannot hold is copied string by string first. `Text` and `HeadOf` leave gaps in the JSON
text, since only the writer knows what stands there.

An event that comes from another file is held to the same form before it is merged: the log only
grows.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import threading
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kindlm_store.canonical import CanonicalEncoder
from kindlm_store.events import HeadOf, Text, is_timestamp, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kindlm_store.reading import StoredEvent


MAX_DEPTH = 128
"""Levels of nesting that data may have; SQLite's JSON functions and Python's parser bear more."""

_MAX_BITS = 14_000
"""Bits of the largest integer: above 4,300 digits Python refuses to read a number back."""

_REPLACEMENT = "\ufffd"

_MARK = secrets.token_hex(16)
"""Stands in a gap while data is encoded; nobody outside can guess it, so nobody can forge one."""

_GAP = f'"{_MARK}"'


class NewEvent:
    """An event to append.

    Args:
        type: A stable dotted name, past tense.
        data: JSON object; `Text` and `HeadOf` may stand in it anywhere.
        schema: Version of the form of the data.
        subject: What inside the stream the event is about; None for the stream itself.
        id: Unique across machines; a new one if None.
        at: UTC, ISO 8601, microseconds; now if None.

    Raises:
        ValueError: It cannot be stored; the message names the part.
    """

    __slots__ = ("at", "gaps", "parts", "raw_id", "schema", "size", "subject", "type")

    parts: list[str]
    """The data in canonical JSON, without what stands in the gaps between the parts."""
    gaps: list[Text | HeadOf]
    """What stands in the gaps, in order."""
    size: int
    """Characters to store: what the event weighs in the queue."""

    def __init__(
        self,
        type: str,  # noqa: A002 - the name of the field
        data: Mapping[str, Any],
        schema: int = 1,
        subject: str | None = None,
        id: UUID | None = None,  # noqa: A002
        at: str | None = None,
    ) -> None:
        self.raw_id, self.at = stamp()
        if id is not None:
            self.raw_id = id.bytes
        if at is not None:
            if not is_timestamp(at):
                message = f"{at!r} is not a time in UTC, ISO 8601, with microseconds"
                raise ValueError(message)
            self.at = at
        if schema < 1:
            message = f"schema {schema} of {type}: must be 1 or more"
            raise ValueError(message)
        self.type, self.schema, self.subject = require_name("type", type), schema, subject
        if subject is not None:
            require_name("subject", subject)
        self.parts, self.gaps, self.size = _encoded(data)

    @property
    def id(self) -> UUID:
        """Its identity across files."""
        return UUID(bytes=self.raw_id)

    @property
    def data(self) -> dict[str, Any]:
        """The data as it was given, with `Text` and `HeadOf` in their places."""
        text = self.fill(f'{{"{_MARK}":{number}}}' for number in range(len(self.gaps)))

        def original(members: dict[str, Any]) -> Any:
            return self.gaps[members[_MARK]] if _MARK in members else members

        data: dict[str, Any] = json.loads(text, object_hook=original)
        return data

    def fill(self, values: Iterable[str]) -> str:
        """The data in canonical JSON, with JSON values in its gaps."""
        return "".join(chain.from_iterable(zip_longest(self.parts, values, fillvalue="")))

    def with_data(self, data: Mapping[str, Any]) -> NewEvent:
        """The same event with other data."""
        return NewEvent(self.type, data, self.schema, self.subject, self.id, self.at)


def redacted(events: Sequence[NewEvent], redact: Callable[[str], str]) -> Sequence[NewEvent]:
    """Events without what `redact` takes out of a text.

    It is asked about all of them at once, then about each event, and about each string and each
    `Text` by itself only if that changed anything.
    """
    bodies = [gap.body for event in events for gap in event.gaps if isinstance(gap, Text)]
    # A quotation mark, since a secret that is cut off at the end of a text is found before it.
    together = '"'.join([part for event in events for part in event.parts] + bodies)
    # The events of a stream are lines: what stands before it is no part of its first one.
    streams = [body for body in bodies if "\n" in body or "\r" in body]
    if redact(together) == together and all(redact(each) == each for each in streams):
        return events
    if len(events) > 1:
        return [cleaned for event in events for cleaned in redacted([event], redact)]
    (event,) = events
    return [event.with_data(_Copy(lambda text: scrub(redact(text))).run(event.data))]


def scrub(text: str) -> str:
    """The text without what UTF-8 or SQLite cannot hold: lone surrogates and NUL become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    if not _is_encodable(text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@lru_cache(maxsize=4_096)
def require_name(what: str, name: str) -> str:
    """A name that can be stored.

    Raises:
        ValueError: It cannot; the message says so of `what`.
    """
    if not is_name(name):
        message = f"{what} {name!r}: must be a text, not empty, without NUL or lone surrogates"
        raise ValueError(message)
    return name


def is_name(value: object) -> bool:
    """Whether a value can be the name of a stream, a type or a subject."""
    return isinstance(value, str) and bool(value) and scrub(value) == value


class _Encoder(threading.local):
    """Encodes data, one after another in each thread, and collects what leaves a gap in `gaps`."""

    def __init__(self) -> None:
        self.encode = CanonicalEncoder(self._stand_in).encode
        self.gaps: list[Text | HeadOf] = []

    def _stand_in(self, value: object) -> object:
        if isinstance(value, Text | HeadOf):
            self.gaps.append(value)
            return _MARK
        if isinstance(value, Mapping):
            return dict(value)
        raise TypeError


_encoder = _Encoder()


def _encoded(
    data: Mapping[str, Any], *, scrubbed: bool = False
) -> tuple[list[str], list[Text | HeadOf], int]:
    """The parts of an event, its gaps, and its size."""
    gaps = _encoder.gaps = []
    try:
        text = together = _encoder.encode(data)
        if gaps:
            together = "".join([text, *[gap.body for gap in gaps if isinstance(gap, Text)]])
        fit = scrubbed or (
            text[0] == "{"
            and "\\u0000" not in text
            and '"$ref":' not in text
            and text.count("[") + text.count("{") < MAX_DEPTH
            and "\0" not in together
            and _is_encodable(together)
        )
    except (TypeError, ValueError, RecursionError):
        fit = False
    return (
        (text.split(_GAP), gaps, len(together))
        if fit
        else _encoded(_Copy(scrub).run(data), scrubbed=True)
    )


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Unfit(Exception):  # noqa: N818 - never seen outside: becomes a ValueError with the path
    """A value that cannot be stored, on its way up to the path it stands at."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


class _Copy:
    """Copies a payload, cleans every string in it, and finds what is wrong with it and where."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean

    def run(self, data: object) -> dict[str, Any]:
        """The copy; raises ValueError if there can be none."""
        if not isinstance(data, Mapping):
            message = f"data is a {type(data).__name__}, not a mapping"
            raise ValueError(message)  # noqa: TRY004 - what can be stored is a matter of values
        try:
            return self._object(data, MAX_DEPTH)
        except _Unfit as unfit:
            path = "".join(["data", *reversed(unfit.path)])
            message = f"{path} {unfit.reason}"
            raise ValueError(message) from None

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, member in value.items():
            try:
                _require_member_name(name)
                key = _unused(self._clean(str.__str__(name)), result)
                result[key] = self._value(member, depth - 1)
            except _Unfit as unfit:
                unfit.path.append(f".{name}")
                raise
        return result

    def _array(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        result: list[Any] = []
        for index, item in enumerate(value):
            try:
                result.append(self._value(item, depth - 1))
            except _Unfit as unfit:
                unfit.path.append(f"[{index}]")
                raise
        return result

    def _value(self, value: object, depth: int) -> Any:
        if not depth:
            raise _Unfit(f"is nested deeper than {MAX_DEPTH} levels")
        match value:
            case str():
                return self._clean(str.__str__(value))
            case None | bool() | int() | float():
                _require_number(value)
                return value
            case Text(body):
                return Text(self._clean(body))
            case HeadOf():
                return value
            case Mapping():
                return self._object(value, depth)
            case list() | tuple():
                return self._array(value, depth)
            case _:
                raise _Unfit(f"is a {type(value).__name__}, which JSON cannot say")


def _require_member_name(name: object) -> None:
    if not isinstance(name, str):
        raise _Unfit(f"is named by a {type(name).__name__}, not a string")
    if name == "$ref":
        raise _Unfit("is a reserved name: an authored document goes into a Text")


def _require_number(value: object) -> None:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise _Unfit("is an integer of more than 4,000 digits")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Unfit(f"is {value}, which JSON cannot say")


def _unused(name: str, members: dict[str, Any]) -> str:
    """The name itself, unless cleaning made two names equal."""
    unused, copies = name, 1
    while unused in members:
        copies += 1
        unused = f"{name} ({copies})"
    return unused


_UUID_BYTES = 16
_TEXT_REF = re.compile(r"[A-Za-z0-9_-]{32}")


def require_form(event: StoredEvent, version: int) -> None:
    """Refuse an event with a value that no append would have stored.

    Raises:
        ValueError: There is one.
    """
    kinds = (type(event.id), type(event.schema), type(event.at), type(event.data), type(event.hash))
    if (
        kinds != (bytes, int, str, str, bytes)
        or event.version != version
        or len(event.id) != _UUID_BYTES
        or event.schema < 1
        or not is_timestamp(event.at)
        or not is_name(event.type)
        or not (event.subject is None or is_name(event.subject))
    ):
        message = f"event {version:,} is not in the stored form"
        raise ValueError(message)


def read_data(event: StoredEvent) -> tuple[dict[str, Any], list[str]]:
    """Return the data of an event, and what it refers to.

    Raises:
        ValueError: It is not what an append would have stored.
    """
    try:
        submitted = json.loads(event.data, object_hook=_as_submitted)
        new = NewEvent(event.type, submitted)
        refs = [gap.body for gap in new.gaps if isinstance(gap, Text)]
        filled = new.fill(f'{{"$ref":"{ref}"}}' for ref in refs)
    except (ValueError, RecursionError, TypeError) as error:
        message = f"event {event.version:,}: {error}"
        raise ValueError(message) from None
    if filled != event.data:
        message = f"event {event.version:,}: data is not in canonical form"
        raise ValueError(message)
    data: dict[str, Any] = json.loads(event.data)
    return data, refs


def _as_submitted(members: dict[str, Any]) -> Any:
    """Put a `Text` in the place of each reference: so a payload is checked as when submitted."""
    if "$ref" not in members:
        return members
    ref = members["$ref"]
    if len(members) != 1 or not isinstance(ref, str) or not _TEXT_REF.fullmatch(ref):
        message = "$ref is no reference to a text"
        raise ValueError(message)
    return Text(ref)
