"""Names of tools that differ in spelling alone: `read_file`, `Read-File`, `readFile`."""

from __future__ import annotations

from collections.abc import Iterable

from kindlm.wording import shown

__all__ = ["normalised", "spelling_hint"]


def normalised(name: str) -> str:
    """Return a name without what its spelling may differ in: case, `_` and `-`."""
    return name.lower().replace("_", "").replace("-", "")


def spelling_hint(name: str, called: Iterable[str]) -> str:
    """Return a sentence about a called tool whose name is spelt otherwise, or an empty text."""
    wanted = normalised(name)
    other = next((tool for tool in called if tool != name and normalised(tool) == wanted), None)
    if other is None:
        return ""
    return f" {shown(other)} was called: names have to be spelt alike."
