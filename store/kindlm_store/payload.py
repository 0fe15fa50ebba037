"""What may stand in the data of an event, and how it is made fit to be stored.

A payload becomes canonical JSON when it is submitted, so that nothing the caller changes later is
stored. Most payloads are encoded once, by the C encoder, and only looked over; one that holds a
secret, or something a database cannot hold, is copied string by string first. `Text` and `HeadOf`
leave gaps in the JSON text, since only the writer knows what stands there.

An event that comes from another file is held to the same form before it is taken: nothing can be
taken back.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import threading
from collections.abc import Mapping
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from kindlm_store.canonical import CanonicalEncoder
from kindlm_store.events import HeadOf, Text, is_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kindlm_store.copies import StoredEvent


MAX_DEPTH = 128
"""Levels of nesting a payload may have; SQLite's JSON functions and Python's parser bear more."""

_MAX_BITS = 14_000
"""Bits of the largest integer: above 4,300 digits Python refuses to read a number back."""

_REPLACEMENT = "\ufffd"

_GAP = secrets.token_hex(16)
"""Marks a gap while a payload is encoded; nobody outside can guess it, so nobody can forge one."""


class Payload(NamedTuple):
    """The data of one event in canonical JSON, with gaps.

    Attributes:
        parts: The JSON text between the gaps.
        gaps: What stands in them, in order.
        size: Characters to store: what it weighs in the queue.
    """

    parts: list[str]
    gaps: list[Text | HeadOf]
    size: int

    def fill(self, values: Iterable[str]) -> str:
        """The JSON text with JSON values in its gaps."""
        if not self.gaps:
            return self.parts[0]
        return "".join(chain.from_iterable(zip_longest(self.parts, values, fillvalue="")))

    def restore(self) -> dict[str, Any]:
        """The data as it can be submitted again, with `Text` and `HeadOf` in their places."""
        text = self.fill(f'{{"{_GAP}":{number}}}' for number in range(len(self.gaps)))

        def original(members: dict[str, Any]) -> Any:
            return self.gaps[members[_GAP]] if _GAP in members else members

        data: dict[str, Any] = json.loads(text, object_hook=original)
        return data


def scrub(text: str) -> str:
    """The text without what UTF-8 or SQLite cannot hold: lone surrogates and NUL become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    if not _is_encodable(text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def prepare(data: Mapping[str, Any], redact: Callable[[str], str]) -> Payload:
    """Bring the data of an event into the form that is stored.

    Args:
        data: What the caller gave.
        redact: Takes secrets out of a text. It is asked about everything at once, and about each
            string and each `Text` by itself only if that changed anything.

    Raises:
        ValueError: A value has no JSON form (NaN, Infinity, a foreign type, a member named
            `$ref`, more than `MAX_DEPTH` levels); the message names the path.
    """

    def clean(text: str) -> str:
        return scrub(redact(text))

    try:
        text, gaps = _encoder.encode(data)
        bodies = [gap.body for gap in gaps if isinstance(gap, Text)]
        # A quotation mark, since a secret that is cut off at the end of a text is found before it.
        together = '"'.join((text, *bodies))
        # The events of a stream are lines: what stands before it is no part of its first one.
        streams = [body for body in bodies if "\n" in body or "\r" in body]
        fit = (
            _is_fit(text)
            and _is_storable(together)
            and all(redact(each) == each for each in (together, *streams))
        )
    except (TypeError, ValueError, RecursionError):
        fit = False
    if not fit:
        text, gaps = _encoder.encode(_Copy(clean).run(data))
        gaps = [Text(clean(gap.body)) if isinstance(gap, Text) else gap for gap in gaps]
    parts = [text]
    if gaps:
        first, *rest = text.split(f'"{_GAP}')
        # A gap is its mark, its number in four digits or more, and a quotation mark.
        numbered = [part.partition('"') for part in rest]
        parts = [first, *(part for _, _, part in numbered)]
        gaps = [gaps[int(number)] for number, _, _ in numbered]
    size = len(text) + sum(len(gap.body) for gap in gaps if isinstance(gap, Text))
    return Payload(parts, gaps, size)


class _Encoder(threading.local):
    """Encodes payloads, one after another in each thread, and collects their gaps."""

    def __init__(self) -> None:
        self._json = CanonicalEncoder(self._stand_in)
        self._gaps: list[Text | HeadOf] = []

    def encode(self, data: Mapping[str, Any]) -> tuple[str, list[Text | HeadOf]]:
        """The JSON text with a mark for each gap, and the gaps in the order they were met."""
        self._gaps = []
        return self._json.encode(data), self._gaps

    def _stand_in(self, value: object) -> object:
        if isinstance(value, Text | HeadOf):
            self._gaps.append(value)
            return f"{_GAP}{len(self._gaps) - 1}"
        if isinstance(value, Mapping):
            return dict(value)
        raise TypeError


_encoder = _Encoder()


def _is_fit(text: str) -> bool:
    """Whether a JSON text surely can be stored as it is."""
    return (
        text[0] == "{"
        and "\\u0000" not in text
        and '"$ref":' not in text
        and text.count("[") + text.count("{") < MAX_DEPTH
    )


def _is_storable(text: str) -> bool:
    return "\0" not in text and _is_encodable(text)


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
            case Text() | HeadOf():
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


def is_name(value: object) -> bool:
    """Whether a value can be the name of a stream, a type or a subject."""
    return isinstance(value, str) and bool(value) and scrub(value) == value


def read_data(event: StoredEvent) -> tuple[dict[str, Any], list[str]]:
    """Return the data of an event, and what it refers to.

    Raises:
        ValueError: It is not what an append would have stored.
    """
    try:
        submitted = json.loads(event.data, object_hook=_as_submitted)
        payload = prepare(submitted, str)
        refs = [gap.body for gap in payload.gaps if isinstance(gap, Text)]
        filled = payload.fill(f'{{"$ref":"{ref}"}}' for ref in refs)
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
