"""Whether a Python file comes to import kindlm: by itself, or by the modules that it imports.

A scenario can only be in a file that does, since nothing else makes one. Other test files of a
project are not imported for it. Nothing is run to find that out: files are read, and what they
import is looked for where Python would find it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

_LOOKED_AT = 1 << 20
"""Bytes of a file that are read."""

_OURS = "kindlm"
_PROJECT_MARKS = ("pyproject.toml", "kindlm.toml", "kindlm.yaml", "setup.py", ".kindlm", ".git")
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_LINE = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\.*)([\w.]*)", re.MULTILINE)
_REQUIREMENT = re.compile(rf"{_OURS}(?![\w.-])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Name:
    """A module that is imported, or what may be one; `level` counts the dots before it."""

    level: int
    parts: tuple[str, ...]
    is_guess: bool = False


class ImportReader:
    """Reads what files import, each once, and finds where that is."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._read: dict[tuple[Path, tuple[Path, ...]], tuple[bool, frozenset[Path]]] = {}
        self._found: dict[str, tuple[Path, ...]] = {}

    def leads_to_kindlm(self, file: Path) -> bool:
        """Return whether importing a file would import kindlm. Never raises."""
        from kindlm.user_modules import import_root  # only where there are Python files

        first = file.resolve()
        root = import_root(first)
        folders, own = _folders(root), root / first.relative_to(root).parts[0]
        waiting, seen = [first], {first}
        while waiting:
            here = waiting.pop()
            is_ours, modules = self._imports(here, folders)
            if is_ours:
                return True
            if _is_installed(here) and not here.is_relative_to(own):
                continue  # What it imports in turn is its distribution's to require.
            waiting += modules - seen
            seen |= modules
        return False

    def _imports(self, file: Path, folders: tuple[Path, ...]) -> tuple[bool, frozenset[Path]]:
        """Return whether a file itself imports kindlm, and the files of what else it imports."""
        key = (file, folders)
        if key not in self._read:
            names = set(_imported(file))
            is_ours = any(self._is_ours(name, folders) for name in names)
            found = (m for name in names for m in self._modules(name, file, folders))
            self._read[key] = (is_ours, frozenset() if is_ours else frozenset(found))
        return self._read[key]

    def _is_ours(self, name: _Name, folders: tuple[Path, ...]) -> bool:
        """Return whether a module is kindlm, or of an installed package that requires it."""
        if name.level or not name.parts:
            return False
        top = name.parts[0]
        if top == _OURS:
            return True
        here = () if name.is_guess else self._places(top, folders)
        return any(map(_is_installed, here)) and top in self._requiring_kindlm

    def _modules(self, name: _Name, file: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
        """Yield the files that an import in `file` may run."""
        if name.level:
            above = file.parents
            base = above[min(name.level, len(above)) - 1]
            yield from _along(base.parent, (base.name, *name.parts))
        elif name.parts:
            top = name.parts[0]
            here = _standing_in(folders, top) if name.is_guess else self._places(top, folders)
            for folder in here:
                yield from _along(folder, name.parts)

    def _places(self, top: str, folders: tuple[Path, ...]) -> tuple[Path, ...]:
        """Return the folders that a module may be in: those of the project come first."""
        here = _standing_in(folders, top)
        if not here and top not in self._found:
            self._found[top] = _elsewhere(top)
        return here or self._found[top]

    @cached_property
    def _requiring_kindlm(self) -> frozenset[str]:
        """Return the modules of the installed packages that require kindlm."""
        found: set[str] = set()
        for each in distributions():
            if any(_REQUIREMENT.match(required) for required in each.requires or ()):
                files = each.files or ()
                found.update(path.parts[0].removesuffix(".py") for path in files if path.parts)
        return frozenset(found)


def _imported(file: Path) -> Iterator[_Name]:
    try:
        with file.open("rb") as opened:
            data = opened.read(_LOOKED_AT)
    except OSError:
        return
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # One that is broken may hold scenarios all the same: its error is to be told then.
        for dots, name in _LINE.findall(data.decode(errors="replace")):
            yield _Name(len(dots), _parts(name))
        return
    for node in ast.walk(tree):
        yield from _imported_by(node)


def _imported_by(node: ast.AST) -> Iterator[_Name]:
    match node:
        case ast.Import():
            for each in node.names:
                yield _Name(0, _parts(each.name))
        case ast.ImportFrom():
            parts = _parts(node.module or "")
            yield _Name(node.level, parts)
            for each in node.names:
                # It may be a module itself.
                yield _Name(node.level, (*parts, each.name))
        case ast.Call():
            # importlib.import_module, pytest.importorskip, __import__, by whichever name.
            for argument in node.args:
                value = argument.value if isinstance(argument, ast.Constant) else None
                if isinstance(value, str) and _MODULE.fullmatch(value):
                    yield _Name(0, _parts(value), is_guess=True)


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split(".") if part)


def _folders(root: Path) -> tuple[Path, ...]:
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


def _standing_in(folders: tuple[Path, ...], top: str) -> tuple[Path, ...]:
    return tuple(
        each for each in folders if (each / f"{top}.py").is_file() or (each / top).is_dir()
    )


def _elsewhere(top: str) -> tuple[Path, ...]:
    """Return the folders in which Python would find a module; none of what comes with Python."""
    if top in sys.stdlib_module_names:
        return ()
    try:
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return ()
    if spec is None:
        return ()
    places = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
    return tuple(Path(place).resolve().parent for place in places)


def _is_installed(place: Path) -> bool:
    """Return whether something is of a package that is installed, rather than of a project."""
    return bool(_INSTALLED & set(place.parts))
