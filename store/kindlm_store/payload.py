"""What may stand in the data of an event, and how it is made fit to be stored.

A payload is copied once, when it is submitted: the copy is plain JSON whose strings were redacted
and scrubbed of what a database cannot hold, so that anything a model says can be stored and
nothing the caller changes later is. `Text` and `HeadOf` keep their places until the event is
written, when only the writer knows what stands there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kindlm_store.events import HeadOf, Text

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH = 128
"""Levels of nesting a payload may have; SQLite's JSON functions and Python's parser bear more."""

_MAX_BITS = 14_000
"""Bits of the largest integer: above 4,300 digits Python refuses to read a number back."""

_REPLACEMENT = "\ufffd"


class _Unfit(Exception):  # noqa: N818 - never seen outside: becomes a ValueError with the path
    """A value that cannot be stored, on its way up to the path it stands at."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


class Place(NamedTuple):
    """A place in a payload that the writer fills."""

    container: Any
    key: Any

    def put(self, value: object) -> None:
        """Put what is stored into the place."""
        self.container[self.key] = value


@dataclass(slots=True)
class Payload:
    """The data of one event, ready but for what the writer fills in.

    Attributes:
        data: Plain JSON, `Text` and `HeadOf` aside.
        texts: Where texts stand.
        heads: Where head hashes go.
        size: Characters of all strings: what it weighs in the queue.
    """

    data: dict[str, Any]
    texts: list[tuple[Place, Text]]
    heads: list[tuple[Place, HeadOf]]
    size: int

    def restore(self) -> dict[str, Any]:
        """The data with its texts in place again, as it was before a write that failed."""
        for place, text in self.texts:
            place.put(text)
        for place, head in self.heads:
            place.put(head)
        return self.data


def scrub(text: str) -> str:
    """The text without what UTF-8 or SQLite cannot hold: lone surrogates and NUL become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def prepare(data: Mapping[str, Any], redact: Callable[[str], str] | None) -> Payload:
    """Copy the data of an event into the form that is stored.

    Args:
        data: What the caller gave.
        redact: Takes secrets out of a text. NUL must be a boundary to it: it sees all strings of
            the payload at once, joined by NUL, and each by itself only if that changed anything.

    Raises:
        ValueError: A value has no JSON form (NaN, Infinity, a foreign type, a member named
            `$ref`, more than `MAX_DEPTH` levels); the message names the path.
    """
    copy = _Copy(scrub)
    payload = copy.run(data)
    if redact is not None:
        together = "\0".join(copy.strings)
        if redact(together) != together:
            return _Copy(lambda text: scrub(redact(text))).run(payload.data)
    return payload


class _Copy:
    """One pass over a payload."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._texts: list[tuple[Place, Text]] = []
        self._heads: list[tuple[Place, HeadOf]] = []
        self.strings: list[str] = []

    def run(self, data: Mapping[str, Any]) -> Payload:
        try:
            plain = self._object(data, MAX_DEPTH)
        except _Unfit as unfit:
            path = "".join(["data", *reversed(unfit.path)])
            message = f"{path} {unfit.reason}"
            raise ValueError(message) from None
        return Payload(plain, self._texts, self._heads, sum(map(len, self.strings)))

    def _string(self, text: str) -> str:
        clean = self._clean(text)
        self.strings.append(clean)
        return clean

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        if not depth:
            raise _Unfit(f"is nested deeper than {MAX_DEPTH} levels")
        result: dict[str, Any] = {}
        for name, member in value.items():
            try:
                _require_member_name(name)
                key = self._unused(self._string(str.__str__(name)), result)
                result[key] = self._value(member, depth - 1, result, key)
            except _Unfit as unfit:
                unfit.path.append(f".{name}")
                raise
        return result

    def _array(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        if not depth:
            raise _Unfit(f"is nested deeper than {MAX_DEPTH} levels")
        result: list[Any] = []
        for index, item in enumerate(value):
            try:
                result.append(self._value(item, depth - 1, result, index))
            except _Unfit as unfit:
                unfit.path.append(f"[{index}]")
                raise
        return result

    def _value(self, value: object, depth: int, container: Any, key: str | int) -> Any:
        match value:
            case str():
                return self._string(str.__str__(value))
            case None | bool() | int() | float():
                return _number(value)
            case Text():
                kept = Text(self._string(value.body))
                self._texts.append((Place(container, key), kept))
                return kept
            case HeadOf():
                self._heads.append((Place(container, key), value))
                return value
            case Mapping():
                return self._object(value, depth)
            case list() | tuple():
                return self._array(value, depth)
            case _:
                raise _Unfit(f"is a {type(value).__name__}, which JSON cannot say")

    @staticmethod
    def _unused(name: str, members: dict[str, Any]) -> str:
        """The name itself, unless cleaning made two names equal."""
        unused, copies = name, 1
        while unused in members:
            copies += 1
            unused = f"{name} ({copies})"
        return unused


def _require_member_name(name: object) -> None:
    if not isinstance(name, str):
        raise _Unfit(f"is named by a {type(name).__name__}, not a string")
    if name == "$ref":
        raise _Unfit("is a reserved name: an authored document goes into a Text")


def _number(value: float | None) -> float | bool | None:
    """The value itself, as a plain number even if its class is an enumeration's."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise _Unfit("is an integer of more than 4,000 digits")
        return int(value)
    if not math.isfinite(value):
        raise _Unfit(f"is {value}, which JSON cannot say")
    return float(value)
