"""Text that models, tools and agents wrote, made safe for a terminal, JSON and Markdown.

It may contain escape sequences, which can move the cursor or fill the clipboard, and characters
that are invisible or change the direction of text. `visible` writes all of them out.

In Markdown of GitHub and GitLab, such text is shown as code, where nothing becomes markup, an
image, a link or a mention. In sentences, every character that could begin one is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kindlm.normal_form import INVISIBLE
from kindlm.wording import count, cut, escape

# Invisible characters, but not the joiners, which scripts and emoji need, and the selectors below;
# controls, but not line breaks and tabs; separators, surrogates, private ones and noncharacters.
_UNREADABLE = re.compile(
    f"[{INVISIBLE}\x0b-\r\x85\u2028\u2029\ud800-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]"
    "(?<![\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef])"
)

# A variation selector is only kept after a character that has variants: emoji, symbols, digits of
# keycaps, ideographs, Mongolian letters. Others could hide a message.
_SELECTOR = re.compile(
    "(?<![0-9#*\u00a9\u00ae\u0100-\u1fff\u200d\u2010-\u27ff\u2801-\u2fff\u3001-\ufdff\ufe30-\U000e00ff])"
    "[\ufe00-\ufe0f]"
    "|(?<![\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
    "|(?<![\u1800-\u180a\u1820-\u18aa])[\u180b-\u180d\u180f]"
)


def written_out(text: str, write_out: Callable[[str], str]) -> str:
    """Return a text in which `write_out` replaces each unreadable character."""
    if text.isascii() and text.isprintable():
        return text

    def escaped(match: re.Match[str]) -> str:
        return write_out(match[0])

    return _UNREADABLE.sub(escaped, _SELECTOR.sub(escaped, text))


def visible(text: str) -> str:
    r"""Return a text with unreadable characters written out, such as `\x1b`.

    Line breaks and tabs stay; `\r\n` becomes `\n`.
    """
    return written_out(text.replace("\r\n", "\n"), escape)


def one_line(text: str, characters: int = 200) -> str:
    """Return the beginning of a text as one line that is safe to print."""
    return visible(cut(text, characters)).replace("\n", "\\n").replace("\t", "\\t")


def bounded(text: str, characters: int, lines: int | None = None) -> str:
    """Return at most so many characters and lines of a text, and how much was left out.

    Cut a text before making it `visible`.
    """
    kept = text[:characters]
    if lines is not None and kept.count("\n") >= lines:
        kept = "\n".join(kept.split("\n", lines)[:lines])
    left_out = len(text) - len(kept)
    if not left_out:
        return text
    return f"{kept}… ({count(left_out, 'more character')})"


def json_shown(value: Any, limit: int) -> str:
    """Return a JSON value on one line, with limited length."""
    text = json.dumps(value, ensure_ascii=False)
    return visible(bounded(text, limit)).replace("\n", " ")


def printed_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON, with unreadable characters escaped.

    Raises:
        ValueError: It contains a number that is not finite, which JSON does not support.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    # Outside of strings, JSON has no unreadable characters but line breaks, which stay.
    return written_out(text, lambda char: json.dumps(char)[1:-1])


def json_document(**values: Any) -> str:
    """Return the JSON that a command prints, with the version of its schema."""
    return printed_json({"schemaVersion": 1, **values}, indent=2) + "\n"


def json_in_pieces(
    head: Mapping[str, Any], name: str, items: Iterable[Any], **tail: Any
) -> Iterator[str]:
    """Yield a JSON object: some values, a list, whose items are read one by one, and the others."""
    yield "{\n"
    for key, value in head.items():
        yield f'  "{key}": {printed_json(value)},\n'
    yield f'  "{name}": ['
    separator = "\n    "
    for item in items:
        yield separator + printed_json(item)
        separator = ",\n    "
    yield "\n  ]"
    for key, value in tail.items():
        yield f',\n  "{key}": {printed_json(value)}'
    yield "\n}\n"


_CODE = 600
_ENTITIES = str.maketrans(
    {char: f"&#{ord(char)};" for char in "\"'`#*_[]()!|~\\"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_ACTIVE = re.compile(r"[@#:](?=[\w/])|(?<=www)(?=\.)", re.IGNORECASE)
"""Services find mentions, issue numbers, addresses and emoji after resolving entities."""

_TICKS = re.compile("`+")


def code(text: str, characters: int = _CODE) -> str:
    """Return the beginning of a text as code on one line."""
    shown = one_line(text, characters)
    fence = "`" * (_longest_ticks(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{space}{shown}{space}{fence}"


def cell(text: str) -> str:
    """Return a text as code in a table, where a bar would end the cell even in code."""
    # A backslash cannot escape the bar: the text may have another one before it.
    return f"<code>{plain(text)}</code>" if "|" in text else code(text)


def block(text: str) -> str:
    """Return a text as a block of code that nothing in it can end."""
    fence = "`" * max(3, _longest_ticks(text) + 1)
    return f"{fence}\n{text}\n{fence}\n"


def plain(text: str, characters: int = _CODE) -> str:
    """Return the beginning of a text for a sentence, without any markup."""
    inert = _ACTIVE.sub(lambda match: f"{match[0]}\u200b", one_line(text, characters))
    return inert.translate(_ENTITIES)


def html_code(text: str) -> str:
    """Return a name as code in HTML."""
    return f"<code>{one_line(text).translate(_ENTITIES)}</code>"


def _longest_ticks(text: str) -> int:
    return max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
