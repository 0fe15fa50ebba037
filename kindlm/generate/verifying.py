"""Loads what was rendered as `kindlm test` would, before any of it is written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kindlm.errors import Err
from kindlm.formats.discovery import discover
from kindlm.scenarios.configuration_files import load_configuration
from kindlm.scenarios.load import Surroundings, load_scenarios

__all__ = ["problems_of"]

# A file alone can not be loaded: its tests need an agent, which is not called here.
_CONFIGURATION = '[agent]\ntype = "http"\nurl = "http://127.0.0.1:1"\n'


def problems_of(files: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with files, by their names: each has to hold one test that loads."""
    with TemporaryDirectory(prefix="kindlm-gen-") as name, _forgotten(Path(name).resolve()):
        folder = Path(name)
        (folder / "kindlm.toml").write_text(_CONFIGURATION, "utf-8")
        around = Surroundings(folder, "kindlm gen", {}, load_configuration(folder, {}))
        found = {}
        for file, text in files.items():
            (folder / file).write_text(text, "utf-8")
            problem = _problem(folder / file, around)
            if problem is not None:
                found[file] = problem
        return found


@contextmanager
def _forgotten(folder: Path) -> Iterator[None]:
    """Leave nothing of a folder in this process: anybody could make one of its name later on."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file is not None and file.startswith(f"{folder}{os.sep}"):
                del sys.modules[name]


def _problem(file: Path, around: Surroundings) -> str | None:
    discovered = discover(file)
    if isinstance(discovered, Err):
        return discovered.error.message
    if [each.front_end for each in discovered.value.found] != ["scenario"]:
        return "it is not recognised as a scenario"
    loaded = load_scenarios(file, around)
    if loaded.suite is None or loaded.diagnostics:
        return "; ".join(found.error.message for found in loaded.diagnostics)
    return None if len(loaded.suite.cases) == 1 else f"it holds {len(loaded.suite.cases)} tests"
