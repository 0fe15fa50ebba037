"""From a template and facts to Markdown, in which whatever the facts hold is text.

A fact says how it is to be escaped wherever Jinja asks for that (`__html__`), and what is put in
the place of an expression is escaped if it was not before. So Markdown of others stays text also
where a template joins it with what is safe.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from kindlm.reports.compliance.articles import articles_for
from kindlm.reports.markdown_text import cell, plain
from kindlm.reports.untrusted import visible

_EXACT = re.compile(r"sha256:[0-9a-f]{64}|[0-9TZ:. +-]+", re.ASCII)
_BREAKS = re.compile(r"\s*\n\s*")
_NO_WIDTH = "\u200b"

_NOT_SAFE = ("tojson", "urlize", "xmlattr")
"""What these filters return counts as safe, and is so in HTML alone."""

_NOT_THE_SAME = ("random",)
"""Filters that give another document each time."""


class TooLongError(Exception):
    """A document has more bytes than it may have."""


def render(source: str, facts: Mapping[str, Any], most_bytes: int | None = None) -> str:
    """Return what a template says of facts; the same facts give the same text.

    Args:
        source: The template; it reaches nothing but the facts.
        facts: Values of JSON.
        most_bytes: How many bytes of UTF-8 it may have, None for any number.

    Raises:
        TooLongError: It has more bytes.
        Exception: Whatever the expressions of the template raise.
    """
    template = _environment().from_string(source)
    values = {name: _fact(value) for name, value in facts.items()}
    pieces: list[str] = []
    length = 0
    for piece in template.generate(values, articles=articles_for(facts["gates"])):
        # The spaces of no width are ours: they keep mentions and addresses from being taken so.
        shown = _NO_WIDTH.join(visible(part) for part in piece.split(_NO_WIDTH))
        length += len(shown.encode())
        if most_bytes is not None and length > most_bytes:
            raise TooLongError
        pieces.append(shown)
    return "".join(pieces)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    escaping = dict.fromkeys(("md", "e", "escape", "forceescape"), _markdown)
    environment.filters.update(escaping, code=_code, when=_when)
    for name in (*_NOT_SAFE, *_NOT_THE_SAME):
        del environment.filters[name]
    del environment.globals["lipsum"]  # random words
    return environment


class _Text(str):
    """A text of the facts, which is escaped for Markdown wherever it meets what is safe."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(_markdown(str(self)))


def _fact(value: Any) -> Any:
    match value:
        case str():
            return _Text(value)
        case list() | tuple():
            return [_fact(item) for item in value]
        case Mapping():
            return {name: _fact(item) for name, item in value.items()}
        case _:
            return value


def _markdown(value: object) -> object:
    """Return a text so that Markdown shows it as it is; what was made safe before stays so."""
    if isinstance(value, Markup | int | float):
        return value
    # What somebody wrote in several lines is a sentence here.
    text = _BREAKS.sub(" ", _text(value).strip())
    # Hashes and times hold nothing to escape, and are to be copied as they are.
    # What it does not show is no evidence: nothing is cut.
    return Markup(text if _EXACT.fullmatch(text) else plain(text, len(text)))  # noqa: S704


def _code(value: object) -> Markup:
    text = _text(value)
    return Markup(cell(text, len(text)))  # noqa: S704


def _when(at: str) -> Markup:
    """Return a time of the log, UTC in ISO 8601, as people read it."""
    shown = at[:19].replace("T", " ")
    return Markup(f"{shown if _EXACT.fullmatch(shown) else plain(shown)} UTC")  # noqa: S704


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    if value is not None and not isinstance(value, int | float | Collection):
        # Functions and the like: Python tells where in memory they are, another place each time.
        raise TypeError(f"a value of type {type(value).__name__} can not be shown")
    return visible(text)
