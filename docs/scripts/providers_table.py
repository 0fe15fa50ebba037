"""Writes the table of presets for `providers.md`, from what kindlm knows of them."""

from __future__ import annotations

import re

from kindlm.packages import all_own
from kindlm.plugins import Provider


def providers_table() -> str:
    """Return a row for each provider that knows its address."""
    head = "| `type` | provider | address | key | embeds texts |\n| --- | --- | --- | --- | --- |"
    rows = [
        f"| `{name}` | {re.split('[,.]', kind.__doc__ or '')[0]} | `{kind.usual_base_url}` |"
        f" {_code(kind.usual_key_variable)} | {'yes' if kind.embeds else '–'} |"
        for name, kind in all_own(Provider).items()
        if kind.usual_base_url is not None
    ]
    return "\n".join([head, *rows]) + "\n"


def _code(text: str | None) -> str:
    return "–" if text is None else f"`{text}`"
