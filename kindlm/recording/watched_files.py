"""Which files a run depends on, and whether one of them has changed.

Nothing is read but modification times, sizes and the identity of files: a file that an editor
replaces has changed, and one that is not there may appear.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kindlm.formats.discovery import SUFFIXES, is_skipped
from kindlm.recording.agent_sources import Tree, agent_sources
from kindlm.recording.loading import Loaded
from kindlm.recording.project import configuration_file

__all__ = ["MAX_TREE_FILES", "Stamp", "Stamps", "WatchedFiles", "changed", "watched_files"]

MAX_TREE_FILES = 5_000
"""Files of one tree that are looked at; those after them, by name, are not watched."""


class Stamp(NamedTuple):
    """What tells that a file has changed."""

    modified_ns: int
    size: int
    inode: int


Stamps = Mapping[Path, Stamp]
"""The files that are there."""


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
