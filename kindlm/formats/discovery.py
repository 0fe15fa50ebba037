"""Finds the files with tests at a path, and recognises their formats.

A format is recognised by the text of a file, without parsing it. So a suite with a syntax error is
recognised, and its error reported. The formats are:

- a suite: YAML with the key `kindlm` at its top;
- EvalView test cases, one or a list: YAML or TOML with `input` or `turns`, and with `thresholds`,
  or `expected` and a query;
- a scenario: YAML with `turns` that contain `says`;
- scenarios: Python that imports kindlm, itself or through other modules of its project. kindlm
  imports no other test files.

A text with slips in these keys counts, too, so that its errors are reported. A slip is a misspelt
key, or one in upper case. It is a case if it has

- a `name` and a key of cases, or slips of two such keys, or a slip of one and a query;
- or three keys of cases, or slips of them.

It is a scenario if it has no key that only cases have, and `turns` with a `name`, or two of
`turns`, `persona`, `assertions` and `says`, one of which may be a slip.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

from kindlm.dataclass import dataclass
from kindlm.errors import Err, KindlmError, Ok, Result, SourceLocation, misuse, not_there
from kindlm.suggestions import suggest
from kindlm.yaml_document import read_documents

FrontEnd = Literal["kindlm", "evalview", "scenario"]

SUFFIXES = (".yaml", ".yml", ".toml", ".py")
"""The suffixes of files that may hold tests."""

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
    suffix = _suffix(path)
    if suffix == ".py":
        # Another module may import kindlm: "from helper import *".
        uses_kindlm = _USES_KINDLM.search(text) or _leads_to_kindlm(path, imports)
        return "scenario" if uses_kindlm else None
    is_suite = path.stem == "kindlm" and suffix in (".yaml", ".yml")
    if found := recognised(text, suffix, named=named or is_suite):
        return found
    return "kindlm" if is_suite and (named or text.strip()) else None


_CASE_KEYS = frozenset({"input", "turns", "expected", "thresholds"})
_SCENARIO_KEYS = frozenset({"assertions", "persona", "turns"})
_OTHER_KEYS = frozenset(
    {"agent", "agents", "cases", "expect", "gates", "model", "models", "prompts", "providers"}
    | {"scenarios", "suite", "tests"}
)
_ELSEWHERE = frozenset({"jobs", "runs", "services", "steps"})
"""Keys of workflows, actions and compositions, which have names and inputs, too."""

_USES_KINDLM = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+kindlm\b|import(?:orskip|_module)\([\"']kindlm\b", re.MULTILINE
)
_SAYS = re.compile(r"""\bsays["']?\s*:""")
_QUERY = re.compile(r"""\bquery["']?\s*[:=]""")
_ANYWHERE = re.compile(r"""(?:^|[\s{,]|(?<![\w-])-)["']?([\w-]+)["']?\s*:""", re.MULTILINE)
_TOML_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_TOML_KEY = re.compile(r"""^[ \t]*(?:\[+[ \t]*)?["']?([\w-]+)["']?[ \t]*[].=]""", re.MULTILINE)
_FLOW = re.compile(r"""(?<![\w\\])\"(?:[^\"\\]|\\(?s:.))*+\"|(?<!\w)'[^']*+'|[][{}:]|[\w-]+""")
"""The strings, words and marks of JSON, and of YAML in flow style."""
_BEFORE = r"(?:[ \t]*(?:#.*|%.*|---[ \t]*(?:#.*)?)?\r?\n)*(?:--- +)?"
_FIRST_ITEM = re.compile(
    _BEFORE + r"( *-(?:[ \t]*(?:&\S+[ \t]*)?(?:#.*)?\r?\n *| +))(?=\S)"  # the keys may be below
)
_IN_FLOW = re.compile(_BEFORE + r"[ \t]*(?:-\s+)?(?:&\S+ +)?(?=[{[])")


def recognised(text: str, suffix: str, *, named: bool = False) -> FrontEnd | None:
    """Return the format of a text of YAML or TOML, or of its beginning; None if it has no tests.

    If the user `named` the file, or it is called kindlm.yaml, a text with `tests` at its top is a
    suite, and one with `input` and `expected` a case.
    """
    is_yaml, keys = suffix != ".toml", _keys(text, suffix)
    if is_yaml and "kindlm" in keys and not _FIRST_ITEM.match(text):
        return "kindlm"
    has_query = _QUERY.search(text) is not None
    asks = "input" in keys or ("turns" in keys and has_query)
    # A case without thresholds has an error, which is reported.
    decides = "thresholds" in keys or ("expected" in keys and (named or has_query))
    if asks and decides:
        return "evalview"
    top = {key.casefold() for key in keys}
    is_other = not top.isdisjoint(_ELSEWHERE)
    says = "turns" in keys and _SAYS.search(text) is not None
    may_say = not (has_query or is_other) and _is_nearly_scenario(text, top)
    if is_yaml and (says or may_say):
        return "scenario"
    if is_yaml and named and "tests" in keys:
        return "kindlm"
    meant = _meant(top, _CASE_KEYS)
    # Data sets of other programs have `input` and `expected`, too.
    fewest = 3 if "name" not in top else 1 if has_query or top & _CASE_KEYS else 2
    return "evalview" if len(meant) >= fewest and not is_other else None


def looks_like_tests(text: str, suffix: str) -> bool:
    """Return whether a text of unknown format looks like tests."""
    known = _CASE_KEYS if suffix == ".toml" else _CASE_KEYS | _OTHER_KEYS
    return suffix != ".py" and len(_keys(text, suffix) & known) > 1


def _is_nearly_scenario(text: str, top: set[str]) -> bool:
    everywhere = {key.casefold() for key in _ANYWHERE.findall(text)}
    meant = _meant(top, _SCENARIO_KEYS) | _meant(everywhere, {"says"})
    right = meant & (top | ({"says"} & everywhere))
    has_both = {"turns", "name"} <= top or (bool(right) and len(meant) > 1)
    return has_both and top.isdisjoint(_CASE_KEYS - {"turns"})


def _meant(keys: Iterable[str], known: Collection[str]) -> set[str]:
    """Return the known keys that the keys are, or are slips of."""
    return {meant for key in keys if (meant := suggest(key, sorted(known))) is not None}


def _keys(text: str, suffix: str) -> set[str]:
    """Return the keys at the top of a text, or of the items in a list there.

    In TOML, keys in tables count, too, except for `name`.
    """
    if suffix == ".toml":
        table = _TOML_TABLE.search(text)
        above = _TOML_KEY.findall(text, 0, len(text) if table is None else table.start())
        is_named = any(key.casefold() == "name" for key in above)
        keys = _TOML_KEY.findall(text)
        return {key for key in keys if is_named or key.casefold() != "name"}
    if flow := _IN_FLOW.match(text):  # JSON, or YAML in flow style, also as items of a list
        depth, before, top, found = 0, "", 1 if text[flow.end()] == "{" else 2, set[str]()
        for part in _FLOW.findall(text, flow.end()):
            depth += (part in ("{", "[")) - (part in ("}", "]"))
            if part == ":" and depth == top:
                found.add(before.strip("\"'"))
            before = part
        return found
    indent = ""
    if item := _FIRST_ITEM.match(text):
        before, _, after = item[1].partition("-")
        width = len(item[1].rpartition("\n")[2])
        indent = rf"(?: {{{width}}}| {{{len(before)}}}- {{{len(after)}}})"
    key = rf"""^(?:--- +)?{indent}["']?([\w-]+)["']?\s*:(?:\s|$)"""
    return set(re.findall(key, text, re.MULTILINE))


_PROJECT_MARKS = ("pyproject.toml", "kindlm.toml", "kindlm.yaml", "setup.py", ".kindlm", ".git")
_IMPORT = re.compile(r"^[ \t]*(?:from|import)\b[^#\n]*", re.MULTILINE)
_WORD = re.compile(r"\w[\w.]*")

_Imports = Callable[[Path, tuple[Path, ...]], set[Path] | None]
"""Returns the modules in these folders that a file imports, or None if it imports kindlm."""


def _leads_to_kindlm(file: Path, imports: _Imports) -> bool:
    """Return whether a Python file imports kindlm, directly or through modules of its project."""
    first = file.resolve()
    above = tuple(first.parents)
    marked = (any((folder / name).exists() for name in _PROJECT_MARKS) for folder in above)
    top = next((at for at, is_marked in enumerate(marked) if is_marked), None)
    # Modules are in the folders from that of the file to the top of its project, and in `src`.
    folders = above[:1] if top is None else (*above[: top + 1], above[top] / "src")
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
    if _suffix(path) not in (".yaml", ".yml"):
        return False
    keys, data = {key.casefold() for key in _keys(text, _suffix(path))}, text.encode()
    # A text that was cut has a syntax error at its end.
    may_be_case = "name" in keys and keys.isdisjoint(_ELSEWHERE) and len(data) < _LOOKED_AT
    return may_be_case and not read_documents(data, merges=True).readable


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
    is_of_tools = folder.name.startswith(".") or folder.name in _SKIPPED_FOLDERS
    return is_of_tools or (folder / "pyvenv.cfg").is_file()


def _text(path: Path) -> str:
    """Return the beginning of a file. In another encoding than UTF-8 it is recognised, too."""
    with path.open("rb") as file:
        data = file.read(_LOOKED_AT)
    return data.decode(json.detect_encoding(data[:4]), errors="replace")


def _is_looked_at(path: Path) -> bool:
    """Return whether a file in a folder is read; names of Python files are those of pytest."""
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
