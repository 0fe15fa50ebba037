"""The files that agents are made of, where the project has them.

What a program loads is not known without running it. So the file that its command names counts,
with all files of the same kind in its folder and below; of a Python agent, and of a program that
is named as a module, all Python files of the folder that it is imported from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kindlm.formats.discovery import is_skipped
from kindlm.suite import AgentTarget, Suite

__all__ = ["AgentSources", "Tree", "agent_sources"]

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


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of some kinds, by their suffixes, in a folder and below."""

    folder: Path
    suffixes: frozenset[str]

    def holds(self, path: Path) -> bool:
        """Tell whether a file belongs to it."""
        return path.suffix.lower() in self.suffixes and path.is_relative_to(self.folder)


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
