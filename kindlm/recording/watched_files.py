"""Which files a run depends on, and whether one of them has changed.

Nothing is read but modification times, sizes and the identity of files: a file that an editor
replaces has changed, and one that is not there may appear.

What a program loads is not known without running it. So of an agent the file that its command
names counts, with all files of the same kind in its folder and below; of a Python agent, and of a
program that is named as a module, all Python files of the folder that it is imported from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kindlm.formats.discovery import SUFFIXES, is_skipped
from kindlm.recording.loading import Loaded
from kindlm.recording.project import configuration_file
from kindlm.suite import AgentTarget, Suite

__all__ = ["MAX_TREE_FILES", "Stamp", "Stamps", "WatchedFiles", "changed", "watched_files"]

MAX_TREE_FILES = 5_000
"""Files of one tree that are looked at; those after them, by name, are not watched."""

_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

_MAX_WORDS = 2_000
"""Words of commands that are looked at: rows make many, which name the same programs."""

_DATA = frozenset(
    (
        *("", ".cfg", ".conf", ".csv", ".db", ".env", ".ini", ".json", ".jsonl", ".log", ".md"),
        *(".pem", ".sock", ".sqlite", ".toml", ".tsv", ".txt", ".xml", ".yaml", ".yml"),
    )
)
"""Kinds of files that say nothing about others of their kind: a program may well write some."""


class Stamp(NamedTuple):
    """What tells that a file has changed."""

    modified_ns: int
    size: int
    inode: int


Stamps = Mapping[Path, Stamp]
"""The files that are there."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of some kinds, by their suffixes, in a folder and below."""

    folder: Path
    suffixes: frozenset[str]

    def holds(self, path: Path) -> bool:
        """Tell whether a file belongs to it."""
        return path.suffix.lower() in self.suffixes and path.is_relative_to(self.folder)


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """The files that matter to a run; paths are absolute.

    Attributes:
        suites: the files with tests.
        files: all single files that matter, suites included, also those that are not there.
        trees: files that matter wherever they are in a folder.
        places: where a new suite may appear; what is in there and no suite does not matter.
    """

    suites: frozenset[Path] = frozenset()
    files: frozenset[Path] = frozenset()
    trees: frozenset[Tree] = frozenset()
    places: frozenset[Tree] = field(default=frozenset())

    def matters(self, path: Path) -> bool:
        """Tell whether a run depends on this file."""
        return path in self.files or any(tree.holds(path) for tree in self.trees)

    def stamps(self) -> Stamps:
        """Return how the files are now, those included that may become suites."""
        found: dict[Path, Stamp] = {}
        for path in (*self.files, *_files_of({*self.trees, *self.places})):
            try:
                now = path.stat()
            except (OSError, ValueError):
                continue
            found[path] = Stamp(now.st_mtime_ns, now.st_size, now.st_ino)
        return found

    def joined(self, other: WatchedFiles) -> WatchedFiles:
        """Return the files of both; the suites are those of the other one, if it has any."""
        return WatchedFiles(
            suites=other.suites or self.suites,
            files=self.files | other.files,
            trees=self.trees | other.trees,
            places=self.places | other.places,
        )


def watched_files(paths: Sequence[Path], loaded: Loaded, root: Path) -> WatchedFiles:
    """Return what a run of these paths depends on: as far as it could be loaded.

    That is the suites, what they refer to, the `.env` files, the project's configuration, and
    what its agents are made of.
    """
    sources = [agent_sources(suite, root) for suite in loaded.suites]
    single = (
        *loaded.files,
        *(path for path in paths if not path.is_dir()),
        *loaded.referenced,
        *(folder / ".env" for folder in (*loaded.folders, root)),
        configuration_file(root),
    )
    return WatchedFiles(
        suites=frozenset(loaded.files),
        files=frozenset(path.absolute() for path in single).union(*(one.files for one in sources)),
        trees=frozenset[Tree]().union(*(one.trees for one in sources)),
        places=frozenset(
            Tree(path.absolute(), frozenset(SUFFIXES)) for path in paths if path.is_dir()
        ),
    )


def changed(before: Stamps, after: Stamps) -> frozenset[Path]:
    """Return the files that are new, gone or not as they were."""
    return frozenset(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


def _files_of(trees: Iterable[Tree]) -> Iterator[Path]:
    """Yield the files of all trees; folders of several are walked once."""
    kinds: dict[Path, frozenset[str]] = {}
    for tree in trees:
        kinds[tree.folder] = kinds.get(tree.folder, frozenset()) | tree.suffixes
    for folder, suffixes in kinds.items():
        yield from islice(_files_below(folder, suffixes), MAX_TREE_FILES)


def _files_below(folder: Path, suffixes: frozenset[str]) -> Iterator[Path]:
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        # Links may lead to a folder twice, or in a circle.
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not is_skipped(Path(place, name)))
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in suffixes:  # noqa: PTH122 - thousands of them
                yield Path(place, name)


@dataclass(frozen=True, slots=True)
class AgentSources:
    """Single files, and trees of them."""

    files: frozenset[Path]
    trees: frozenset[Tree]


def agent_sources(suite: Suite, root: Path) -> AgentSources:
    """Return what of the project the programs, commands and Python agents of a suite are made of.

    What is outside of the project and of the suite's folder is none of it, nor is what is hidden,
    in `node_modules` or in a virtual environment.
    """
    files: set[Path] = set()
    folders: set[Path] = set()
    trees: set[Tree] = set()
    for word in islice(_words(suite), _MAX_WORDS):
        for file in word.files():
            if not _is_ours(Path(os.path.realpath(file)).parent, (root, word.folder)):
                continue
            files.add(file)
            if file.suffix.lower() not in _DATA:
                trees.add(Tree(file.parent, frozenset({file.suffix.lower()})))
        if word.is_module:
            folders.add(word.folder)
    folders |= {folder for agent in suite.agents.values() for folder in _imported_from(agent, root)}
    trees |= {Tree(folder, frozenset({".py"})) for folder in folders}
    return AgentSources(frozenset(files), frozenset(trees))


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a command, the one before it, and the folder that the command runs in."""

    text: str
    before: str
    folder: Path

    def files(self) -> Iterator[Path]:
        """Yield the files that it names: `agent.py`, `--config=a.json`, `sh -c "…"`."""
        for part in {self.text, self.text.rpartition("=")[2], *self.text.split()}:
            # Unlike `Path.is_file`, this takes any text.
            if part and os.path.isfile(self.folder / part):  # noqa: PTH113
                yield self.folder / part

    @property
    def is_module(self) -> bool:
        """Whether it names a module of the folder: `python -m agent`, `uvicorn agent:app`."""
        name, colon, _ = self.text.partition(":")
        return (bool(colon) or self.before == "-m") and _has_module(self.folder, name)


def _words(suite: Suite) -> Iterator[_Word]:
    """Yield each word of the commands once, in their order."""
    commands = [(service.command, service.directory) for service in suite.services]
    commands += [
        (case.command.words, case.command.directory) for case in suite.cases if case.command
    ]
    commands += [
        (tuple(agent.options["command"]), str(Path(agent.directory or ".", _folder_of(agent))))
        for agent in suite.all_agents()
        if agent.adapter == "subprocess"
    ]
    yield from dict.fromkeys(
        _Word(text, before, Path(folder))
        for words, folder in commands
        for before, text in zip(("", *words), words, strict=False)
    )


def _folder_of(agent: AgentTarget) -> str:
    folder: str = agent.options.get("cwd", ".")
    return folder


def _imported_from(agent: AgentTarget, root: Path) -> Iterator[Path]:
    """Yield the folder that a Python agent is imported from, if it is one of the project's."""
    path = agent.options.get("path", ".")
    if agent.adapter != "python" or not isinstance(path, str):
        return
    here = root / (agent.directory or ".")
    places = (Path(os.path.realpath(here / path)), root)
    found = next((f for f in places if _has_module(f, agent.endpoint.partition(":")[0])), None)
    if found is not None and _is_ours(found, (root, here)):
        yield found


def _has_module(folder: Path, name: str) -> bool:
    if not _MODULE.fullmatch(name):
        return False
    top = folder / name.partition(".")[0]
    return top.with_suffix(".py").is_file() or top.is_dir()


def _is_ours(folder: Path, places: Sequence[Path]) -> bool:
    """Tell whether a folder, links followed, is in one of the places, and in no skipped one."""
    for place in map(Path, map(os.path.realpath, places)):
        if folder.is_relative_to(place):
            between = folder.relative_to(place).parts
            parts = (place.joinpath(*between[: depth + 1]) for depth in range(len(between)))
            return not any(map(is_skipped, parts))
    return False
