"""Pages as a reader sees them, and texts that try to be more than texts."""

from __future__ import annotations

import html
import re

HOSTILE = "</div><script>alert(1)</script>\u202e\x1b]0;x\x07<svg onload=alert(2)>"


def text_of(page: str) -> str:
    """Return what a reader sees, with spaces folded."""
    shown = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    return one_line(html.unescape(shown))


def one_line(text: str) -> str:
    """Return a text with spaces folded, and so without the breaks that fit it to a width."""
    return " ".join(text.split())


def assert_harmless(page: str) -> None:
    """Nothing of what was written by others is markup, moves a cursor, or turns text around."""
    # A script of the page's own stands behind its content.
    assert "<script" not in page.partition("</main>")[0]
    assert "<svg onload" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", page)
    assert not re.search(r"\sstyle=|\son[a-z]+=\"", page)
