"""Whether a Python test file imports kindlm: itself, or through other modules of its project.

A scenario can only be in a file that does, since nothing else makes one. Other test files of a
project are not imported for it. Nothing is run to find that out: files are read, and what they
import is looked for in the folders of the project.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

_LOOKED_AT = 1 << 20
"""Bytes of a file that are read."""

_PROJECT_MARKS = ("pyproject.toml", "kindlm.toml", "kindlm.yaml", "setup.py", ".kindlm", ".git")
_LINE = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\.*)([\w.]*)", re.MULTILINE)
_NAME = re.compile(r"kindlm(?:\.\w+)*")
_REQUIREMENT = re.compile(r"kindlm(?![\w.-])", re.IGNORECASE)

Folders = tuple[Path, ...]
Known = dict[tuple[Path, Folders], tuple[bool, frozenset[Path]]]
"""What is known of files that were read: see `_read`."""

_Module = tuple[int, tuple[str, ...]]
"""A module that is imported, or what may be one: the dots before it, and the parts of its name."""


def leads_to_kindlm(file: Path, known: Known) -> bool:
    """Return whether importing a file would import kindlm. Never raises."""
    from kindlm.user_modules import import_root  # only where there are Python files

    first = file.resolve()
    folders = _folders(import_root(first))
    waiting, seen = [first], {first}
    while waiting:
        here = waiting.pop()
        if (here, folders) not in known:
            known[here, folders] = _read(here, folders)
        is_ours, modules = known[here, folders]
        if is_ours:
            return True
        waiting += modules - seen
        seen |= modules
    return False


def _read(file: Path, folders: Folders) -> tuple[bool, frozenset[Path]]:
    """Return whether a file itself imports kindlm, and the files of what else it imports."""
    found = set[Path]()
    for level, parts in _imported(file):
        if level:
            base = file.parents[min(level, len(file.parents)) - 1]
            modules = {*_along(base.parent, (base.name, *parts))}
        else:
            modules = {module for folder in folders for module in _along(folder, parts)}
            top = parts[0] if parts else ""
            may_be_installed = top and not modules and top not in sys.stdlib_module_names
            if top == "kindlm" or (may_be_installed and top in _requiring_kindlm()):
                return True, frozenset()
        found |= modules
    return False, frozenset(found)


@cache
def _requiring_kindlm() -> frozenset[str]:
    """Return the modules of the installed packages that require kindlm."""
    found: set[str] = set()
    for each in distributions():
        if any(_REQUIREMENT.match(required) for required in each.requires or ()):
            found.add(each.name.replace("-", "_"))
            found.update(path.parts[0].removesuffix(".py") for path in each.files or ())
    return frozenset(found)


def _imported(file: Path) -> tuple[_Module, ...]:
    """Return what a file imports; of one with a syntax error, what its lines say."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LOOKED_AT)
    except OSError:
        return ()
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        lines = _LINE.findall(data.decode(errors="replace"))
        return tuple((len(dots), _parts(name)) for dots, name in lines)
    found: list[_Module] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                found += [(0, _parts(each.name)) for each in node.names]
            case ast.ImportFrom():
                parts = _parts(node.module or "")
                # What is imported from a module may be a module itself.
                found += [(node.level, (*parts, each.name)) for each in node.names]
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _NAME.fullmatch(name):
                # As in `importlib.import_module("kindlm")` and `pytest.importorskip("kindlm")`.
                found.append((0, _parts(name)))
    return tuple(found)


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split(".") if part)


def _folders(root: Path) -> Folders:
    """Return where modules of a project may be: above `root` up to the folder of the project."""
    folders = [root, *root.parents]
    ends = (
        at for at, each in enumerate(folders) if any((each / n).exists() for n in _PROJECT_MARKS)
    )
    end = next(ends, None)
    if end is None:
        return (root,)
    return (*folders[: end + 1], folders[end] / "src")


def _along(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files that are run when a module is imported: its packages', and its own."""
    for part in parts:
        if (inside := folder / part).is_dir():
            folder = inside
            if (package := inside / "__init__.py").is_file():
                yield package
        else:
            if (module := folder / f"{part}.py").is_file():
                yield module
            return
