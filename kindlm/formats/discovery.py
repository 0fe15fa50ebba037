"""Finds the files with tests at a path, and their formats.

Only a Python file that imports kindlm, itself or through other modules of its project, can contain
scenarios. Other test files of a project are not imported.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from kindlm.dataclass import dataclass
from kindlm.errors import Err, KindlmError, Ok, Result, SourceLocation, misuse, not_there
from kindlm.formats.recognition import SUFFIXES, FrontEnd, has_name, looks_like_tests, recognised
from kindlm.yaml_document import read_documents

PACK_MARK = "pack:"
"""What the name of a pack stands behind: scenarios of an installed package."""

WHAT_HOLDS_TESTS = (
    "Tests are YAML files called kindlm.yaml or with `kindlm: 1` at their top, and test cases "
    "of EvalView: YAML or TOML files with `input`, `expected` and `thresholds`; and scenarios: "
    "Python files test_*.py or *_test.py with functions under @scenario, or YAML files with "
    "`turns` that hold `says`."
)
"""What to do about a path that holds none."""

_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""Not looked into, as are hidden folders (.git, .kindlm, .venv) and virtual environments."""

_WITHOUT_SCENARIOS = ("*.egg", "_darcs", "build", "CVS", "dist", "venv", "{arch}")
"""Folders in which pytest looks for no tests by default (`norecursedirs`), besides those."""

_LOOKED_AT = 1 << 20
"""Bytes of a file that are looked at; a larger file is not a suite that could be loaded."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file with tests, and the front end that reads it.

    `suite` is what its suite is known by, if that is not where the file is.
    """

    path: Path
    front_end: FrontEnd
    suite: str | None = None


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a path holds; `ignored` are files of a folder that look like tests and are none.

    `unreadable` may hold tests, and says why they cannot be read. Other files, of which every
    project has some, are passed over without a word.
    """

    found: tuple[Found, ...]
    ignored: tuple[Path, ...] = ()
    unreadable: Mapping[Path, KindlmError] = field(default_factory=dict)


def discover(path: Path) -> Result[Discovery]:
    """Return the files with tests at `path`, in the order of their names.

    A folder is searched with all folders below it. A file that was named itself and is no suite
    is an error; in a folder it is ignored.
    """
    try:
        if path.is_dir():
            return Ok(_search(path))
        if not path.exists():
            return Err(_not_there(path))
        if not path.is_file():
            # A pipe or a device may have no end, or no beginning.
            return Err(_unreadable(OSError("it is not a regular file"), path))
        text = _text(path)
    except OSError as error:
        return Err(_unreadable(error, path))
    front_end = None if _is_settings(path) else _front_end(path, text, named=True)
    if front_end is None and _suffix(path) == ".py" and _leads_to_kindlm(path, {}):
        front_end = "scenario"
    if front_end is None:
        message = f"{str(path)!r} holds no tests."
        return Err(misuse(message, WHAT_HOLDS_TESTS, SourceLocation(str(path))))
    return Ok(Discovery((Found(path, front_end),)))


def _search(folder: Path) -> Discovery:
    found: list[Found] = []
    broken: list[Path] = []
    ignored: list[Path] = []
    unreadable: dict[Path, KindlmError] = {}
    imports: _Known = {}
    below = files_by_folder(folder, _raise)
    paths = (Path(place, name) for place, names in below for name in names)
    for path in _each_once(path for path in paths if _is_looked_at(path)):
        try:
            text = _text(path)
        except OSError as error:
            unreadable[path] = _unreadable(error, path)
            continue
        front_end = _front_end(path, text)
        if front_end is None and _suffix(path) == ".py" and _leads_to_kindlm(path, imports):
            # Its scenarios are of another module: "from helper import *".
            front_end = "scenario"
        if front_end == "scenario" and _is_left_by_pytest(path.relative_to(folder)):
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


def _front_end(path: Path, text: str, *, named: bool = False) -> FrontEnd | None:
    """Return the format of a file. One that is called kindlm.yaml is a suite if nothing else.

    So its mistakes are reported, such as a slip in its key `tests`. An empty one is a suite only
    if the user `named` it.
    """
    is_suite = path.stem == "kindlm" and _suffix(path) in (".yaml", ".yml")
    found = recognised(text, _suffix(path), named=named or is_suite)
    return "kindlm" if found is None and is_suite and (named or text.strip()) else found


_PROJECT_MARKS = ("pyproject.toml", "kindlm.toml", "kindlm.yaml", "setup.py", ".kindlm", ".git")
_LINE = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\.*)([\w.]*)", re.MULTILINE)
_NAME = re.compile(r"kindlm(?:\.\w+)*")
_REQUIREMENT = re.compile(r"kindlm(?![\w.-])", re.IGNORECASE)

_Folders = tuple[Path, ...]
_Known = dict[tuple[Path, _Folders], tuple[bool, frozenset[Path]]]
"""What is known of files that were read: see `_read`."""

_Module = tuple[int, tuple[str, ...]]
"""A module that is imported, or what may be one: the dots before it, and the parts of its name."""


def _leads_to_kindlm(file: Path, known: _Known) -> bool:
    """Return whether importing a Python file would import kindlm, itself or through its project.

    Never raises. Nothing is run to find that out: files are read, and what they import is looked
    for in the folders of the project.
    """
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


def _read(file: Path, folders: _Folders) -> tuple[bool, frozenset[Path]]:
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


def _folders(root: Path) -> _Folders:
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


def pack_in(path: Path) -> str | None:
    """Return what stands for a pack, or a file of one, in a path: `pack:NAME`, `pack:NAME/FILE`.

    Paths that are recorded are put behind the folder of the project. A file or folder that is
    really called so is not a pack.
    """
    at = next((at for at, part in enumerate(path.parts) if part.startswith(PACK_MARK)), None)
    return None if at is None or path.exists() else "/".join(path.parts[at:])


def cases_in(folder: Path) -> tuple[Path, ...]:
    """Return the EvalView test cases of a folder without the folders below it, by their names.

    Files that cannot be read are among them: they may be cases. So are those with a syntax error
    and a name.
    """
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return ()
    here = (path for name in names if _is_looked_at(path := folder / name))
    return tuple(path for path in _each_once(here) if _may_be_case(path))


def _may_be_case(path: Path) -> bool:
    try:
        text = _text(path)
        front_end = recognised(text, _suffix(path))
        return front_end == "evalview" or (front_end is None and _is_broken(path, text))
    except OSError:
        return _suffix(path) != ".py"


def _is_broken(path: Path, text: str) -> bool:
    """Return whether a file is YAML with a name, and a syntax error that may hide other keys."""
    if not has_name(text, _suffix(path)):
        return False
    data = text.encode()
    # The end of a text that was cut there proves nothing.
    return len(data) < _LOOKED_AT and not read_documents(data, merges=True).readable


def files_by_folder(
    folder: Path, on_error: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder that is looked into, with the names of its files.

    Links may lead to a folder twice, or in a circle: it is yielded once.
    """
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True, onerror=on_error):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not is_skipped(Path(place, name)))
        yield place, sorted(files)


def _each_once(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths that lead to other files than those before them."""
    seen: set[str] = set()
    for path in paths:
        if (real := os.path.realpath(path)) not in seen:
            seen.add(real)
            yield path


def is_skipped(folder: Path) -> bool:
    """Return whether a folder is not looked into: hidden, of packages, a virtual environment."""
    name = folder.name
    return name.startswith(".") or name in _SKIPPED_FOLDERS or (folder / "pyvenv.cfg").is_file()


def _is_left_by_pytest(path: Path) -> bool:
    return any(
        fnmatchcase(part, pattern) for part in path.parts[:-1] for pattern in _WITHOUT_SCENARIOS
    )


def _text(path: Path) -> str:
    """Return the text of a file; one in another encoding than UTF-8 is read, to be refused."""
    with path.open("rb") as file:
        data = file.read(_LOOKED_AT)
    return data.decode(json.detect_encoding(data[:4]), errors="replace")


def _is_looked_at(path: Path) -> bool:
    """Tell whether a file of a folder is looked at; Python's are named as by pytest."""
    if _suffix(path) == ".py":
        may_hold_tests = path.name.startswith("test_") or path.stem.endswith("_test")
    else:
        may_hold_tests = _suffix(path) in SUFFIXES and not _is_settings(path)
    return may_hold_tests and path.is_file()


def _suffix(path: Path) -> str:
    return path.suffix.lower()


def _is_settings(path: Path) -> bool:
    """Return whether a file is the configuration of EvalView, whatever is in it."""
    return path.stem == ".evalview" or (path.stem == "config" and path.parent.name == ".evalview")


def _raise(error: OSError) -> None:
    # A folder that cannot be listed may hold tests: it must not be passed over in silence.
    raise error


def _not_there(path: Path) -> KindlmError:
    file, _, test = str(path).partition("::")
    hint = "Check the path, or create a first suite: kindlm init"
    if test and Path(file).is_file():
        hint = f"Name the file, and a part of the test's name: {shlex.join((file, '-t', test))}"
    return not_there(f"There is no {str(path)!r}.", hint)


def _unreadable(error: OSError, path: Path) -> KindlmError:
    place = error.filename or path
    return not_there(
        f"{str(place)!r} cannot be read: {error.strerror or error}.",
        "Check its permissions, or name the files to use one by one.",
        where=SourceLocation(str(place)),
    )
