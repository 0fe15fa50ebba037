"""Finds the files that a run depends on, and notices when one changes.

It compares only modification times, sizes and inodes, so a file that an editor replaces has
changed. A missing file may appear later.

What a program loads is unknown without running it. So all code counts in and below the folders of
the files that its command names, or else in and below the folder that the command runs in. The same
applies to the folders that Python agents, tests in Python, and what these import from the project
are in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple, TypeAlias

import kindlm
from kindlm.formats.discovery import SUFFIXES, files_by_folder, is_skipped
from kindlm.recording.loading import Loaded
from kindlm.recording.project import configuration_file
from kindlm.user_modules import import_root

_MAX_FILES = 5_000
"""The limit of watched files in one folder."""

_CODE = frozenset(
    (
        *(".c", ".cjs", ".cpp", ".cs", ".cts", ".ex", ".exs", ".fs", ".go", ".h", ".java", ".js"),
        *(".jsx", ".kt", ".lua", ".mjs", ".mts", ".php", ".pl", ".ps1", ".py", ".r", ".rb", ".rs"),
        *(".scala", ".sh", ".swift", ".ts", ".tsx"),
    )
)
"""The suffixes of code. Programs may write files of other kinds, such as data."""

Stamps: TypeAlias = Mapping[Path, tuple[int, int, int]]
"""The existing files, each with its modification time (ns), size and inode."""


class WatchedFiles(NamedTuple):
    """The files that a run depends on; paths are absolute.

    `files` may not exist. All code in and below `folders` counts. In `places`, a new suite may
    appear; other files there do not count.
    """

    files: frozenset[Path] = frozenset()
    folders: frozenset[Path] = frozenset()
    places: frozenset[Path] = frozenset()

    def matters(self, path: Path) -> bool:
        """Return whether a run depends on this file."""
        is_code = path.suffix.lower() in _CODE
        return path in self.files or (is_code and any(map(path.is_relative_to, self.folders)))

    def stamps(self) -> Stamps:
        """Return the current state of the files, including those that may become suites."""
        paths = set(self.files)
        for folders, suffixes in ((self.folders, _CODE), (self.places, SUFFIXES)):
            for folder in folders:
                of_kind = (
                    Path(place, name)
                    for place, names in files_by_folder(folder)
                    for name in names
                    if os.path.splitext(name)[1].lower() in suffixes  # noqa: PTH122 - thousands
                )
                paths.update(islice(of_kind, _MAX_FILES))
        found: dict[Path, tuple[int, int, int]] = {}
        for path in paths:
            with suppress(OSError, ValueError):
                now = path.stat()
                found[path] = now.st_mtime_ns, now.st_size, now.st_ino
        return found

    def joined(self, other: WatchedFiles) -> WatchedFiles:
        """Return the union with other files."""
        return WatchedFiles(*(old | new for old, new in zip(self, other, strict=True)))


def watched_files(paths: Sequence[Path], loaded: Loaded, root: Path) -> WatchedFiles:
    """Return the files that the suites in these paths depend on.

    Only the suites may be outside of the project, in hidden folders or virtual environments.
    """
    named = set[Path]()
    folders = {*_of_tests(loaded)}
    for suite in loaded.suites:
        tests = filter(None, (case.command for case in suite.cases))
        agents = (each for each in suite.all_agents() if getattr(each.options, "words", None))
        for words, place in (
            *((each.command, Path(each.directory)) for each in suite.services),
            *((each.words, Path(each.directory)) for each in tests),
            *((it.options.words, Path(it.directory or ".", it.options.cwd)) for it in agents),
        ):
            parts = set[str]()
            for word in words:
                # `agent.py`, `--config=a.json`, and `exec python agent.py` of a shell.
                parts |= {word, word.rpartition("=")[2], *word.split()}
            files_named = (place / part for part in parts - {""})
            # `Path.is_file` would raise for some texts.
            found = set(filter(os.path.isfile, files_named))
            named |= found
            folders |= {file.parent for file in found if file.suffix.lower() in _CODE} or {place}
        for agent in suite.all_agents():
            if agent.adapter == "python" and agent.instance is None:
                here = Path(root, agent.directory or ".", getattr(agent.options, "path", "."))
                top = agent.endpoint.partition(":")[0].partition(".")[0]
                is_here = any((here / name).exists() for name in (top, f"{top}.py"))
                folders.add(here if is_here else root)
    files = {
        *loaded.files,
        *(path for path in paths if not path.is_dir()),
        *loaded.referenced,
        *(folder / ".env" for folder in (*loaded.folders, root)),
        configuration_file(root),
        *(file for file in named if _is_inside(file.resolve().parent, root)),
    }
    return WatchedFiles(
        frozenset(map(Path.absolute, files)),
        frozenset(folder.absolute() for folder in folders if _is_inside(folder.resolve(), root)),
        frozenset(path.absolute() for path in paths if path.is_dir()),
    )


def changed(before: Stamps, after: Stamps) -> frozenset[Path]:
    """Return the files that are new, gone or changed."""
    return frozenset(path for path, _ in before.items() ^ after.items())


def _of_tests(loaded: Loaded) -> Iterator[Path]:
    """Yield the folders that tests in Python are imported from, and those of loaded modules."""
    files = {file.resolve() for file in (*loaded.files, *loaded.referenced) if file.suffix == ".py"}
    if own := [file for file in files if not is_installed(file)]:
        yield from map(import_root, own)
        modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        yield from {Path(file).parent for file in modules if file}


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to kindlm or to another installed package."""
    is_kindlms = path.is_relative_to(Path(kindlm.__file__).parent)
    return is_kindlms or "site-packages" in path.parts


def _is_inside(folder: Path, root: Path) -> bool:
    """Return whether a resolved folder is in the project, and in no skipped folder of it."""
    top = root.resolve()
    inside = takewhile(top.__ne__, (folder, *folder.parents))
    return folder.is_relative_to(top) and not any(map(is_skipped, inside))
