"""Texts of Datasette's own pages with everything written out that is not meant to be read.

A value can be in many places of such a page: in a cell, as the label of a link, among the facets,
in the title. So it is the page that is gone through, not its cells.
"""

from __future__ import annotations

import re

from kindlm.reports.untrusted import Escapes, visible

__all__ = ["visible_page"]

# Values are escaped in pages: `<` and `>` are those of tags. What a form sends back, and what runs,
# stays as it is. Styles hold names of columns, which narrow screens show.
_PART = re.compile(
    r"(?P<style><style\b.*?</style\s*>)"
    r"|(?P<kept><!--.*?-->|<(?P<name>script|textarea)\b.*?</(?P=name)\s*>|<[^>]*>)"
    r"|(?P<text>[^<]+)",
    re.DOTALL | re.IGNORECASE,
)


def visible_page(page: str) -> str:
    r"""Return an HTML document in whose texts controls, direction marks and the like are shown."""
    return _PART.sub(_visible, page)


def _visible(found: re.Match[str]) -> str:
    if found["style"] is not None:
        return _IN_STYLES.written(found["style"])
    return visible(found["text"]) if found["text"] is not None else found[0]


def _in_a_style(char: str) -> str:
    # In a string of CSS a backslash stands for itself when there are two.
    return f"\\{visible(char)}"


_IN_STYLES = Escapes(_in_a_style)
