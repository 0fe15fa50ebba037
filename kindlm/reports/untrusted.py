"""Text that models, tools and agents wrote, made safe for a terminal, JSON and Markdown.

A reply can hold escape sequences that move the cursor, recolour the screen, retitle the window or
fill the clipboard, and characters that are invisible or change the order in which text is read.
All of them are written out before they reach a terminal, and nothing is printed at full length.

In Markdown, as GitHub and GitLab show it, such text is shown as code, where nothing in it is taken
for markup, an image, a link or a mention. Elsewhere every character that could begin such a thing
is escaped.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from kindlm.wording import cut, escape

_KEPT = frozenset("\n\t\u200c\u200d")
"""Line breaks and tabs are harmless; the joiners belong to scripts and to emoji."""

_WRITTEN_OUT = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories: controls, invisible formats (direction, tags), surrogates, separators."""

# Unicode calls them letters, marks and symbols: fillers, joiners that join nothing, a pattern of
# no dots. A variation selector belongs where a character stands that has variants: emoji and
# symbols, digits of keycaps, ideographs. Elsewhere, or one after another, they hide a message.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]"
    "|(?<![0-9#*\u00a9\u00ae\u0100-\u1fff\u200d\u2010-\u27ff\u2801-\u2fff\u3001-\ufdff\ufe30-\U000e00ff])"
    "[\ufe00-\ufe0f]"
    "|(?<![\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
)


class Escapes(dict[int, str]):
    """What is not meant to be read, and what stands for it.

    As a table for `str.translate` it fills itself as characters are met.
    """

    def __init__(self, write_out: Callable[[str], str]) -> None:
        self._write_out = write_out

    def __missing__(self, code: int) -> str:
        char = chr(code)
        kept = char in _KEPT or unicodedata.category(char) not in _WRITTEN_OUT
        shown = char if kept else self._write_out(char)
        # Characters come from outside: what is remembered has to have an end.
        if len(self) < 4096:
            self[code] = shown
        return shown

    def written(self, text: str) -> str:
        """Return a text with everything that is not meant to be read written out."""
        if text.isascii() and text.isprintable():
            return text
        seen = _BLANK.sub(lambda match: self._write_out(match[0]), text)
        return seen if seen.isprintable() else seen.translate(self)


_ESCAPES = Escapes(escape)


def visible(text: str) -> str:
    r"""Return a text with everything that is not meant to be read written out, such as `\x1b`.

    Line breaks and tabs stay; `\r\n` is a line break.
    """
    return _ESCAPES.written(text.replace("\r\n", "\n"))


def one_line(text: str, characters: int = 200) -> str:
    """Return the beginning of a name, or of another text, as one line that is safe to print."""
    return visible(cut(text, characters)).replace("\n", "\\n").replace("\t", "\\t")


def bounded(text: str, characters: int, lines: int | None = None) -> str:
    """Return the beginning of a text, with a note of how much was left out.

    Args:
        text: Any text; it is cut before it is made visible.
        characters: How many characters may stay.
        lines: How many lines may stay, None for any number.
    """
    kept = text[:characters]
    if lines is not None and kept.count("\n") >= lines:
        kept = "\n".join(kept.split("\n", lines)[:lines])
    left_out = len(text) - len(kept)
    if not left_out:
        return text
    noun = "character" if left_out == 1 else "characters"
    return f"{kept}… ({left_out:,} more {noun})"


def printed_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON without characters that change what is seen around them.

    Raises:
        ValueError: It holds a number that is not finite, which JSON has no words for.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    # Outside of its strings JSON is ASCII, and of that only the line breaks of `indent` are met.
    return _IN_JSON.written(text)


def json_document(**values: Any) -> str:
    """Return what a command prints for programs, with the version of its form."""
    return printed_json({"schemaVersion": 1, **values}, indent=2) + "\n"


_IN_JSON = Escapes(lambda char: json.dumps(char)[1:-1])


_CODE = 600
_ENTITIES = str.maketrans(
    {char: f"&#{ord(char)};" for char in "\"'`#*_[]()!|~\\"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_ACTIVE = re.compile(r"[@#:](?=[\w/])|(?<=www)(?=\.)", re.IGNORECASE)
"""Mentions, numbers of issues, addresses and emoji are looked for when entities are gone."""

_TICKS = re.compile("`+")


def code(text: str, characters: int = _CODE) -> str:
    """Return the beginning of a text as code on one line, whatever it holds."""
    shown = one_line(text, characters)
    fence = "`" * (_longest_ticks(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{space}{shown}{space}{fence}"


def cell(text: str, characters: int = _CODE) -> str:
    """Return a text as code in a table, where a bar would end the cell, code or not."""
    # A backslash before it does not help: one that the text has there escapes the other.
    in_html = "|" in text
    return f"<code>{plain(text, characters)}</code>" if in_html else code(text, characters)


def block(text: str, language: str = "") -> str:
    """Return a text as a block of code that nothing in it can end."""
    fence = "`" * max(3, _longest_ticks(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def plain(text: str, characters: int = _CODE) -> str:
    """Return a text as a part of a sentence, without anything that is taken for markup."""
    inert = _ACTIVE.sub(lambda match: f"{match[0]}\u200b", one_line(text, characters))
    return inert.translate(_ENTITIES)


def html_code(text: str) -> str:
    """Return a name inside of HTML, as code."""
    return f"<code>{one_line(text).translate(_ENTITIES)}</code>"


def _longest_ticks(text: str) -> int:
    return max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
