"""Whether a pyproject.toml has a table for kindlm, also where it can not be read as TOML."""

from __future__ import annotations

import re

_TABLE = re.compile(
    r"""^[ \t]*(?:\[{1,2}[ \t]*)?["']?tool["']?[ \t]*\.[ \t]*["']?kindlm["']?[ \t]*[].=]""",
    re.MULTILINE,
)


def names_kindlm(text: str) -> bool:
    """Tell whether a text has the beginning of a table `[tool.kindlm]`."""
    return _TABLE.search(text) is not None
