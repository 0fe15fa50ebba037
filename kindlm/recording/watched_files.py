"""Finds the files that a run depends on, and notices when one changes.

It compares only modification times, sizes and inodes, so a file that an editor replaces has
changed. A missing file may appear later.

What a program loads is unknown without running it. For an agent's command, the file that it names
counts, with all files of the same kind in and below its folder. For a Python agent, a program that
is named as a module, tests in Python, and what these import from the project, all Python files in
and below the folder of the module count.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple, TypeAlias

import kindlm
from kindlm.formats.discovery import files_by_folder, is_skipped
from kindlm.formats.recognition import SUFFIXES
from kindlm.recording.loading import Loaded
from kindlm.recording.project import configuration_file
from kindlm.suite import Suite
from kindlm.user_modules import import_root

_MAX_TREE_FILES = 5_000
"""The limit of watched files in one tree."""

_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

_DATA = frozenset(
    (
        *("", ".cfg", ".conf", ".csv", ".db", ".env", ".ini", ".json", ".jsonl", ".log", ".md"),
        *(".pem", ".sock", ".sqlite", ".toml", ".tsv", ".txt", ".xml", ".yaml", ".yml"),
    )
)
"""Kinds of files that programs may write: such a file is watched without others of its kind."""

Stamps: TypeAlias = Mapping[Path, tuple[int, int, int]]
"""The existing files, each with its modification time (ns), size and inode."""


class Tree(NamedTuple):
    """The files with a suffix in a folder and below."""

    folder: Path
    suffix: str


class WatchedFiles(NamedTuple):
    """The files that a run depends on; paths are absolute.

    Attributes:
        files: single files, including suites and files that do not exist.
        trees: folders in which all files of a kind count.
        places: folders in which a new suite may appear; other files there do not count.
    """

    files: frozenset[Path] = frozenset()
    trees: frozenset[Tree] = frozenset()
    places: frozenset[Tree] = frozenset()

    def matters(self, path: Path) -> bool:
        """Return whether a run depends on this file."""
        suffix = path.suffix.lower()
        return path in self.files or any(
            tree.suffix == suffix and path.is_relative_to(tree.folder) for tree in self.trees
        )

    def stamps(self) -> Stamps:
        """Return the current state of the files, including those that may become suites."""
        kinds: dict[Path, set[str]] = {}
        for tree in self.trees | self.places:
            kinds.setdefault(tree.folder, set()).add(tree.suffix)
        in_trees = (
            path
            for folder, suffixes in kinds.items()
            for path in islice(_files_below(folder, suffixes), _MAX_TREE_FILES)
        )
        found: dict[Path, tuple[int, int, int]] = {}
        for path in (*self.files, *in_trees):
            try:
                now = path.stat()
            except (OSError, ValueError):
                continue
            found[path] = now.st_mtime_ns, now.st_size, now.st_ino
        return found

    def joined(self, other: WatchedFiles) -> WatchedFiles:
        """Return the union with other files."""
        return WatchedFiles(
            self.files | other.files, self.trees | other.trees, self.places | other.places
        )


def watched_files(paths: Sequence[Path], loaded: Loaded, root: Path) -> WatchedFiles:
    """Return the files that the suites in these paths depend on."""
    files = {
        *loaded.files,
        *(path for path in paths if not path.is_dir()),
        *loaded.referenced,
        *(folder / ".env" for folder in (*loaded.folders, root)),
        configuration_file(root),
    }
    made_of = {each for suite in loaded.suites for each in _made_of(suite, root)}
    made_of.update(_imported(loaded, root))
    return WatchedFiles(
        frozenset(path.absolute() for path in (*files, *made_of) if isinstance(path, Path)),
        frozenset(each for each in made_of if isinstance(each, Tree)),
        frozenset(
            Tree(path.absolute(), suffix) for path in paths if path.is_dir() for suffix in SUFFIXES
        ),
    )


def changed(before: Stamps, after: Stamps) -> frozenset[Path]:
    """Return the files that are new, gone or changed."""
    return frozenset(path for path, _ in before.items() ^ after.items())


def _files_below(folder: Path, suffixes: Iterable[str]) -> Iterator[Path]:
    for place, files in files_by_folder(folder):
        for name in files:
            if os.path.splitext(name)[1].lower() in suffixes:  # noqa: PTH122 - thousands of them
                yield Path(place, name)


def _words(suite: Suite) -> Iterator[tuple[str, str, Path]]:
    """Yield each word of a suite's commands, with the preceding word and the command's folder."""
    commands = [(service.command, Path(service.directory)) for service in suite.services]
    commands += [
        (case.command.words, Path(case.command.directory)) for case in suite.cases if case.command
    ]
    for agent in suite.all_agents():
        if agent.adapter in ("subprocess", "mcp"):
            from kindlm.agents.sandbox import ProgramOptions

            assert isinstance(agent.options, ProgramOptions)
            folder = Path(agent.directory or ".", agent.options.cwd)
            commands.append((tuple(agent.options.words), folder))
    yield from dict.fromkeys(
        (word, before, folder)
        for command, folder in commands
        for before, word in zip(("", *command), command, strict=False)
    )


def _made_of(suite: Suite, root: Path) -> Iterator[Path | Tree]:
    """Yield the files of the project that commands and agents consist of.

    Commands name files (`agent.py`, `--config=a.json`) and Python modules (`python -m agent`,
    `uvicorn agent:app`). Files outside of the project and the command's folder are left out, as are
    hidden files, `node_modules` and virtual environments.
    """
    for word, before, folder in _words(suite):
        for part in {word, word.rpartition("=")[2], *word.split()}:
            file = folder / part
            # `Path.is_file` would raise for some texts.
            is_file = bool(part) and os.path.isfile(file)  # noqa: PTH113
            if is_file and _is_inside(Path(os.path.realpath(file)).parent, (root, folder)):
                yield file
                if file.suffix.lower() not in _DATA:
                    yield Tree(file.parent, file.suffix.lower())
        name, colon, _ = word.partition(":")
        if (colon or before == "-m") and _has_module(folder, name):
            yield Tree(folder, ".py")
    agents = [agent for agent in suite.all_agents() if agent.adapter == "python"]
    if not agents:
        return
    from kindlm.agents.python_agent import Python

    for agent in agents:
        path = agent.options.path if isinstance(agent.options, Python) else "."
        here = root / (agent.directory or ".")
        module = agent.endpoint.partition(":")[0]
        places = (Path(os.path.realpath(here / path)), root)
        found = next((folder for folder in places if _has_module(folder, module)), None)
        if found is not None and _is_inside(found, (root, here)):
            yield Tree(found, ".py")


def _imported(loaded: Loaded, root: Path) -> Iterator[Tree]:
    """Yield the folders that tests in Python are imported from, and those of what they import.

    The latter are the folders of the project from which this process has loaded modules.
    """
    files = {file.resolve() for file in (*loaded.files, *loaded.referenced) if file.suffix == ".py"}
    own = [file for file in files if not is_installed(file)]
    if not own:
        return
    yield from (Tree(import_root(file), ".py") for file in own)
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    folders = {Path(os.path.realpath(file)).parent for file in modules if file}
    yield from (Tree(folder, ".py") for folder in folders if _is_inside(folder, (root,)))


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to kindlm or to another installed package."""
    is_kindlms = path.is_relative_to(Path(kindlm.__file__).parent)
    return is_kindlms or "site-packages" in path.parts


def _has_module(folder: Path, name: str) -> bool:
    if not _MODULE.fullmatch(name):
        return False
    top = folder / name.partition(".")[0]
    return top.with_suffix(".py").is_file() or top.is_dir()


def _is_inside(folder: Path, places: Sequence[Path]) -> bool:
    """Return whether a folder, links followed, is in one of the places and not a skipped folder."""
    for place in map(Path, map(os.path.realpath, places)):
        if folder.is_relative_to(place):
            inside = takewhile(place.__ne__, (folder, *folder.parents))
            return not any(map(is_skipped, inside))
    return False
