"""Decodes a text: its escapes, and pieces that only together say something.

Escapes are those of HTML, URLs, JSON, and string literals of programming languages.

Pieces are a few characters with each event of a stream, or each string of JSON. Which pieces belong
together depends on the format. So this module joins all strings that may belong together: those of
a text in order, those of one name, and those of one name in similar events. It does not say where a
piece is: if the pieces contain a secret, the whole text is removed.
"""

from __future__ import annotations

import json
import re
import sys
from html.entities import html5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_LEVELS = 16
"""How many levels of escaping are read; real texts have fewer."""

# Each begins with a fixed character, so that most of a text is passed over fast.
_REFERENCES = re.compile(r"&(?:#[xX]0*[0-9A-Fa-f]{1,6}|#0*[0-9]{1,7}|[A-Za-z][A-Za-z0-9]*);")
_PERCENT_BYTES = re.compile(r"%[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*")
_BACKSLASH_BYTES = re.compile(r"\\x[0-9A-Fa-f]{2}(?:\\+x[0-9A-Fa-f]{2})*")
_UNITS = re.compile(r"\\u[0-9A-Fa-f]{4}(?:\\+u[0-9A-Fa-f]{4})*")
_BACKSLASHED = re.compile(r"\\.")
_ASIDE = "\udc5c"
"""Stands for a backslash; half a character, which no text has that can be stored."""
_ESCAPED_CODE = re.compile(r"\\\\[xu]")
_SHORT = {
    '\\"': '"',
    "\\/": "/",
    "\\'": "'",
    "\\n": "\n",
    "\\r": "\r",
    "\\t": "\t",
    "\\b": "\b",
    "\\f": "\f",
}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LATIN_1 = {0xDC00 + byte: byte for byte in range(0x80, 0x100)}
"""What is not UTF-8 is taken for a character each byte: Python writes both as backslash-x."""


def readings(text: str) -> Iterator[tuple[str, set[str] | None]]:
    """The readings of a text: with its escapes read, then with theirs, and so on.

    One kind of escape is read at a time, backslashes first: JSON in JSON is the most common. Each
    reading comes with the characters that escapes have stood for so far. In the end comes None, if
    the text is escaped more often than it is read.
    """
    uncovered: set[str] = set()
    for _ in range(_LEVELS):
        said, *other = _backslashes(text, uncovered)
        for way in other:
            yield way, uncovered
        if said == text and "&" in text and ";" in text:
            said = _read(_REFERENCES, _of_reference, text, uncovered)
        if said == text and "%" in text:
            said = _read(_PERCENT_BYTES, _of_bytes, text, uncovered)
        if said == text:
            return
        text = said
        yield text, uncovered
    yield text, None


def read_bytes(text: str) -> str:
    """A text, and the content of its first 256 characters if they are bytes of UTF-8."""
    return re.sub("[\0-\xff]+", lambda run: _decoded(run[0].encode("latin-1")), text)


def _backslashes(text: str, uncovered: set[str]) -> Iterator[str]:
    if "\\" not in text:
        yield text
        return
    said = text
    # An escaped backslash escapes nothing: it is replaced meanwhile.
    if "\\\\" in text:
        said = text.replace("\\\\", _ASIDE)
        uncovered.add("\\")
    escapes = set(_BACKSLASHED.findall(said))
    for escape in _SHORT.keys() & escapes:
        said = said.replace(escape, _SHORT[escape])
        uncovered.add(_SHORT[escape])
    if escapes & {"\\x", "\\u"}:
        said = _codes(said, uncovered)
    # The halves of a character may be escaped to different depths.
    yield _PAIR.sub(_of_halves, said.replace(_ASIDE, "\\"))
    if "\\\\" in text and _ESCAPED_CODE.search(text):
        # Whether a backslash escapes another depends on the ones before it; here there are none.
        yield _codes(text, uncovered)


def _codes(text: str, uncovered: set[str]) -> str:
    text = _read(_BACKSLASH_BYTES, _of_bytes, text, uncovered)
    return _read(_UNITS, _of_units, text, uncovered)


def _read(
    escapes: re.Pattern[str], meaning: Callable[[str], str], text: str, uncovered: set[str]
) -> str:
    meanings = {escape: meaning(escape) for escape in set(escapes.findall(text))}
    uncovered.update(*meanings.values())
    return escapes.sub(lambda found: meanings[found[0]], text) if meanings else text


def _of_reference(reference: str) -> str:
    if reference[1] != "#":
        return html5.get(reference[1:], reference)
    is_hex = reference[2] in "xX"
    # Python refuses to read more than 4,300 digits.
    point = int(reference[3:-1], 16) if is_hex else int(reference[2:-1].lstrip("0") or "0")
    return chr(point) if point <= sys.maxunicode else reference


def _of_bytes(codes: str) -> str:
    return _decoded(bytes.fromhex(re.sub(r"[%\\x]", "", codes)))


def _of_units(codes: str) -> str:
    return bytes.fromhex(re.sub(r"[\\u]", "", codes)).decode("utf-16-be", "surrogatepass")


def _of_halves(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape").translate(_LATIN_1)


# An array of bytes.
_ARRAY = r"\[\s*(\d{1,3}\s*+(?:,\s*\d{1,3}\s*+)*+)\]"

# A string ends at the end of its line, so that invalid JSON misleads for one line only.
_STRING = r'"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)'

# Behind a string: of a name the colon, and the number behind that. Or what stands between strings.
_BEHIND = rf"(\s*:[ \t]*(\d*))?|{_ARRAY}|(\n+)(event:[^\n\"]*)?"

_IN_QUOTES = re.compile(rf'{_STRING}"?{_BEHIND}')
"""What stands in quotation marks, in whatever form."""

_IN_JSON = re.compile(
    rf'(?<![^\s\[{{,:]){_STRING}(?:"(?=[ \t]*[\]}},\n]|\s*:|\s*\Z)|(?=\n)){_BEHIND}'
)
"""What stands in quotation marks where JSON has them: others in the text do not mislead."""

_BEFORE_A_STRING = ("[", "{", ",", ":")

_DATA = re.compile(r"(?<!\S)data: ?+(?![\[{])(.*?)(?=\sdata:|\n|\Z)")

# Events with different texts differ in these members.
_TELLS_APART = frozenset({"type", "index", "output_index", "content_index"})

# Every second string of a name, every third, and so on, are also put together: several texts may
# alternate under one name.
_TURNS = 8

# Strings of so many characters on average may be pieces of a text.
_FEW = 16

# A longer word continues on a new line, which repeats this many of its characters.
_LONG_WORD = re.compile(r"\S{1000}")
_GOES_ON = 100


class Strings:
    """The strings of the JSON in a text, in order; its arrays of bytes are strings, too.

    Names of members are left out. It takes time in proportion to the text.

    Args:
        text: The text, with a newline for each end of a line.
        form: How strings are recognised.

    Attributes:
        said: What the strings say.
        unquoted: What each array of bytes says, and all data of events that is not JSON.
    """

    def __init__(self, text: str, form: re.Pattern[str]) -> None:
        self.said: list[str] = []
        self.unquoted: list[str] = []
        # By their names, and by these and what tells their events apart.
        self._together: dict[object, list[str]] = {}
        # If the text was cut, its last string may be a name instead of a piece.
        self._is_whole = text.rstrip().endswith(("}", "]"))
        name = event = ""
        of_line: list[tuple[str, str]] = []
        apart: list[str] = []
        for written, colon, number, codes, end, begun in form.findall(f"\n{text}\n"):
            if end:
                kind = "\n".join((event, *apart))
                for key, said in of_line:
                    self._together.setdefault(key, []).append(said)
                    self._together.setdefault((key, kind), []).append(said)
                of_line, apart = [], []
                event = begun if begun or len(end) > 1 else event
            elif colon:
                name = written
                if number and name in _TELLS_APART:
                    apart.append(number)
            elif said := _bytes_of(codes) if codes else _meant(written):
                self.said.append(said)
                of_line.append((name, said))
                if codes:
                    self.unquoted.append(said)
                if name in _TELLS_APART:
                    apart.append(said)
        if data := _DATA.findall(text) if "data:" in text else []:
            # What begins with a quotation mark may be a string of JSON, or a piece as it is.
            strings = (_meant(one[1:].removesuffix('"')) if one[:1] == '"' else one for one in data)
            self.unquoted += ["".join(data), "".join(strings)]

    def put_together(self, matters: Callable[[Sequence[str]], bool]) -> Iterator[Sequence[str]]:
        """Yield strings that may belong together, whatever is between them, if they matter.

        These are all strings, and those of each name, as `of_each_name` has them.
        """
        for strings in (self.said, *self.of_each_name()):
            if matters(strings):
                yield strings
                if not self._is_whole:
                    yield strings[:-1]

    def of_each_name(self) -> Iterator[Sequence[str]]:
        """Yield the strings of each name, and of these every second, every third and so on."""
        for told in dict.fromkeys(map(tuple, self._together.values())):
            if len({*told}) == 1:
                continue
            yield told
            for turns in range(2, min(_TURNS, len(told) // 2) + 1):
                yield from (told[first::turns] for first in range(turns))


def strings_in(text: str) -> Iterator[Strings]:
    """Yield the strings of the JSON in a text, then those of the JSON in these strings, and so on.

    It takes time in proportion to the text.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    while '"' in text or "[" in text or "data:" in text:
        strings = Strings(text, _IN_QUOTES)
        yield strings
        said = dict.fromkeys(strings.said)
        # Text between strings may have been taken for strings.
        if any(not one.strip("[{ ") for one in said):
            yield Strings('"' + text.replace("\n", '\n"'), _IN_QUOTES)
        if any(one.rstrip().endswith(_BEFORE_A_STRING) for one in said):
            strings = Strings(text, _IN_JSON)
            yield strings
            said.update(dict.fromkeys(strings.said))
        text = "\n".join(one for one in said if '"' in one or "[" in one)


def spelled(text: str) -> str:
    """Return all that a text says in pieces, each text that these may make on a line of its own.

    What strings of different names say together, they say by chance: it is left out. A line has a
    break at least every 1,000 characters, as many a pattern takes a time that is quadratic in the
    length of a word. It takes time in proportion to the text.
    """
    lines: list[str] = []
    for strings in strings_in(text):
        lines += strings.unquoted
        lines += map("".join, filter(_may_be_pieces, strings.of_each_name()))
    return _LONG_WORD.sub(_broken, "\n".join(lines))


def _may_be_pieces(said: Sequence[str]) -> bool:
    """Whether strings may be pieces of a text: of some words, or of a few characters each."""
    if len({*said}) < 2:
        return False
    return sum(map(len, said)) <= _FEW * len(said) or any(" " in one for one in said)


def _broken(word: re.Match[str]) -> str:
    """A part of a long word, with its possible continuation on the next line."""
    return f"{word[0]}\n{word[0][-_GOES_ON:]}"


def holds_bytes(text: str) -> bool:
    """Return whether there is an array of bytes in a text."""
    return "[" in text and re.search(_ARRAY, text) is not None


def _bytes_of(codes: str) -> str:
    """Return the content of an array of bytes, one character each; nothing for other numbers."""
    try:
        return bytes(map(int, codes.split(","))).decode("latin-1")
    except ValueError:
        return ""


def _meant(written: str) -> str:
    """Return the value of a JSON string."""
    if "\\" not in written:
        return written
    try:
        meant: str = json.loads(f'"{written}"', strict=False)
    except ValueError:
        return written
    return meant
