"""From the facts of a suite to its document: the words of a template, and the hash of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from kindlm.reports.compliance.articles import articles_for
from kindlm.reports.markdown_text import cell, plain
from kindlm.reports.untrusted import one_line, visible

__all__ = ["SEPARATOR", "write_document"]

SEPARATOR = "\n---\n"
"""Between what the hash covers and the hash."""

_EXACT = re.compile(r"sha256:[0-9a-f]{64}|[0-9TZ:. +-]+", re.ASCII)
_NO_WIDTH = "\u200b"
_BLANKS = re.compile(r"\n{3,}")


def write_document(facts: Mapping[str, Any]) -> str:
    """Return the document of a suite: Markdown, a separator, and the SHA-256 of what is above it.

    A template of the user can not reach anything but the facts. One that fails says so in the
    document's place, so that a run is never lost for its report.
    """
    try:
        text = _fill(facts)
    except (
        TemplateError,
        ArithmeticError,
        TypeError,
        ValueError,
        LookupError,
        MemoryError,
    ) as error:
        text = f"# The report could not be written\n\nIts template failed: {plain(str(error))}\n"
    content = _BLANKS.sub("\n\n", text).strip() + "\n"
    digest = hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()
    return (
        f"{content}{SEPARATOR}\n"
        f"SHA-256 of all above the line: `{digest}`\n\n"
        "Made from recorded events alone: the same history gives the same document.\n"
    )


def _fill(facts: Mapping[str, Any]) -> str:
    template = facts["template"] if facts["framework"] == "custom" else None
    source = template or files(__package__).joinpath("templates/report.md").read_text("utf-8")
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(md=_markdown, code=_code, when=_when)
    values = {name: value for name, value in facts.items() if name != "template"}
    text = environment.from_string(source).render(values, articles=articles_for(facts["gates"]))
    # The spaces of no width are ours: they keep mentions and addresses from being taken for such.
    return _NO_WIDTH.join(visible(part) for part in text.split(_NO_WIDTH))


def _markdown(value: object) -> object:
    """Return a text so that Markdown shows it as it is; what was made safe before stays so."""
    if isinstance(value, Markup | int | float):
        return value
    text = _text(value)
    # Hashes and times hold nothing to escape, and are to be copied as they are.
    return Markup(text if _EXACT.fullmatch(text) else plain(text))  # noqa: S704


def _code(value: object) -> Markup:
    return Markup(cell(_text(value)))  # noqa: S704


def _when(at: str) -> Markup:
    """Return a time of the log, UTC in ISO 8601, as people read it."""
    shown = at[:19].replace("T", " ")
    return Markup(f"{shown if _EXACT.fullmatch(shown) else plain(shown)} UTC")  # noqa: S704


def _text(value: object) -> str:
    return one_line("" if value is None else str(value), 2_000)
