"""Takes secrets out of texts, also where they were encoded on the way.

A key comes back in many forms: echoed in an error body, in a URL, in the base64 of an
authorization header, escaped in JSON inside JSON. Forms that are fixed strings are looked for
directly. Escapes can stand for any part of a secret, so they take a pattern; it is tried only on a
text that escapes a character of that secret.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIN_LENGTH = 8
"""Shorter values are words that occur by chance, and nothing that protects anything."""

_MARK = "[redacted]"

# JSON inside JSON: 1, 3, 7 or 15 of them. Bounded, so that a text of backslashes takes no time.
_BACKSLASHES = r"\\{1,15}"

# The code behind a percent sign, which may itself be escaped as %25 any number of times.
_PERCENT = re.compile(r"%(?:25)*([0-9A-Fa-f]{2})")
_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})")


class _Escaped(NamedTuple):
    """A secret in any mix of literal and escaped characters.

    Attributes:
        pattern: Matches it.
        bytes: Percent codes of its characters, lower case.
        units: Backslash-u codes of its characters, lower case.
        marks: Short escapes of its characters: backslash and letter, or a plus sign for a space.
    """

    pattern: re.Pattern[str]
    bytes: frozenset[str]
    units: frozenset[str]
    marks: frozenset[str]


class Redactor:
    """A callable that replaces secrets in a text by `[redacted]`.

    Found are the value itself, JSON-escaped, percent-encoded (wholly, partly, repeatedly, with
    plus signs for spaces), with backslash-u escapes, in hex, and in base64 and base64url wherever
    it begins inside the encoded text.

    Args:
        secrets: The values to take out; those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {value for value in secrets if len(value) >= MIN_LENGTH and value not in _MARK}
        # The longest first: a value that contains another one leaves nothing of itself behind.
        ordered = sorted(values, key=lambda value: (-len(value), value))
        fixed = {form: None for value in ordered for form in _fixed_forms(value)}
        self._fixed = tuple(sorted(fixed, key=len, reverse=True))
        self._escaped = tuple(
            _escaped(form) for value in ordered for form in (value, *_base64_forms(value))
        )
        self._shortest = min(map(len, self._fixed), default=0)

    def __call__(self, text: str) -> str:
        """The text with `[redacted]` for each secret in it."""
        if not self._fixed or len(text) < self._shortest:
            return text
        for form in self._fixed:
            if form in text:
                text = text.replace(form, _MARK)
        if "%" in text or "\\" in text or "+" in text:
            return self._without_escaped(text)
        return text

    def _without_escaped(self, text: str) -> str:
        percent = {code.lower() for code in _PERCENT.findall(text)}
        if "%25" in text:
            # It may be the code of a percent sign after all.
            percent.add("25")
        units = {code.lower() for code in _UNICODE.findall(text)}
        for escaped in self._escaped:
            if (
                not percent.isdisjoint(escaped.bytes)
                or not units.isdisjoint(escaped.units)
                or any(mark in text for mark in escaped.marks)
            ):
                text = escaped.pattern.sub(_MARK, text)
        return text


def _fixed_forms(value: str) -> Iterator[str]:
    yield value
    raw = value.encode("utf-8", "surrogatepass")
    yield raw.hex()
    yield raw.hex().upper()
    yield from _base64_forms(value)


def _base64_forms(value: str) -> Iterator[str]:
    """The characters that a value fixes in base64, for each place it may begin at.

    Three bytes become four characters, so that there are three such places; at both ends a
    character may also hold bits of the neighbours, and is left out.
    """
    raw = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        encoded = b64encode(bytes(before) + raw).decode()
        form = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield form
        yield form.replace("+", "-").replace("/", "_")


def _escaped(value: str) -> _Escaped:
    return _Escaped(
        re.compile("".join(map(_in_any_form, value))),
        frozenset(code for character in value for code in _byte_codes(character)),
        frozenset(code for character in value for code in _unit_codes(character)),
        frozenset(mark for character in value for mark in _short_escapes(character)),
    )


def _in_any_form(character: str) -> str:
    """A pattern for one character: itself, percent-encoded, or escaped with backslashes."""
    percent = "".join(f"%(?:25)*{_either_case(code)}" for code in _byte_codes(character))
    units = "".join(rf"{_BACKSLASHES}u{_either_case(code)}" for code in _unit_codes(character))
    short = [
        _BACKSLASHES + re.escape(mark[1]) if mark[0] == "\\" else re.escape(mark)
        for mark in _short_escapes(character)
    ]
    return f"(?:{'|'.join([re.escape(character), percent, units, *short])})"


def _short_escapes(character: str) -> list[str]:
    if character == " ":
        return ["+"]
    escaped = "\\/" if character == "/" else json.dumps(character, ensure_ascii=False)[1:-1]
    return [escaped] if len(escaped) == 2 else []


def _either_case(code: str) -> str:
    return "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in code)


def _byte_codes(character: str) -> list[str]:
    return [f"{byte:02x}" for byte in character.encode("utf-8", "surrogatepass")]


def _unit_codes(character: str) -> list[str]:
    raw = character.encode("utf-16-be", "surrogatepass")
    return [raw[index : index + 2].hex() for index in range(0, len(raw), 2)]
