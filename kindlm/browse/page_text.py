"""Texts of Datasette's own pages with everything written out that is not meant to be read.

A value can be in many places of such a page: in a cell, as the label of a link, among the facets,
in the title. So it is the page that is gone through, not its cells.
"""

from __future__ import annotations

import re

from kindlm.reports.untrusted import visible

__all__ = ["visible_page"]

# Values are escaped in pages: `<` and `>` are those of tags. What a form sends back, and what runs,
# stays as it is.
_PART = re.compile(
    r"(?P<kept><!--.*?-->|<(?P<name>script|style|textarea)\b.*?</(?P=name)\s*>|<[^>]*>)"
    r"|(?P<text>[^<]+)",
    re.DOTALL | re.IGNORECASE,
)


def visible_page(page: str) -> str:
    r"""Return an HTML document in whose texts controls, direction marks and the like are shown."""
    return _PART.sub(_visible, page)


def _visible(found: re.Match[str]) -> str:
    return visible(found["text"]) if found["text"] is not None else found[0]
