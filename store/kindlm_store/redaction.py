"""Takes secrets out of texts, also where they were encoded on the way.

A key comes back in many forms: echoed in an error body, in a URL, in the base64 of an
authorization header, escaped in JSON inside JSON. Forms that are fixed strings are looked for
directly. Escapes can stand for any part of a secret, so they take a pattern; it is tried only on a
text that escapes a character of that secret. Base64 and hex may be wrapped over lines; that takes a
pattern, too, tried only on a text that holds the secret once its lines are joined.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cached_property
from typing import TYPE_CHECKING

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
_HEX = re.compile(r"\\x([0-9A-Fa-f]{2})")

# The end of a line and the indentation of the next, as such or escaped.
_LINE_END = re.compile(r"\n[ \t]*")
_WRAPS = rf"(?:(?:[\r\n]|{_BACKSLASHES}(?:[rn]|u000[aAdD]|x0[aAdD])|%(?:25)*0[aAdD])[ \t]*)*"


class _Form:
    """A secret, or an encoding of it, in any mix of literal and escaped characters.

    Attributes:
        bytes: Percent codes of its characters, lower case.
        units: Backslash-u codes of its characters, lower case.
        hexes: Backslash-x codes of its characters, or of their bytes, lower case.
        marks: Short escapes of its characters: backslash and letter, or a plus sign for a space.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.bytes = frozenset(code for character in text for code in _byte_codes(character))
        self.units = frozenset(code for character in text for code in _unit_codes(character))
        self.hexes = self.bytes | {f"{ord(c):02x}" for c in text if ord(c) < 256}
        self.marks = frozenset(mark for character in text for mark in _short_escapes(character))

    # Compiled when needed: most runs never see an escaped character of a secret.
    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches it on one line."""
        return re.compile("".join(map(_in_any_form, self.text)))

    @cached_property
    def wrapped(self) -> re.Pattern[str]:
        """Matches it with line ends anywhere."""
        return re.compile(_WRAPS.join(map(_in_any_form, self.text)))


class Redactor:
    """A callable that replaces secrets in a text by `[redacted]`.

    Found are the value itself, JSON-escaped, percent-encoded (wholly, partly, repeatedly, with
    plus signs for spaces), with backslash-u and backslash-x escapes, in hex, and in base64 and
    base64url wherever it begins inside the encoded text; hex and base64 also over several lines.

    Args:
        secrets: The values to take out; those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {value for value in secrets if len(value) >= MIN_LENGTH and value not in _MARK}
        # The longest first: a value that contains another one leaves nothing of itself behind.
        ordered = sorted(values, key=lambda value: (-len(value), value))
        fixed = {form: None for value in ordered for form in _fixed_forms(value)}
        self._fixed = tuple(sorted(fixed, key=len, reverse=True))
        encoded = {form: None for value in ordered for form in _wrappable_forms(value)}
        self._wrappable = tuple(map(_Form, encoded))
        self._escapable = (*map(_Form, ordered), *self._wrappable)
        self._shortest = min(map(len, self._fixed), default=0)

    def __call__(self, text: str) -> str:
        """The text with `[redacted]` for each secret in it."""
        if not self._fixed or len(text) < self._shortest:
            return text
        for form in self._fixed:
            if form in text:
                text = text.replace(form, _MARK)
        if "%" in text or "\\" in text or "+" in text:
            text = self._without_escaped(text)
        if "%" in text or "\\" in text or "\n" in text or "\r" in text:
            text = self._without_wrapped(text)
        return text

    def _without_escaped(self, text: str) -> str:
        percent = {code.lower() for code in _PERCENT.findall(text)}
        if "%25" in text:
            # It may be the code of a percent sign after all.
            percent.add("25")
        units = {code.lower() for code in _UNICODE.findall(text)}
        hexes = {code.lower() for code in _HEX.findall(text)}
        for form in self._escapable:
            if (
                not percent.isdisjoint(form.bytes)
                or not units.isdisjoint(form.units)
                or not hexes.isdisjoint(form.hexes)
                or any(mark in text for mark in form.marks)
            ):
                text = form.pattern.sub(_MARK, text)
        return text

    def _without_wrapped(self, text: str) -> str:
        joined = _joined(text)
        if len(joined) == len(text):
            return text
        for form in self._wrappable:
            if form.text in joined:
                text = form.wrapped.sub(_MARK, text)
        return text


def _joined(text: str) -> str:
    """The text on one line and without escapes: it holds all that a wrapped form could match."""
    if "\\" in text:
        while "\\\\" in text:
            text = text.replace("\\\\", "\\")
        text = text.replace("\\n", "\n").replace("\\r", "\r").replace("\\/", "/")
        for codes in (_UNICODE, _HEX):
            text = codes.sub(_character, text)
    if "%" in text:
        text = _PERCENT.sub(_character, text)
    return _LINE_END.sub("", text.replace("\r", "\n"))


def _character(code: re.Match[str]) -> str:
    return chr(int(code[1], 16))


def _fixed_forms(value: str) -> Iterator[str]:
    yield value
    yield from _wrappable_forms(value)


def _wrappable_forms(value: str) -> Iterator[str]:
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


def _in_any_form(character: str) -> str:
    """A pattern for one character: itself, percent-encoded, or escaped with backslashes."""
    percent = "".join(f"%(?:25)*{_either_case(code)}" for code in _byte_codes(character))
    units = "".join(rf"{_BACKSLASHES}u{_either_case(code)}" for code in _unit_codes(character))
    hexes = ["".join(rf"{_BACKSLASHES}x{_either_case(code)}" for code in _byte_codes(character))]
    if "\x80" <= character <= "\xff":
        hexes.append(rf"{_BACKSLASHES}x{_either_case(f'{ord(character):02x}')}")
    short = [
        _BACKSLASHES + re.escape(mark[1]) if mark[0] == "\\" else re.escape(mark)
        for mark in _short_escapes(character)
    ]
    return f"(?:{'|'.join([re.escape(character), percent, units, *hexes, *short])})"


def _short_escapes(character: str) -> list[str]:
    if character == " ":
        return ["+"]
    if character in "/'":
        return ["\\" + character]
    escaped = json.dumps(character, ensure_ascii=False)[1:-1]
    return [escaped] if len(escaped) == 2 else []


def _either_case(code: str) -> str:
    return "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in code)


def _byte_codes(character: str) -> list[str]:
    return [f"{byte:02x}" for byte in character.encode("utf-8", "surrogatepass")]


def _unit_codes(character: str) -> list[str]:
    raw = character.encode("utf-16-be", "surrogatepass")
    return [raw[index : index + 2].hex() for index in range(0, len(raw), 2)]
