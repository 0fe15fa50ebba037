"""Texts that come in pieces: a few characters with each event of a stream, or each string of JSON.

In server-sent events and lines of JSON, pieces belong together that stand under the same name: in
all events, or in those that agree in their distinguishing members, their types and indices. Data of
events that are not JSON objects are pieces of one text. Of such a text is known where it stands.

For any other JSON there is one plain rule, which does not say where a text stands: the strings of
the JSON are put together in order, as `Strings.put_together` does.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Span = tuple[int, int]
"""Where in a text something begins and ends."""

# What a text holds that is a stream, also where all of it was put on one line. Most hold none, and
# nothing more is looked at.
_SIGNS_OF_EVENTS = ("data:", "\n{", "\r{", "} {")

_LINE = re.compile(r"[^\r\n]+|\n\n|\r\r|\r\n\r\n")

# A name with a text or a number; a text that was cut ends with its line.
_MEMBER = re.compile(
    r'"([^"\\\s]{1,100})"[ \t]*:[ \t]*(?:"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)|(\d{1,9}))', re.DOTALL
)
_DATA = re.compile(r"(?:^|(?<=\s))data: ?(.*?)(?=\sdata:|\Z)")
_EVENT = "event:"
_TELLS_APART = frozenset({"type", "index", "output_index", "content_index"})

# An array of bytes.
_ARRAY = r"\[\s*(\d{1,3}\s*+(?:,\s*\d{1,3}\s*+)*+)\]"

# A string of JSON, with the colon behind it if it is a name; or an array of bytes. A string ends at
# the end of its line, so that what is no JSON misleads for a line only.
_STRING_OR_ARRAY = re.compile(rf'"([^"\\\r\n]*+(?:\\.[^"\\\r\n]*+)*+)"?(\s*:)?|{_ARRAY}')

# Every second string of a name, every third, and so on, are put together, too: several texts may
# take turns under one name.
_TURNS = 8

# Strings of so many characters on average may be pieces of a text.
_FEW = 16

# A longer word goes on in a new line, which repeats so many of its characters.
_LONG_WORD = re.compile(r"\S{1000}")
_GOES_ON = 100


class Piece(NamedTuple):
    """A piece of a text: where it stands, and what it says."""

    span: Span
    said: str

    @property
    def is_escaped(self) -> bool:
        """Whether something in it is written in another way."""
        return self.span[1] - self.span[0] != len(self.said)

    def part(self, start: int, end: int) -> Span:
        """Where a part of what it says stands; all of it if it is escaped."""
        at, behind = self.span
        return self.span if self.is_escaped else (at + max(start, 0), min(at + end, behind))


class Strings:
    """The strings of the JSON in a text, in order, and its arrays of bytes as what these say.

    Names of members are left out. It takes time in proportion to the text.

    Attributes:
        said: What the strings say.
        named: What they say, by the name before them.
        of_bytes: What the arrays of bytes among them say.
    """

    def __init__(self, text: str) -> None:
        self.said: list[str] = []
        self.named: dict[str, list[str]] = {}
        self.of_bytes: list[str] = []
        name, told = "", self.said
        for written, colon, codes in _STRING_OR_ARRAY.findall(text):
            if colon:
                name = written
            elif said := characters(codes) if codes else _meant(written):
                self.said.append(said)
                told = self.named.setdefault(name, [])
                told.append(said)
                if codes:
                    self.of_bytes.append(said)
        # Where the text was cut, its last string may be a name, and no piece.
        is_whole = text.rstrip().endswith(("}", "]"))
        self._before_a_cut = [] if is_whole else [self.said[:-1], told[:-1]]

    def put_together(self, matters: Callable[[list[str]], bool]) -> Iterator[list[str]]:
        """Yield strings that may belong together, whatever stands between them.

        These are all strings, and those of each name that matters, as `of_each_name` has them.
        """
        yield self.said
        yield from self._before_a_cut
        yield from self.of_each_name(matters)

    def of_each_name(self, matters: Callable[[list[str]], bool]) -> Iterator[list[str]]:
        """Yield the strings of each name that matters, and every second, every third and so on."""
        for told in filter(matters, self.named.values()):
            yield told
            for turns in range(2, min(_TURNS, len(told) // 2) + 1):
                for first in range(turns):
                    yield told[first::turns]


def strings_in(text: str) -> Iterator[Strings]:
    """Yield the strings of the JSON in a text, then those of the JSON in these strings, and so on.

    It takes time in proportion to the text.
    """
    while '"' in text or "[" in text:
        strings = Strings(text)
        yield strings
        if any(not said.strip("[{ ") for said in strings.said):
            # JSON stands in quotation marks: what was taken for its strings is between them.
            yield Strings('"' + text.replace("\n", '\n"'))
        text = "\n".join(said for said in strings.said if '"' in said or "[" in said)


def spelled(text: str) -> str:
    """Return all that a text says in pieces, each text that these may make on a line of its own.

    What strings of different names say together, they say by chance: it is left out. A line has a
    break at least every 1,000 characters, as many a pattern takes a time that is quadratic in the
    length of a word. It takes time in proportion to the text.
    """
    told = [[piece.said for piece in pieces] for pieces in texts_in_pieces(text)]
    lines: list[str] = []
    for strings in strings_in(text):
        told += strings.of_each_name(_may_be_pieces)
        lines += strings.of_bytes
    lines += map("".join, filter(_may_be_pieces, told))
    return _LONG_WORD.sub(_broken, "\n".join(lines))


def _may_be_pieces(said: Sequence[str]) -> bool:
    """Whether strings may be pieces of a text: of some words, or of a few characters each."""
    if len({*said}) == 1:
        return False
    return sum(map(len, said)) <= _FEW * len(said) or any(" " in one for one in said)


def _broken(word: re.Match[str]) -> str:
    """A part of a long word, and on the next line what of it may go on there."""
    return f"{word[0]}\n{word[0][-_GOES_ON:]}"


def arrays_in(text: str) -> list[str]:
    """Return the arrays of bytes in a text, as they are written."""
    return re.findall(_ARRAY, text) if "[" in text else []


def characters(codes: str) -> str:
    """Return what an array of bytes says, a character for each byte; of other numbers nothing."""
    try:
        return bytes(map(int, codes.split(","))).decode("latin-1")
    except ValueError:
        return ""


def texts_in_pieces(text: str) -> Iterator[list[Piece]]:
    """Return the pieces of each text that a stream tells in several, in order.

    It takes time in proportion to the text.
    """
    if not any(sign in text for sign in _SIGNS_OF_EVENTS):
        return
    told: dict[object, list[Piece]] = {}
    event = ""
    for line in _LINE.finditer(text):
        written = line[0]
        if written.startswith(_EVENT):
            event = written
        elif written.isspace():
            event = ""
        for texts, piece in _pieces(written, line.start(), event):
            for key in texts:
                told.setdefault(key, []).append(piece)
    yield from (pieces for pieces in told.values() if len(pieces) > 1)


def covering(pieces: Iterable[Piece], found: Iterable[Span]) -> Iterator[Span]:
    """Where what was found in the text of some pieces stands in these; it is in order."""
    spans = iter(found)
    start, end = next(spans, (0, 0))
    at = 0
    for piece in pieces:
        behind = at + len(piece.said)
        while start < end and start < behind:
            # What a piece alone holds was found in it, too, by who knows how it is escaped.
            if not (piece.is_escaped and at <= start and end <= behind):
                yield piece.part(start - at, end - at)
            if end > behind:
                break
            start, end = next(spans, (0, 0))
        at = behind


def _pieces(line: str, at: int, event: str) -> Iterator[tuple[tuple[object, ...], Piece]]:
    """Return the pieces of one line, each with the texts it may belong to."""
    members = list(_MEMBER.finditer(line))
    apart = tuple(member[2] or member[3] for member in members if member[1] in _TELLS_APART)
    for member in members:
        if member[2]:
            start, end = member.span(2)
            name = member[1]
            yield (name, (name, event, apart)), Piece((at + start, at + end), _meant(member[2]))
    for data in _DATA.finditer(line):
        start, end = data.span(1)
        if line[start:end].startswith('"'):
            start, end = start + 1, end - line.endswith('"', start + 1, end)
            yield (_DATA,), Piece((at + start, at + end), _meant(line[start:end]))
        elif not line.startswith(("{", "["), start):
            yield (_DATA,), Piece((at + start, at + end), line[start:end])


def _meant(written: str) -> str:
    """Return what a string of JSON says."""
    if "\\" not in written:
        return written
    try:
        meant: str = json.loads(f'"{written}"', strict=False)
    except ValueError:
        return written
    return meant
