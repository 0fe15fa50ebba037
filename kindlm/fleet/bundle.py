"""What another machine needs of a project to run its tests: one file, known by its hash.

A bundle is a ZIP file of the files that a plan names, by their paths from the project's root. What
is in it is made for one run and may come from anywhere by the time it is unpacked. So packing and
unpacking share one rule for paths, and nothing but regular files is ever written.

Environment files (`.env`) stay at home: workers have variables of their own.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import kindlm
from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.recording.loading import Loaded
from kindlm.recording.watched_files import Tree, WatchedFiles, watched_files
from kindlm.user_modules import import_root

MOST_BYTES = 50_000_000
"""Bytes that the files of a bundle may have together."""

MOST_FILES = 4_000

_ONE_TIME = (1980, 1, 1, 0, 0, 0)
"""When each file was modified, so that equal files make equal bundles."""


class BundleError(Exception):
    """A bundle is not what it should be; it is not unpacked."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files of a project, packed; `hash` is the SHA-256 of `data`."""

    data: bytes
    hash: str


def make_bundle(loaded: Loaded, root: Path) -> Result[Bundle]:
    """Pack what a run of these suites needs; an error if that is not all in the project.

    That is what `kindlm watch` looks at: suites, files that they refer to, the project's
    configuration, and the programs and modules of agents. Of tests in Python, it is all Python
    files of the folder that they are imported from, and below.
    """
    in_python = (file for file in (*loaded.files, *loaded.referenced) if file.suffix == ".py")
    modules = frozenset(
        Tree(import_root(file), ".py") for file in map(Path.resolve, in_python) if _is_ours(file)
    )
    needed = watched_files((), loaded, root).joined(WatchedFiles(trees=modules))
    return pack(sorted(needed.stamps()), root)


def pack(files: Iterable[Path], root: Path) -> Result[Bundle]:
    """Pack files that lie in a folder; an error names one that does not, or is too large."""
    found: dict[str, Path] = {}
    for path in files:
        if path.is_dir() or _is_environment(path) or not _is_ours(path):
            continue
        name = _name_in(path, root)
        if name is None or not _is_plain(name):
            where = "outside of the project" if name is None else "not named in plain characters"
            return Err(
                misuse(
                    f"The tests cannot run on other machines: {str(path)!r} is {where}.",
                    f"Only files below {root} are sent; move it there, or run the tests here.",
                )
            )
        found[name] = path
    size = sum(path.stat().st_size for path in found.values())
    if size > MOST_BYTES or len(found) > MOST_FILES:
        largest = max(found, key=lambda name: found[name].stat().st_size)
        return Err(
            misuse(
                f"The tests cannot run on other machines: they need {len(found):,} files with"
                f" {size / 1e6:,.1f} MB.",
                f"At most {MOST_FILES:,} files with {MOST_BYTES / 1e6:,.0f} MB are sent."
                f" The largest is {largest}.",
            )
        )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, path in sorted(found.items()):
            entry = zipfile.ZipInfo(name, _ONE_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # has modes
            mode = 0o700 if path.stat().st_mode & stat.S_IXUSR else 0o600
            entry.external_attr = (stat.S_IFREG | mode) << 16
            bundle.writestr(entry, path.read_bytes())
    return Ok(Bundle(packed.getvalue(), hashlib.sha256(packed.getvalue()).hexdigest()))


def unpack(data: bytes, expected: str, into: Path) -> None:
    """Unpack a bundle with this hash into an empty folder; raise `BundleError` if it is another."""
    if hashlib.sha256(data).hexdigest() != expected:
        raise BundleError("The bundle is not the one that was sent: its hash differs.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as bundle:
            for entry, path in _checked(bundle, into):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                mode = (entry.external_attr >> 16) & 0o700
                # What is there already is not written again, and no link is followed.
                how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with os.fdopen(os.open(path, how, mode), "wb") as file:
                    file.write(bundle.read(entry))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise BundleError(f"The bundle cannot be unpacked: {error}") from error


def _checked(bundle: zipfile.ZipFile, into: Path) -> Iterator[tuple[zipfile.ZipInfo, Path]]:
    """Return all entries and where they go, once all of them are known to be harmless."""
    entries = bundle.infolist()
    # No entry yields more than it says: zipfile stops there.
    if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > MOST_BYTES:
        raise BundleError("The bundle is larger than any that kindlm makes.")
    for entry in entries:
        if not (_is_plain(entry.orig_filename) and stat.S_ISREG(entry.external_attr >> 16)):
            raise BundleError(f"The bundle has an entry that is no file: {entry.orig_filename!r}")
    return ((entry, into / entry.orig_filename) for entry in entries)


def _is_plain(name: str) -> bool:
    """Tell whether a path of a bundle leads to a place below the folder that it is unpacked in."""
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & {*parts}


def _name_in(path: Path, root: Path) -> str | None:
    """Return the path of a file from the root; None if the file, links followed, is elsewhere."""
    real, top = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    if not real.is_relative_to(top):
        return None
    named = Path(os.path.abspath(path))  # noqa: PTH100 - the link's own name, without dots
    if named.is_relative_to(root):
        return named.relative_to(root).as_posix()
    return real.relative_to(top).as_posix()


def _is_environment(path: Path) -> bool:
    return path.name == ".env" or path.name.startswith(".env.") or path.suffix == ".env"


def _is_ours(path: Path) -> bool:
    """Tell whether a file is of the project: packages are installed on each worker."""
    is_kindlms = path.is_relative_to(Path(kindlm.__file__).parent)
    return not (is_kindlms or "site-packages" in path.parts)
