"""From the facts of a suite to its document: the words of a template, and the hash of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from kindlm.reports.compliance.rendering import render
from kindlm.reports.compliance.template_process import TemplateFailedError, render_apart
from kindlm.reports.markdown_text import code, plain

__all__ = ["SEPARATOR", "Document", "write_document"]

SEPARATOR = "\n---\n"
"""Between what the hash covers and the hash."""

_BLANKS = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Document:
    """The document of a suite; `problem` says what is wrong with its template, if it failed."""

    text: str
    problem: str | None = None


def write_document(facts: Mapping[str, Any], template: tuple[str, str] | None) -> Document:
    """Return the document of a suite: Markdown, a separator, and the SHA-256 of what is above it.

    A template of the user, its file and its text, has little time and memory, and reaches nothing
    but the facts. One that fails says so in the document's place, so that a run is never lost for
    its report.
    """
    if template is None:
        return Document(_sealed(render(_own_template(), facts)))
    file, source = template
    try:
        return Document(_sealed(render_apart(source, facts)))
    except TemplateFailedError as error:
        told = f"Its template {code(file)} failed: {plain(str(error))}."
        return Document(
            _sealed(f"# The report could not be written\n\n{told}\n"),
            f"The template {file} of the compliance report failed: {error}.",
        )


def _own_template() -> str:
    return files(__package__).joinpath("templates/report.md").read_text("utf-8")


def _sealed(text: str) -> str:
    """Return a text with the hash of it, which anybody can compute who has the file."""
    content = _BLANKS.sub("\n\n", text).strip() + "\n"
    digest = hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()
    return (
        f"{content}{SEPARATOR}\n"
        f"SHA-256 of all above the line: `{digest}`\n\n"
        "Made from recorded events alone: the same history gives the same document.\n"
    )
