"""How characters are escaped: in JSON, JSON inside JSON, URLs, HTML and literals of languages."""

from __future__ import annotations

import json
import re
import sys
from functools import cache, cached_property
from html.entities import codepoint2name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Span = tuple[int, int]
"""Where in a text something begins and ends."""

MIN_LENGTH = 8
"""Shorter values are words that occur by chance, and nothing that protects anything."""

# JSON inside JSON: 1, 3, 7 or 15 of them. Bounded, so that a text of backslashes takes no time.
_BACKSLASHES = r"\\{1,15}"

# The code behind a percent sign, which may itself be escaped as %25 any number of times.
_PERCENT = re.compile(r"%(?:25)*([0-9A-Fa-f]{2})")
_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})")
_HEX = re.compile(r"\\x([0-9A-Fa-f]{2})")

# The reference to a character in HTML, whose ampersand may itself be escaped any number of times.
_ENTITY = re.compile(r"&(?:amp;)*(?:#[xX]0*([0-9A-Fa-f]{1,6})|#0*([0-9]{1,7})|([A-Za-z0-9]+));")

# An escape cut through, after those that stand for the first bytes or halves of its character.
_UNFINISHED = (
    rf"(?:%(?:25)*[0-9A-Fa-f]{{2}}|{_BACKSLASHES}(?:u[0-9A-Fa-f]{{4}}|x[0-9A-Fa-f]{{2}})){{0,3}}?"
    rf"(?:%(?:25)*[0-9A-Fa-f]?|{_BACKSLASHES}(?:u[0-9A-Fa-f]{{0,3}}|x[0-9A-Fa-f]?)?"
    r"|&(?:amp;)*(?:#[xX]?[0-9A-Fa-f]{0,6}|[A-Za-z]{0,6}))??"
)

# HTML 5 names more, but nobody escapes with these.
_NAMES = {**codepoint2name, ord("'"): "apos"}
_POINTS = {name: point for point, name in _NAMES.items()}

# What stands behind a cut, up to the group; the group itself is no part of what was cut.
_CUT = re.compile(rf"{_UNFINISHED}(\Z|…|\.\.\.|\\{{0,15}}u2026|\\{{0,15}}[\"'`”])")

# What the above can begin with, but for the end of the text.
_BEHIND_A_CUT = frozenset("%\\&….u\"'`”")

# What stands between the characters of what is wrapped over lines.
_WRAPS = rf"(?:(?:[\r\n]|{_BACKSLASHES}(?:[rn]|u000[aAdD]|x0[aAdD])|%(?:25)*0[aAdD])[ \t]*)*"


class Form:
    """A secret, or an encoding of it, in any mix of literal and escaped characters.

    Args:
        text: The secret, or an encoding of it.
        public: So many characters at its beginning are no secret: a cut in them leaves nothing.
    """

    def __init__(self, text: str, public: int = 0) -> None:
        self.text = text
        self._shortest = public + MIN_LENGTH
        self._codes = {
            int(code, 16)
            for character in text
            for code in (f"{ord(character):x}", *_byte_codes(character), *_unit_codes(character))
        }
        self._marks = {mark for character in text for mark in _short_escapes(character)}

    # Compiled when needed: most runs never see an escaped character of a secret.
    @cached_property
    def start(self) -> re.Pattern[str]:
        """Matches its first eight secret characters on one line, or from two on if cut."""
        characters = [_in_any_form(character) for character in self.text[: self._shortest]]
        certain = len(characters[: self._shortest - MIN_LENGTH + 2])
        rest = ""
        for character in reversed(characters[certain:]):
            rest = f"(?:{character}{rest}|{_CUT.pattern})"
        return re.compile("".join(characters[:certain]) + rest)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches it on one line."""
        return re.compile("".join(map(_in_any_form, self.text)))

    @cached_property
    def wrapped(self) -> re.Pattern[str]:
        """Matches it with line ends anywhere."""
        return re.compile(_WRAPS.join(map(_in_any_form, self.text)))

    def may_be_escaped(self, text: str, codes: set[int]) -> bool:
        """Whether a text, with `escaped_codes`, escapes any of its characters."""
        return not codes.isdisjoint(self._codes) or any(mark in text for mark in self._marks)

    def occurrences(self, text: str) -> Iterator[Span]:
        """Where it is on one line, whole or cut."""
        for start, _ in matches(self.start, text):
            whole = self.pattern.match(text, start)
            if whole:
                yield whole.span()
            else:
                ends = sorted(end for end in _ends(text, start, self.text))
                end = cut_end(
                    text, (end for end in reversed(ends) if end - start >= self._shortest)
                )
                if end:
                    yield start, end


def escaped_codes(text: str) -> set[int]:
    """What the escapes in a text may stand for: code points, and bytes and halves of characters."""
    found = {code for codes in (_PERCENT, _UNICODE, _HEX) for code in codes.findall(text)}
    codes = {int(code, 16) for code in found}
    codes.update(_point(*reference) for reference in set(_ENTITY.findall(text)))
    # What seems to escape an escape may be a percent sign or an ampersand after all.
    if "%25" in text:
        codes.add(ord("%"))
    if "&amp;" in text:
        codes.add(ord("&"))
    return codes


def unescaped(text: str) -> str:
    """The text with the characters that its escapes stand for, byte by byte."""
    if "\\" in text:
        while "\\\\" in text:
            text = text.replace("\\\\", "\\")
        text = text.replace("\\n", "\n").replace("\\r", "\r").replace("\\/", "/")
        for codes in (_UNICODE, _HEX):
            text = codes.sub(_character, text)
    if "%" in text:
        text = _PERCENT.sub(_character, text)
    if "&" in text and ";" in text:
        text = _ENTITY.sub(_referred, text)
    return text


def _character(code: re.Match[str]) -> str:
    return chr(int(code[1], 16))


def matches(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    """Where a pattern matches, also where matches overlap."""
    found = pattern.search(text)
    while found:
        yield found.span()
        found = pattern.search(text, found.start() + 1)


def cut_end(text: str, ends: Iterable[int]) -> int:
    """Where that ends which a cut left, by the first of the ends behind which there is one, or 0.

    An escape that was cut through is a part of it.
    """
    for end in ends:
        if end == len(text) or text[end] in _BEHIND_A_CUT:
            cut = _CUT.match(text, end)
            if cut:
                return cut.start(1)
    return 0


def _ends(text: str, start: int, secret: str) -> Iterator[int]:
    """Where the beginnings of a secret end that the text holds from a place on."""
    places = {start}
    for character in secret:
        found = (
            pattern.match(text, place) for pattern in _alternatives(character) for place in places
        )
        places = {match.end() for match in found if match}
        yield from places


def _point(code: str | None, number: str | None, name: str) -> int:
    """The code point that a reference stands for, or -1 if it has no such name."""
    if code:
        return int(code, 16)
    return int(number) if number else _POINTS.get(name, -1)


def _referred(reference: re.Match[str]) -> str:
    code, number, name = reference.groups()
    point = _point(code, number, name)
    return chr(point) if 0 <= point <= sys.maxunicode else reference[0]


def _in_any_form(character: str) -> str:
    """A pattern for one character: itself, percent-encoded, or escaped with backslashes."""
    return f"(?:{'|'.join(_forms(character))})"


@cache
def _alternatives(character: str) -> tuple[re.Pattern[str], ...]:
    """Patterns of which each matches in one way: one, unless a form begins with another one."""
    if character in "\\%&":
        return tuple(map(re.compile, _forms(character)))
    return (re.compile(_in_any_form(character)),)


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
    # Percent signs and ampersands begin their own escapes: the whole of these first.
    return [percent, _entity(character), re.escape(character), units, *hexes, *short]


def _entity(character: str) -> str:
    point = ord(character)
    code = "".join(map(_either_case, f"{point:x}"))
    name = f"{_NAMES[point]}|" if point in _NAMES else ""
    return f"&(?:amp;)*(?:{name}#0*{point}|#[xX]0*{code});"


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
