"""Finds the files with tests at a path, and their formats.

A Python file can contain scenarios only if it imports kindlm, itself or through other modules of
its project. kindlm imports no other test files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice
from pathlib import Path

from kindlm.dataclass import dataclass
from kindlm.errors import Err, KindlmError, Ok, Result, SourceLocation, misuse, not_there
from kindlm.formats.recognition import SUFFIXES, FrontEnd, has_name, looks_like_tests, recognised
from kindlm.yaml_document import read_documents

PACK_MARK = "pack:"
"""The prefix of a pack's name. A pack is the scenarios of an installed package."""

WHAT_HOLDS_TESTS = (
    "Tests are in kindlm.yaml and YAML files with `kindlm: 1` at the top; in scenarios, which are "
    "files test_*.py or *_test.py with @scenario functions, or YAML files with `turns` and `says`; "
    "and in EvalView cases, which are YAML or TOML files with `input`, `expected` and `thresholds`."
)
"""The hint for a path without tests."""

_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""Not searched, like hidden folders (.git, .kindlm, .venv) and virtual environments."""

_WITHOUT_SCENARIOS = ("*.egg", "_darcs", "build", "CVS", "dist", "venv", "{arch}")
"""Further folders that pytest does not search by default (`norecursedirs`)."""

_LOOKED_AT = 1 << 20
"""The bytes of a file that are read. A larger file could not be loaded as a suite."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file with tests, and the front end that reads it.

    `suite` is the identity of its suite, if that is not the path of the file.
    """

    path: Path
    front_end: FrontEnd
    suite: str | None = None


@dataclass(frozen=True, slots=True)
class Discovery:
    """The files with tests at a path.

    `ignored` are files that look like tests and are in no known format. `unreadable` are files that
    may hold tests, each with its error. Other files are not reported.
    """

    found: tuple[Found, ...]
    ignored: tuple[Path, ...] = ()
    unreadable: Mapping[Path, KindlmError] = field(default_factory=dict)


def discover(path: Path) -> Result[Discovery]:
    """Return the files with tests at a path, sorted by name.

    It searches all folders below a folder. A named file without tests is an error; in a folder, it
    is ignored.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return Ok(_search(path))
        if not stat.S_ISREG(mode):
            # Reading a pipe or a device may never end.
            return Err(_unreadable(OSError("it is not a regular file"), path))
        is_config = _is_evalview_config(path)
        front_end = None if is_config else _front_end(path, _text(path), _imports, named=True)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        file, _, test = str(path).partition("::")
        hint = "Check the path, or create a first suite: kindlm init"
        if test and Path(file).is_file():
            command = shlex.join((file, "-t", test))
            hint = f"Name the file, and a part of the test's name: {command}"
        return Err(not_there(f"{str(path)!r} does not exist.", hint))
    except OSError as error:
        return Err(_unreadable(error, path))
    if front_end is None:
        message = f"{str(path)!r} contains no tests."
        return Err(misuse(message, WHAT_HOLDS_TESTS, SourceLocation(str(path))))
    return Ok(Discovery((Found(path, front_end),)))


def _search(folder: Path, *, deep: bool = True) -> Discovery:
    found: list[Found] = []
    broken: list[Path] = []
    ignored: list[Path] = []
    unreadable: dict[Path, KindlmError] = {}
    imports = cache(_imports)

    def fail(error: OSError) -> None:
        raise error  # a folder that cannot be listed may hold tests

    below = islice(files_by_folder(folder, fail), None if deep else 1)
    seen: set[str] = set()
    for path in (Path(place, name) for place, names in below for name in names):
        # Several links may lead to a file.
        if not _is_looked_at(path) or (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        try:
            text = _text(path)
            front_end = _front_end(path, text, imports)
        except OSError as error:
            unreadable[path] = _unreadable(error, path)
            continue
        around = path.relative_to(folder).parts[:-1]
        if front_end == "scenario" and any(
            fnmatchcase(part, pattern) for part in around for pattern in _WITHOUT_SCENARIOS
        ):
            continue
        if front_end is not None:
            found.append(Found(path, front_end))
            continue
        if _is_broken(path, text):
            broken.append(path)
        if looks_like_tests(text, _suffix(path)):
            ignored.append(path)
    cases = {item.path.parent for item in found if item.front_end == "evalview"}
    among_cases = [path for path in broken if path.parent in cases]
    found += [Found(path, "evalview") for path in among_cases]
    ignored = [path for path in ignored if path not in among_cases]
    return Discovery(tuple(found), tuple(ignored), unreadable)


def _front_end(path: Path, text: str, imports: _Imports, *, named: bool = False) -> FrontEnd | None:
    """Return the format of a file.

    A kindlm.yaml in no known format counts as a suite, so that its errors are reported, such as a
    slip in its key `tests`. An empty one counts only if the user `named` it.
    """
    is_suite = path.stem == "kindlm" and _suffix(path) in (".yaml", ".yml")
    found = recognised(text, _suffix(path), named=named or is_suite)
    if found is None and is_suite and (named or text.strip()):
        return "kindlm"
    if found is None and _suffix(path) == ".py" and _leads_to_kindlm(path, imports):
        return "scenario"  # from another module: "from helper import *"
    return found


_PROJECT_MARKS = ("pyproject.toml", "kindlm.toml", "kindlm.yaml", "setup.py", ".kindlm", ".git")
_IMPORT = re.compile(r"^[ \t]*(?:from|import)\b[^#\n]*", re.MULTILINE)
_WORD = re.compile(r"\w[\w.]*")

_Imports = Callable[[Path, tuple[Path, ...]], set[Path] | None]
"""Returns the modules in these folders that a file imports, or None if it imports kindlm."""


def _leads_to_kindlm(file: Path, imports: _Imports) -> bool:
    """Return whether a Python file imports kindlm, directly or through modules of its project."""
    first = file.resolve()
    folders = _folders(first)
    waiting, seen = [first], {first}
    while waiting:
        modules = imports(waiting.pop(), folders)
        if modules is None:
            return True
        waiting += modules - seen
        seen |= modules
    return False


def _imports(file: Path, folders: tuple[Path, ...]) -> set[Path] | None:
    """Read the lines that begin with `from` or `import`. Each word may be a module."""
    found = set[Path]()
    for word in _WORD.findall(" ".join(_IMPORT.findall(_text(file)))):
        parts = word.strip(".").split(".")
        if parts[0] == "kindlm":
            return None
        for folder in folders:
            for length in range(1, len(parts) + 1):
                module = folder.joinpath(*parts[:length])
                files = (module.with_suffix(".py"), module / "__init__.py")
                found |= {path for path in files if path.is_file()}
    return found


def _folders(file: Path) -> tuple[Path, ...]:
    """Return the folders with modules of a file's project: from its own to the top, and `src`."""
    for number, folder in enumerate(file.parents, start=1):
        if any((folder / name).exists() for name in _PROJECT_MARKS):
            return (*file.parents[:number], folder / "src")
    return (file.parent,)


def pack_in(path: Path) -> str | None:
    """Return the part of a path that names a pack, or a file of one: `pack:NAME`, `pack:NAME/FILE`.

    A recorded path may have the folder of the project before it. None stands for a path without
    such a part, or one that exists.
    """
    at = next((at for at, part in enumerate(path.parts) if part.startswith(PACK_MARK)), None)
    return None if at is None or path.exists() else "/".join(path.parts[at:])


def cases_in(folder: Path) -> tuple[Path, ...]:
    """Return the EvalView test cases of a folder, without the folders below it, sorted by name.

    These include files that cannot be read, and files with a name and a syntax error: they may be
    cases.
    """
    try:
        held = _search(folder, deep=False)
    except OSError:
        return ()
    cases = {item.path for item in held.found if item.front_end == "evalview"}
    cases |= {path for path in held.unreadable if _suffix(path) != ".py"}
    return tuple(sorted(cases))


def _is_broken(path: Path, text: str) -> bool:
    """Return whether a file is YAML with a `name`, and a syntax error that may hide other keys."""
    if not has_name(text, _suffix(path)):
        return False
    data = text.encode()
    # A text that was cut has a syntax error at its end.
    return len(data) < _LOOKED_AT and not read_documents(data, merges=True).readable


def files_by_folder(
    folder: Path, on_error: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder to search, with the names of its files.

    A folder to which several links lead is yielded once.
    """
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True, onerror=on_error):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not is_skipped(Path(place, name)))
        yield place, sorted(files)


def is_skipped(folder: Path) -> bool:
    """Return whether a folder is not searched: hidden, of packages, or a virtual environment."""
    name = folder.name
    return name.startswith(".") or name in _SKIPPED_FOLDERS or (folder / "pyvenv.cfg").is_file()


def _text(path: Path) -> str:
    """Return the beginning of a file. In another encoding than UTF-8 it is recognised, too."""
    with path.open("rb") as file:
        data = file.read(_LOOKED_AT)
    return data.decode(json.detect_encoding(data[:4]), errors="replace")


def _is_looked_at(path: Path) -> bool:
    """Tell whether a file in a folder is read; names of Python files are those of pytest."""
    if _suffix(path) == ".py":
        may_hold_tests = path.name.startswith("test_") or path.stem.endswith("_test")
    else:
        may_hold_tests = _suffix(path) in SUFFIXES and not _is_evalview_config(path)
    return may_hold_tests and path.is_file()


def _suffix(path: Path) -> str:
    return path.suffix.lower()


def _is_evalview_config(path: Path) -> bool:
    return path.stem == ".evalview" or (path.stem == "config" and path.parent.name == ".evalview")


def _unreadable(error: OSError, path: Path) -> KindlmError:
    place = str(error.filename or path)
    message = f"{place!r} cannot be read: {error.strerror or error}."
    hint = "Check its permissions, or name the files to use one by one."
    return not_there(message, hint, SourceLocation(place))
