"""Text that models, agents and users wrote, made safe for Markdown as GitHub and GitLab show it.

It is shown as code, where nothing in it is taken for markup, an image, a link or a mention of
somebody, or with every character escaped that could begin such a thing.
"""

from __future__ import annotations

import re

from kindlm.reports.untrusted import one_line

MOST_BYTES = 55_000
"""A comment on GitHub holds 65,536 characters; others hold less."""

_CODE = 600
_ENTITIES = {char: f"&#{ord(char)};" for char in "\"'`#*_[]()!|~\\"} | {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
}
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
    return _with_entities(inert)


def html_code(text: str) -> str:
    """Return a name inside of HTML, as code."""
    return f"<code>{_with_entities(one_line(text))}</code>"


def _with_entities(text: str) -> str:
    return "".join(_ENTITIES.get(char, char) for char in text)


def _longest_ticks(text: str) -> int:
    return max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
