"""Takes secrets out of texts, also where they were encoded on the way.

A key comes back in many forms: echoed in an error body, in a URL, in the base64 of an
authorization header, escaped in JSON inside JSON. Forms that are fixed strings are looked for
directly. Escapes can stand for any part of a secret, so they take a pattern; it is tried only on a
text that escapes a character of that secret. Base64 and hex may be wrapped over lines; that takes a
pattern, too, tried only on a text that holds the secret once its lines are joined.

A text may have been cut before it came here. So the beginning of a secret goes, too, where a text
ends behind it, or goes on with what follows a cut: an ellipsis or a quotation mark.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache, cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIN_LENGTH = 8
"""Shorter values are words that occur by chance, and nothing that protects anything."""

REDACTED = "[redacted]"
"""What stands in the place of a secret."""

# JSON inside JSON: 1, 3, 7 or 15 of them. Bounded, so that a text of backslashes takes no time.
_BACKSLASHES = r"\\{1,15}"

# The code behind a percent sign, which may itself be escaped as %25 any number of times.
_PERCENT = re.compile(r"%(?:25)*([0-9A-Fa-f]{2})")
_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})")
_HEX = re.compile(r"\\x([0-9A-Fa-f]{2})")

# An escape cut through, after those that stand for the first bytes or halves of its character.
_UNFINISHED = (
    rf"(?:%(?:25)*[0-9A-Fa-f]{{2}}|{_BACKSLASHES}(?:u[0-9A-Fa-f]{{4}}|x[0-9A-Fa-f]{{2}})){{0,3}}?"
    rf"(?:%(?:25)*[0-9A-Fa-f]?|{_BACKSLASHES}(?:u[0-9A-Fa-f]{{0,3}}|x[0-9A-Fa-f]?)?)??"
)

# What stands behind a cut, up to the group; the group itself is no part of what was cut.
_CUT = re.compile(rf"{_UNFINISHED}(\Z|…|\.\.\.|\\{{0,15}}u2026|\\{{0,15}}[\"'`”])")

# The commonest first: JSON has quotation marks all over.
_SIGNS_OF_A_CUT = ('"', "'", "...", "`", "u2026", "…", "”")

# Characters, as far as one cut through is looked for behind a beginning; rather too many.
_LONGEST_ESCAPE = 200

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
    def start(self) -> re.Pattern[str]:
        """Matches its first eight characters on one line, or from two on if they are cut."""
        first, second, *others = map(_in_any_form, self.text[:MIN_LENGTH])
        rest = ""
        for character in reversed(others):
            rest = f"(?:{character}{rest}|{_CUT.pattern})"
        return re.compile(first + second + rest)

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
    Of each, but for several lines, also the first 8 characters or more where the text was cut.

    Args:
        secrets: The values to take out; those under 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {value for value in secrets if len(value) >= MIN_LENGTH and value not in REDACTED}
        # The longest first: a value that contains another one leaves nothing of itself behind.
        ordered = sorted(values, key=lambda value: (-len(value), value))
        fixed = {form: None for value in ordered for form in _fixed_forms(value)}
        self._fixed = tuple(sorted(fixed, key=len, reverse=True))
        self._longest = max(map(len, self._fixed), default=0)
        # Keys of one provider often begin alike, in all their encodings.
        self._heads: dict[str, list[str]] = {}
        for form in self._fixed:
            self._heads.setdefault(form[:MIN_LENGTH], []).append(form)
        encoded = {form: None for value in ordered for form in _wrappable_forms(value)}
        self._wrappable = tuple(map(_Form, encoded))
        self._escapable = (*map(_Form, ordered), *self._wrappable)

    def __call__(self, text: str) -> str:
        """The text with `[redacted]` for each secret in it."""
        if not self._fixed or len(text) < MIN_LENGTH:
            return text
        suspects = self._suspects(text)
        for form in suspects:
            text = text.replace(form, REDACTED)
        escaped: list[_Form] = []
        if "%" in text or "\\" in text or "+" in text:
            text, escaped = self._without_escaped(text)
        if "%" in text or "\\" in text or "\n" in text or "\r" in text:
            text = self._without_wrapped(text)
        # Last: a part of what is whole must not go before the whole does.
        for form in suspects:
            text = _without_beginning(text, form)
        for each in escaped:
            text = _without_escaped_beginning(text, each)
        return text

    def _suspects(self, text: str) -> list[str]:
        """The fixed forms that may be in the text, whole or cut, the longest first."""
        if _may_be_cut_inside(text):
            heads = [head for head in self._heads if head in text]
            if not heads:
                return heads
            found = [form for head in heads for form in self._heads[head]]
            return sorted(found, key=len, reverse=True)
        # It can only be cut at its end: long strings are found faster than their beginnings.
        end = text[-self._longest - _LONGEST_ESCAPE :]
        cut = {head for head in self._heads if head in end}
        return [form for form in self._fixed if form in text or form[:MIN_LENGTH] in cut]

    def _without_escaped(self, text: str) -> tuple[str, list[_Form]]:
        """The text without escaped secrets, and those of which beginnings may be left."""
        percent = {code.lower() for code in _PERCENT.findall(text)}
        if "%25" in text:
            # It may be the code of a percent sign after all.
            percent.add("25")
        units = {code.lower() for code in _UNICODE.findall(text)}
        hexes = {code.lower() for code in _HEX.findall(text)}
        found: list[_Form] = []
        for form in self._escapable:
            if (
                not percent.isdisjoint(form.bytes)
                or not units.isdisjoint(form.units)
                or not hexes.isdisjoint(form.hexes)
                or any(mark in text for mark in form.marks)
            ) and form.start.search(text):
                text = form.pattern.sub(REDACTED, text)
                found.append(form)
        return text, found

    def _without_wrapped(self, text: str) -> str:
        joined = _joined(text)
        if len(joined) == len(text):
            return text
        for form in self._wrappable:
            if form.text in joined:
                text = form.wrapped.sub(REDACTED, text)
        return text


def _may_be_cut_inside(text: str) -> bool:
    for sign in _SIGNS_OF_A_CUT:  # noqa: SIM110 - any() takes five times as long, for every text
        if sign in text:
            return True
    return False


def _without_beginning(text: str, form: str) -> str:
    """The text without beginnings of a form that a cut left."""
    head = form[:MIN_LENGTH]
    at = text.find(head)
    while at >= 0:
        length = len(head)
        while length < len(form) and text.startswith(form[length], at + length):
            length += 1
        ends = range(at + length, at + len(head) - 1, -1)
        text, at = _without_cut(text, at, ends)
        at = text.find(head, at)
    return text


def _without_escaped_beginning(text: str, form: _Form) -> str:
    """The text without beginnings of a form, in any mix of escapes, that a cut left."""
    found = form.start.search(text)
    while found:
        at = found.start()
        ends = sorted(end for end in _ends(text, at, form.text) if end - at >= MIN_LENGTH)
        text, at = _without_cut(text, at, reversed(ends))
        found = form.start.search(text, at)
    return text


def _without_cut(text: str, start: int, ends: Iterable[int]) -> tuple[str, int]:
    """The text without what stands from the start to the first of the ends behind which it is cut.

    Also returned is where to go on reading.
    """
    for end in ends:
        cut = _CUT.match(text, end)
        if cut:
            return text[:start] + REDACTED + text[cut.start(1) :], start + len(REDACTED)
    return text, start + 1


def _ends(text: str, start: int, secret: str) -> Iterator[int]:
    """Where the beginnings of a secret end that the text holds from a place on."""
    places = {start}
    for character in secret:
        found = (
            pattern.match(text, place) for pattern in _alternatives(character) for place in places
        )
        places = {match.end() for match in found if match}
        yield from places


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
    return f"(?:{'|'.join(_forms(character))})"


@cache
def _alternatives(character: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, _forms(character)))


def _forms(character: str) -> list[str]:
    percent = "".join(f"%(?:25)*{_either_case(code)}" for code in _byte_codes(character))
    units = "".join(rf"{_BACKSLASHES}u{_either_case(code)}" for code in _unit_codes(character))
    hexes = ["".join(rf"{_BACKSLASHES}x{_either_case(code)}" for code in _byte_codes(character))]
    if "\x80" <= character <= "\xff":
        hexes.append(rf"{_BACKSLASHES}x{_either_case(f'{ord(character):02x}')}")
    short = [
        _BACKSLASHES + re.escape(mark[1]) if mark[0] == "\\" else re.escape(mark)
        for mark in _short_escapes(character)
    ]
    return [re.escape(character), percent, units, *hexes, *short]


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
