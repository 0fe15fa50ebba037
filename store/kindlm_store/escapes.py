"""Reads the escapes of a text: of HTML, of URLs, of JSON and of literals of languages."""

from __future__ import annotations

import re
import sys
from html.entities import html5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    """What a text says once its escapes are read, then those of what it says, and so on.

    One kind of escape is read at a time, backslashes first: JSON in JSON is the commonest. With
    each reading come the characters that escapes stood for so far; in the end None, if the text is
    escaped more often than it is read.
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
    """A text with what its first 256 characters say if they are bytes of UTF-8."""
    return re.sub("[\0-\xff]+", lambda run: _decoded(run[0].encode("latin-1")), text)


def _backslashes(text: str, uncovered: set[str]) -> Iterator[str]:
    if "\\" not in text:
        yield text
        return
    said = text
    # A backslash that is escaped escapes nothing: it steps aside meanwhile.
    if "\\\\" in text:
        said = text.replace("\\\\", _ASIDE)
        uncovered.add("\\")
    escapes = set(_BACKSLASHED.findall(said))
    for escape in _SHORT.keys() & escapes:
        said = said.replace(escape, _SHORT[escape])
        uncovered.add(_SHORT[escape])
    if escapes & {"\\x", "\\u"}:
        said = _codes(said, uncovered)
    # The halves of a character may be escaped more and less often.
    yield _PAIR.sub(_of_halves, said.replace(_ASIDE, "\\"))
    if "\\\\" in text and _ESCAPED_CODE.search(text):
        # Which backslashes escape others depends on what stands before them; here none does.
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
