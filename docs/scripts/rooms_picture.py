"""The picture of the rooms in docs/explanation/inside.md, drawn from what they import."""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "kindlm"
_IMPORT = re.compile(r"^\s*from ((?:kindlm|kindlm_store)(?:\.\w+)*) import ", re.MULTILINE)
VALUES = "values"
"""All modules at the top of the package, drawn as one room."""


def rooms_picture() -> str:
    """Return a Mermaid diagram: an arrow for each room that another one imports.

    An arrow is left out where a way over other rooms says the same.
    """
    imports = _imports()
    lines = ["```mermaid", "flowchart TD"]
    for room in sorted(imports):
        beyond = {far for near in imports[room] for far in _reached(near, imports)}
        lines += [f"  {room} --> {near}" for near in sorted(imports[room] - beyond)]
    return "\n".join([*lines, "```"])


def _imports() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        room = _room(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        imported = found.setdefault(room, set())
        for module in _IMPORT.findall(file.read_text("utf-8")):
            imported |= {_room(tuple(module.split(".")))} - {room}
    # The top of the package loads rooms when a test file first asks for a name of theirs, and
    # plugins the checks and providers that packages name.
    found[VALUES] &= {"kindlm_store"}
    return found


def _room(name: tuple[str, ...]) -> str:
    if name[0] == "kindlm_store":
        return "kindlm_store"
    is_package = len(name) > 1 and (PACKAGE / name[1]).is_dir()
    return name[1] if is_package else VALUES


def _reached(room: str, imports: dict[str, set[str]]) -> set[str]:
    """Return the rooms that are reached from one, by one arrow or more."""
    reached: set[str] = set()
    open_ends = [room]
    while open_ends:
        for near in imports.get(open_ends.pop(), set()) - reached:
            reached.add(near)
            open_ends.append(near)
    return reached
