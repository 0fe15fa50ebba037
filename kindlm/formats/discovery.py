"""What a path holds: which files are test suites, and in which format.

A YAML file is recognised by its text alone, without parsing it: a suite with a syntax error is
still a suite, whose error is to be reported, and no file is too deep or too large to be looked at.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation

__all__ = ["SUFFIXES", "Discovery", "Found", "FrontEnd", "discover", "is_skipped"]

FrontEnd = Literal["kindlm"]

SUFFIXES = (".yaml", ".yml")
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""Not looked into, as are hidden folders (.git, .kindlm, .venv) and virtual environments."""

_LOOKED_AT = 1 << 20
"""Bytes of a file that are looked at; a larger file is no suite that could be loaded."""

_KEY = r"""(?:kindlm|"kindlm"|'kindlm')\s*:(?:\s|$)"""
_BLOCK_KEY = re.compile(rf"^(?:--- +)?{_KEY}", re.MULTILINE)
_FLOW_KEY = re.compile(r"""[{,\s](?:kindlm|"kindlm"|'kindlm')\s*:""")

_TEST_KEYS = (
    "cases|expect|gates|input|models|prompts|providers|scenarios|suite|tests|thresholds|turns"
)
_TOP_KEY = re.compile(rf"""^(?:--- +)?["']?({_TEST_KEYS})["']?\s*:(?:\s|$)""", re.MULTILINE)
_TEST_LIKE = 2
"""So many keys that suites have make a file look like one."""

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A file with tests, and the front end that reads it."""

    path: Path
    front_end: FrontEnd


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a path holds; `ignored` are files of a folder that look like tests and are none.

    Other YAML files, of which every project has some, are passed over without a word.
    """

    found: tuple[Found, ...]
    ignored: tuple[Path, ...] = ()


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
            return Err(_unreadable(OSError("it is no regular file"), path))
        front_end = _front_end(_text(path))
    except OSError as error:
        return Err(_unreadable(error, path))
    if front_end is None:
        return Err(_no_suite(path))
    return Ok(Discovery((Found(path, front_end),)))


def _search(folder: Path) -> Discovery:
    found: list[Found] = []
    ignored: list[Path] = []
    for path in _yaml_files(folder):
        text = _text(path)
        front_end = _front_end(text)
        if front_end is not None:
            found.append(Found(path, front_end))
        elif len(set(_TOP_KEY.findall(text))) >= _TEST_LIKE:
            ignored.append(path)
    return Discovery(tuple(found), tuple(ignored))


def _yaml_files(folder: Path) -> Iterator[Path]:
    """Yield each YAML file once, also where links lead to it twice or in a circle."""
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not is_skipped(Path(place, name)))
        for name in sorted(files):
            path = Path(place, name)
            if path.suffix.lower() not in SUFFIXES or not path.is_file():
                continue
            if (real := os.path.realpath(path)) not in seen:
                seen.add(real)
                yield path


def is_skipped(folder: Path) -> bool:
    """Tell whether a folder is not looked into: hidden, of packages, a virtual environment."""
    name = folder.name
    return name.startswith(".") or name in _SKIPPED_FOLDERS or (folder / "pyvenv.cfg").is_file()


def _text(path: Path) -> str:
    """Return the text of a file; one in another encoding than UTF-8 is read, to be refused."""
    with path.open("rb") as file:
        data = file.read(_LOOKED_AT)
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8-sig")
    if data[1:2] == b"\0" and encoding == "utf-8-sig":
        encoding = "utf-16-le"
    elif data[:1] == b"\0":
        encoding = "utf-16-be"
    return data.decode(encoding, errors="replace")


def _front_end(text: str) -> FrontEnd | None:
    if _BLOCK_KEY.search(text):
        return "kindlm"
    is_flow = text.lstrip().startswith("{")
    return "kindlm" if is_flow and _FLOW_KEY.search(text) else None


def _raise(error: OSError) -> None:
    # A folder that can't be listed may hold tests: it must not be passed over in silence.
    raise error


def _not_there(path: Path) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"There is no {str(path)!r}.",
        "Check the path, or write a first suite: kindlm init",
    )


def _no_suite(path: Path) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"{str(path)!r} holds no tests.",
        "A test suite is a YAML file with `kindlm: 1` at its top; kindlm init writes one.",
        where=SourceLocation(str(path)),
    )


def _unreadable(error: OSError, path: Path) -> KindlmError:
    place = error.filename or path
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"{str(place)!r} can not be read: {error.strerror or error}.",
        "Check its permissions, or name the files to use one by one.",
        where=SourceLocation(str(place)),
    )
