"""Decodes texts: reads escapes, and joins pieces.

Escapes are those of HTML, URLs, JSON, and string literals of programming languages.

Pieces are strings of JSON or events of a stream with a few characters each. Which pieces belong
together depends on the format. So this module joins all strings that may: those of a text in order,
those of one name, and those of one name in similar events. The positions of pieces are lost.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from html.entities import html5

_LEVELS = 16
"""Levels of escaping that are decoded; real texts have fewer."""

# Each pattern begins with a fixed character, which makes the search fast.
_REFERENCES = re.compile(r"&(?:#[xX]0*[0-9A-Fa-f]{1,6}|#0*[0-9]{1,7}|[A-Za-z][A-Za-z0-9]*);")
_PERCENT_BYTES = re.compile(r"%[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*")
_BACKSLASH_BYTES = re.compile(r"\\x[0-9A-Fa-f]{2}(?:\\+x[0-9A-Fa-f]{2})*")
_UNITS = re.compile(r"\\u[0-9A-Fa-f]{4}(?:\\+u[0-9A-Fa-f]{4})*")
_BACKSLASHED = re.compile(r"\\.")
_ASIDE = "\udc5c"
"""Stands for a backslash: a lone surrogate, which no stored text contains."""
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
"""A byte that is not UTF-8 is read as Latin-1: Python writes both as backslash-x."""


def readings(text: str) -> Iterator[tuple[str, set[str] | None]]:
    """Yield a text with its escapes decoded, then with the escapes in the result, and so on.

    One kind of escape is decoded at a time, backslashes first: JSON in JSON is the most common.
    Each text comes with all characters that were escaped up to there. The last one comes with None
    if it may still contain escapes.
    """
    escaped: set[str] = set()
    for _ in range(_LEVELS):
        decoded, *other = _backslashes(text, escaped)
        for way in other:
            yield way, escaped
        if decoded == text and "&" in text and ";" in text:
            decoded = _read(_REFERENCES, _of_reference, text, escaped)
        if decoded == text and "%" in text:
            decoded = _read(_PERCENT_BYTES, _of_bytes, text, escaped)
        if decoded == text:
            return
        text = decoded
        yield text, escaped
    yield text, None


def read_bytes(text: str) -> str:
    """Decode runs of Latin-1 characters that are the bytes of UTF-8."""
    return re.sub("[\0-\xff]+", lambda run: _decoded(run[0].encode("latin-1")), text)


def _backslashes(text: str, escaped: set[str]) -> Iterator[str]:
    if "\\" not in text:
        yield text
        return
    decoded = text
    # An escaped backslash escapes nothing, so it is set aside.
    if "\\\\" in text:
        decoded = text.replace("\\\\", _ASIDE)
        escaped.add("\\")
    escapes = set(_BACKSLASHED.findall(decoded))
    for escape in _SHORT.keys() & escapes:
        decoded = decoded.replace(escape, _SHORT[escape])
        escaped.add(_SHORT[escape])
    if escapes & {"\\x", "\\u"}:
        decoded = _codes(decoded, escaped)
    # The halves of a surrogate pair may be escaped to different depths.
    yield _PAIR.sub(_of_halves, decoded.replace(_ASIDE, "\\"))
    if "\\\\" in text and _ESCAPED_CODE.search(text):
        # Backslashes before a code may escape each other or the code: this reads it either way.
        yield _codes(text, escaped)


def _codes(text: str, escaped: set[str]) -> str:
    text = _read(_BACKSLASH_BYTES, _of_bytes, text, escaped)
    return _read(_UNITS, _of_units, text, escaped)


def _read(
    escapes: re.Pattern[str], meaning: Callable[[str], str], text: str, escaped: set[str]
) -> str:
    meanings = {escape: meaning(escape) for escape in set(escapes.findall(text))}
    escaped.update(*meanings.values())
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


_ARRAY = r"\[\s*(\d{1,3}\s*+(?:,\s*\d{1,3}\s*+)*+)\]"
"""An array of bytes."""

# A string ends at the end of its line, so that invalid JSON misleads for one line only.
_STRING = r'"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)'

# After the name of a member: the colon, and a number. Between strings: bytes, or the end of an
# event and the type of the next.
_BEHIND = rf"(\s*:[ \t]*(\d*))?|{_ARRAY}|(\n+)(event:[^\n\"]*)?"

_IN_QUOTES = re.compile(rf'{_STRING}"?{_BEHIND}')
"""All strings in quotation marks."""

_IN_JSON = re.compile(
    rf'(?<![^\s\[{{,:]){_STRING}(?:"(?=[ \t]*[\]}},\n]|\s*:|\s*\Z)|(?=\n)){_BEHIND}'
)
"""Strings in quotation marks where JSON has them; other quotation marks do not mislead."""

_BEFORE_A_STRING = ("[", "{", ",", ":")

_DATA = re.compile(r"(?<!\S)data: ?+(?![\[{])(.*?)(?=\sdata:|\n|\Z)")

_KINDS = frozenset({"type", "index", "output_index", "content_index"})
"""Members in which events of different texts differ."""

_TURNS = 8
"""Up to this number of texts may alternate under one name."""

_FEW = 16
"""Strings with this number of characters on average may be pieces of a text."""

# A longer word continues on a new line, which repeats this many of its characters.
_LONG_WORD = re.compile(r"\S{1000}")
_REPEATED = 100


class Strings:
    """The strings of the JSON in a text, in order, without names of members.

    Args:
        text: The text; every line ends with a newline.
        form: Recognises strings.

    Attributes:
        values: The decoded strings and arrays of bytes.
        unquoted: Each array of bytes, decoded, and the joined data of events that is not JSON.
    """

    def __init__(self, text: str, form: re.Pattern[str]) -> None:
        self.values: list[str] = []
        self.unquoted: list[str] = []
        # By name, and by name and kind of event.
        self._together: dict[object, list[str]] = {}
        # The last string of a cut text may be a name, and no piece.
        self._is_whole = text.rstrip().endswith(("}", "]"))
        name = event = ""
        of_line: list[tuple[str, str]] = []
        kinds: list[str] = []
        for written, colon, number, codes, end, next_event in form.findall(f"\n{text}\n"):
            if end:
                kind = "\n".join((event, *kinds))
                for key, value in of_line:
                    self._together.setdefault(key, []).append(value)
                    self._together.setdefault((key, kind), []).append(value)
                of_line, kinds = [], []
                event = next_event if next_event or len(end) > 1 else event
            elif colon:
                name = written
                if number and name in _KINDS:
                    kinds.append(number)
            elif value := _bytes_of(codes) if codes else _unescaped(written):
                self.values.append(value)
                of_line.append((name, value))
                if codes:
                    self.unquoted.append(value)
                if name in _KINDS:
                    kinds.append(value)
        if data := _DATA.findall(text) if "data:" in text else []:
            # Data that begins with a quotation mark may be a JSON string, or a piece as it stands.
            strings = (
                _unescaped(one[1:].removesuffix('"')) if one[:1] == '"' else one for one in data
            )
            self.unquoted += ["".join(data), "".join(strings)]

    def put_together(self, matters: Callable[[Sequence[str]], bool]) -> Iterator[Sequence[str]]:
        """Yield all strings, and those of `of_each_name`, as far as they matter."""
        for strings in (self.values, *self.of_each_name()):
            if matters(strings):
                yield strings
                if not self._is_whole:
                    yield strings[:-1]

    def of_each_name(self) -> Iterator[Sequence[str]]:
        """Yield the strings of each name, and every second of them, every third, and so on."""
        for strings in dict.fromkeys(map(tuple, self._together.values())):
            if len({*strings}) == 1:
                continue
            yield strings
            for turns in range(2, min(_TURNS, len(strings) // 2) + 1):
                yield from (strings[first::turns] for first in range(turns))


def strings_in(text: str) -> Iterator[Strings]:
    """Yield the strings of the JSON in a text, then those of the JSON in these strings, and so on.

    The time is proportional to the text.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    while '"' in text or "[" in text or "data:" in text:
        strings = Strings(text, _IN_QUOTES)
        yield strings
        values = dict.fromkeys(strings.values)
        # Text between strings may have been taken for strings.
        if any(not value.strip("[{ ") for value in values):
            yield Strings('"' + text.replace("\n", '\n"'), _IN_QUOTES)
        if any(value.rstrip().endswith(_BEFORE_A_STRING) for value in values):
            strings = Strings(text, _IN_JSON)
            yield strings
            values.update(dict.fromkeys(strings.values))
        text = "\n".join(value for value in values if '"' in value or "[" in value)


def spelled(text: str) -> str:
    """Return the texts that pieces in a text may form, each on its own line.

    Strings of different names are not joined. A line break follows every 1,000 characters of a
    word, since many patterns take quadratic time on a long word.
    """
    lines: list[str] = []
    for strings in strings_in(text):
        lines += strings.unquoted
        lines += map("".join, filter(_may_be_pieces, strings.of_each_name()))
    return _LONG_WORD.sub(lambda word: f"{word[0]}\n{word[0][-_REPEATED:]}", "\n".join(lines))


def _may_be_pieces(strings: Sequence[str]) -> bool:
    """Return whether strings have a few characters each, or contain words."""
    if len({*strings}) < 2:
        return False
    return sum(map(len, strings)) <= _FEW * len(strings) or any(" " in one for one in strings)


def holds_bytes(text: str) -> bool:
    """Return whether there is an array of bytes in a text."""
    return "[" in text and re.search(_ARRAY, text) is not None


def _bytes_of(codes: str) -> str:
    """Return the content of an array of bytes, one character each; nothing for other numbers."""
    try:
        return bytes(map(int, codes.split(","))).decode("latin-1")
    except ValueError:
        return ""


def _unescaped(written: str) -> str:
    """Return the value of a JSON string; if it is invalid, as it stands."""
    if "\\" not in written:
        return written
    try:
        value: str = json.loads(f'"{written}"', strict=False)
    except ValueError:
        return written
    return value
