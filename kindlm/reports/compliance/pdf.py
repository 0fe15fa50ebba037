"""The compliance document as PDF, for those who file documents. Needs the extra `pdf`.

The Markdown is read by a parser that takes no HTML, so that nothing of a text becomes markup.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result

__all__ = ["pdf_of"]

_FONTS = (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
    "/usr/share/fonts/TTF/DejaVuSans.ttf",
    "/Library/Fonts/Arial Unicode.ttf",
    "/System/Library/Fonts/Supplemental/Arial Unicode.ttf",
)
"""Where systems keep a font that has more than Latin letters."""

_SIZE = 9

_CELL = re.compile(r"<(td|th)\b([^>]*)>(.*?)</t[dh]>", re.DOTALL)
_MARKUP = re.compile(r"</?(?:code|strong|em)>")


def pdf_of(markdown: str, made: str) -> Result[bytes]:
    """Return the PDF of a document; the same document gives the same bytes on the same system.

    Args:
        markdown: The document.
        made: When its run ended, UTC, ISO 8601: the PDF is dated so.

    Without a font for other letters than Latin ones, those are shown as `?`; an error tells that
    the extra is not installed.
    """
    try:
        from fpdf import FPDF, FontFace
        from markdown_it import MarkdownIt
    except ImportError:
        return Err(_no_extra())
    pdf = FPDF(format="A4")
    pdf.set_creation_date(datetime.fromisoformat(made).astimezone(UTC))
    pdf.set_title("Test evidence")
    font = next((file for file in _FONTS if Path(file).is_file()), None)
    if font is None:
        markdown = markdown.encode("latin-1", "replace").decode("latin-1")
        pdf.set_font("Helvetica", size=_SIZE)
    else:
        for style in ("", "B", "I", "BI"):
            pdf.add_font("text", style, font)
        pdf.set_font("text", size=_SIZE)
    pdf.add_page()
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    # The writer of PDF knows no markup inside of cells.
    html = _CELL.sub(lambda cell: _cell(*cell.groups()), html)
    # Every head in black: a colour would seem to mean something.
    styles: dict[str, Any] = {
        "code": FontFace(family="text" if font else "Courier"),
        "h1": FontFace(color=0, size_pt=16),
        "h2": FontFace(color=0, size_pt=12),
        "h3": FontFace(color=0, size_pt=10),
    }
    pdf.write_html(html, tag_styles=styles)
    return Ok(bytes(pdf.output()))


def _cell(name: str, style: str, content: str) -> str:
    align = "right" if "right" in style else "left"
    return f'<{name} align="{align}">{_MARKUP.sub("", content)}</{name}>'


def _no_extra() -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "A PDF needs packages that are not installed.",
        "Install them: pip install 'kindlm[pdf]'",
    )
