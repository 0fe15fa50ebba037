"""Texts of users and models on their way into files: bounded, and literals of Python and YAML.

Python's are written as its formatters write them, so that nobody reformats a generated file: in
double quotes unless single ones save escapes, and long ones in parts. Only a literal is safe in
code; bounding a text or making it one line is not enough.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

WIDTH = 88
"""Columns of a line, as formatters of Python count them by default."""

_NAMED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def python_literal(text: str) -> str:
    """Return the literal of a text."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    inside = "".join(f"\\{quote}" if char == quote else _in_python(char) for char in text)
    return f"{quote}{inside}{quote}"


def python_parts(text: str, room: int) -> list[str]:
    """Return the literals that make up a text, each of at most `room` columns."""
    whole = python_literal(text)
    if width_of(whole) <= room:
        return [whole]
    # However a part is quoted, at most every quote in it is escaped.
    return [python_literal(part) for part in _parted(text, room - 2, _widest)]


def _yaml_parts(text: str, room: int) -> list[str]:
    """Return the lines of a double-quoted scalar of YAML, the quotes included.

    Each but the last ends in a backslash, which joins it to the next one without the space
    that begins that line.
    """
    parts = list(_parted(text, room - 3, _in_yaml))
    lines: list[str] = []
    for part in parts:
        written = "".join(map(_in_yaml, part))
        # A blank at the beginning of a line would be taken for its indentation.
        lines.append(f"\\{written}" if lines and written[0] == " " else written)
    return [
        ('"' if at == 0 else "") + line + ('"' if at == len(lines) - 1 else "\\")
        for at, line in enumerate(lines)
    ]


def keyed(before: str, text: str, indent: str) -> Iterator[str]:
    """Yield the lines of a key of YAML, or of the dash of a list, and a text."""
    first, *others = _yaml_parts(text, WIDTH - len(indent) - max(len(before), 4))
    yield f"{indent}{before}{first}"
    yield from (f"{indent}    {line}" for line in others)


def docstring_lines(text: str, room: int) -> list[str]:
    """Return the lines of a text, of one line itself, as they can stand in a docstring.

    It holds no quotes that could end it, and nothing that could be taken for an escape.
    """
    harmless = text.replace('"', "'").replace("\\", "/")
    return [part.strip() for part in _parted(harmless, room, str) if part.strip()]


def width_of(text: str) -> int:
    """Return how many columns a text takes."""
    return sum(map(_columns, text))


def _parted(text: str, room: int, written: Callable[[str], str]) -> Iterator[str]:
    """Yield a text in parts of at most `room` columns, broken after spaces where there are some."""
    part, width, last_space = "", 0, 0
    for char in text:
        columns = width_of(written(char))
        while part and width + columns > room:
            cut = last_space or len(part)
            yield part[:cut]
            part, last_space = part[cut:], 0
            width = width_of("".join(map(written, part)))
        part, width = part + char, width + columns
        if char in " \n":
            last_space = len(part)
    yield part


def _widest(char: str) -> str:
    return f"\\{char}" if char in "'\"" else _in_python(char)


def _in_python(char: str) -> str:
    return _NAMED.get(char) or (char if char.isprintable() else _escape(char))


def _in_yaml(char: str) -> str:
    return '\\"' if char == '"' else _in_python(char)


def _escape(char: str) -> str:
    """Return the escape of a character; Python and YAML have the same ones."""
    code = ord(char)
    for digits, letter in ((2, "x"), (4, "u")):
        if code < 16**digits:
            return f"\\{letter}{code:0{digits}x}"
    return f"\\U{code:08x}"


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


_SPACES = re.compile(r"\s+")
_NO_LETTERS = re.compile(r"[^\w]+|_+")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_WIDEST_SLUG = 40
"""Columns: the line that begins a function with the longest category is not too long then."""

_LONGEST_NAME = 100


def one_line(text: str, limit: int) -> str:
    """Return a text in one line of at most `limit` characters, with nothing that is not seen."""
    beginning = text[: 4 * limit]
    seen = "".join(char if char.isprintable() else " " for char in beginning)
    return _cut(_SPACES.sub(" ", seen).strip(), limit)


def spoken(text: str, limit: int) -> str:
    """Return what a user says, as it is but for what no file and no agent can hold."""
    return _cut(_UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[: limit + 1]), limit).strip()


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a tool: short, and nothing in it that is not seen."""
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable() and text == text.strip()


def slug(text: str) -> str:
    """Return the words of a text as a part of a file's name, and of a function's.

    That is lower case, digits and underscores; letters of other alphabets stay, accents do not.
    """
    letters = "".join(map(_plain, unicodedata.normalize("NFKC", text.lower())))
    # Not all that counts as a letter may stand in a name.
    named = "".join(char if f"a{char}".isidentifier() else "_" for char in letters)
    words = _NO_LETTERS.sub("_", unicodedata.normalize("NFKC", named)).strip("_")
    while width_of(words) > _WIDEST_SLUG:
        words = words[:-1]
    return words.rstrip("_") or "scenario"


def _plain(letter: str) -> str:
    """Return a letter without its accents, if what is left is one of ASCII."""
    parts = unicodedata.normalize("NFKD", letter)
    bare = "".join(part for part in parts if not unicodedata.combining(part))
    return bare if bare.isascii() else letter


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
