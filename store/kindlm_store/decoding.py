"""Decodes texts: resolves escapes, and finds the strings in which a text may stand in pieces.

Escapes are those of HTML, URLs, JSON, and string literals of programming languages, and arrays of
bytes. Pieces are strings of JSON, or events of a stream, with a few characters each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from html.entities import html5

_LEVELS = 16
"""Levels of escaping that are decoded; real texts have fewer."""

# Each pattern begins with a fixed character, which makes the search fast.
# Browsers also read numbers without a semicolon. Before other characters, one may be cut off.
_REFERENCES = re.compile(
    r"&(?:#(?:[xX]0*[0-9A-Fa-f]{1,6}|0*[0-9]{1,7})(?:;|(?=[&<\s]))|[A-Za-z][A-Za-z0-9]*;)"
)
_PERCENT_BYTES = re.compile(r"%[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*")
_BACKSLASH_BYTES = re.compile(r"\\x[0-9A-Fa-f]{2}(?:\\x[0-9A-Fa-f]{2})*")
_UNITS = re.compile(r"\\u[0-9A-Fa-f]{4}(?:\\u[0-9A-Fa-f]{4})*")
_ARRAYS = re.compile(r"\[\s*\d{1,3}\s*+(?:,\s*\d{1,3}\s*+)*\]")

_SHORT = dict(zip("\"/'nrtbf", "\"/'\n\r\t\b\f", strict=True))
"""The meanings of characters after a backslash."""

_LATIN_1 = {0xDC00 + byte: byte for byte in range(0x80, 0x100)}
"""A byte that is not UTF-8 is read as Latin-1: Python writes both as backslash-x."""


def readings(text: str) -> Iterator[str | None]:
    """Yield a text with its escapes decoded, then with the escapes in the result, and so on.

    One kind of escape is decoded at a time, backslashes first: JSON in JSON is the most common. The
    last reading is None if there may be more escapes.
    """
    for _ in range(_LEVELS):
        decoded = _without_backslashes(text) if "\\" in text else text
        if decoded == text and "&" in text:
            decoded = _decoded(_REFERENCES, _of_reference, text)
        if decoded == text and "%" in text:
            decoded = _decoded(_PERCENT_BYTES, _of_bytes, text)
        if decoded == text and "[" in text:
            decoded = _decoded(_ARRAYS, _of_array, text)
        if decoded == text:
            return
        text = decoded
        yield text
    yield None


def _without_backslashes(text: str) -> str:
    # An escaped backslash escapes nothing, so it is set aside.
    text = text.replace("\\\\", "\0")
    for letter, meaning in _SHORT.items():
        text = text.replace(f"\\{letter}", meaning)
    if "\\" in text:
        text = _decoded(_BACKSLASH_BYTES, _of_bytes, text)
        text = _decoded(_UNITS, _of_units, text)
    return text.replace("\0", "\\")


def _decoded(escapes: re.Pattern[str], meaning: Callable[[str], str], text: str) -> str:
    meanings = {escape: meaning(escape) for escape in set(escapes.findall(text))}
    return escapes.sub(lambda found: meanings[found[0]], text) if meanings else text


def _of_reference(reference: str) -> str:
    if reference[1] != "#":
        return html5.get(reference[1:], reference)
    number = reference[2:].rstrip(";")
    # Python refuses to read more than 4,300 digits.
    point = int(number[1:], 16) if number[0] in "xX" else int(number.lstrip("0") or "0")
    return chr(point) if point <= sys.maxunicode else reference


def _of_bytes(codes: str) -> str:
    raw = bytes.fromhex(re.sub(r"[%\\x]", "", codes))
    return raw.decode("utf-8", "surrogateescape").translate(_LATIN_1)


def _of_units(codes: str) -> str:
    return bytes.fromhex(codes.replace("\\u", "")).decode("utf-16-be", "surrogatepass")


def _of_array(array: str) -> str:
    """Return an array of bytes as a string with a character for each; other arrays unchanged."""
    codes = [int(code) for code in array[1:-1].split(",")]
    return f'"{bytes(codes).decode("latin-1")}"' if max(codes) < 256 else array


_RUN = re.compile(r'([^"\n\r]+)("\s*:)?')
"""Characters between quotation marks and line ends, and whether they are the name of a member."""

_PUNCTUATION = " \t,:[]{}\\"

_BEGINNINGS = ("data: ", "data:", '0:"')
"""Beginnings of events in streams."""

_FEW = 16
"""Strings with this number of characters on average may be pieces of a text."""

# A longer word continues on a new line, which repeats this many of its characters.
_LONG_WORD = re.compile(r"\S{1000}")
_REPEATED = 100


def pieces(text: str) -> list[list[str]]:
    """Return all strings in a text, in order, then those behind each name by themselves.

    Strings are all runs of characters between quotation marks, line ends and the beginnings of
    events, whether or not the text is valid JSON. Runs of JSON's punctuation are left out.
    """
    if '"' not in text and "data:" not in text:
        return []
    everything: list[str] = []
    named: dict[str, list[str]] = {}
    strings = named.setdefault("", [])
    for beginning in _BEGINNINGS:
        text = text.replace(beginning, '\n"')
    for run, is_name in _RUN.findall(text):
        if is_name:
            strings = named.setdefault(run, [])
        elif run.strip(_PUNCTUATION):
            strings.append(run)
            everything.append(run)
    return [everything, *named.values()]


def bare_pieces(text: str) -> str:
    """Return the strings of `pieces`, and names, without punctuation, between quotation marks."""
    for end in (*_BEGINNINGS, "\n", "\r"):
        text = text.replace(end, '"')
    for mark in _PUNCTUATION:
        text = text.replace(mark, "")
    return text


def spelled(text: str) -> str:
    """Return the texts that pieces in a text may form, each on its own line.

    Strings of different names are not joined. A line break follows every 1,000 characters of a
    word, since many patterns take quadratic time on a long word.
    """
    lines = dict.fromkeys(map(_of_array, _ARRAYS.findall(text)))
    for reading in (text, *readings(text)):
        for strings in pieces(reading or "")[1:]:
            is_short = sum(map(len, strings)) <= _FEW * len(strings)
            if len({*strings}) > 1 and (is_short or any(" " in one for one in strings)):
                lines["".join(strings)] = None
    return _LONG_WORD.sub(lambda word: f"{word[0]}\n{word[0][-_REPEATED:]}", "\n".join(lines))
