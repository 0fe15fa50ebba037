"""From the paths of a command line to suites: what they hold, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kindlm.cli.session import SkippedSuite
from kindlm.config import Diagnostic, LoadedSuite, load_suite
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.formats.discovery import discover
from kindlm.suite import Suite

__all__ = ["Loaded", "default_paths", "load_paths"]

_DEFAULT_FILE = "kindlm.yaml"
_DEFAULT_FOLDER = "tests"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the paths held: suites that can run, and those that can't, with everything found.

    `folders` are those of the suites, in order: their `.env` files belong to the run. `ignored`
    are YAML files that hold no tests.
    """

    suites: tuple[Suite, ...]
    skipped: tuple[SkippedSuite, ...]
    diagnostics: tuple[Diagnostic, ...]
    folders: tuple[Path, ...]
    ignored: tuple[Path, ...]


def default_paths(folder: Path) -> Result[tuple[Path, ...]]:
    """Return what is run when nothing is named: `kindlm.yaml`, else the folder `tests`."""
    for name in (_DEFAULT_FILE, _DEFAULT_FOLDER):
        if (folder / name).exists():
            return Ok((folder / name,))
    return Err(
        KindlmError(
            ErrorCode.CONFIG_NOT_FOUND,
            f"There is no {_DEFAULT_FILE} and no folder {_DEFAULT_FOLDER}/ here.",
            "Write a first suite: kindlm init",
        )
    )


def load_paths(paths: Sequence[Path], root: Path) -> Result[Loaded]:
    """Load all suites that the paths hold; an error only if a path itself is of no use."""
    files: dict[Path, None] = {}
    ignored: list[Path] = []
    for path in paths:
        found = discover(path)
        if isinstance(found, Err):
            return found
        files.update(dict.fromkeys(item.path for item in found.value.found))
        ignored += found.value.ignored
    if not files:
        return Err(_no_tests(paths))
    loaded = [load_suite(file, root=root) for file in files]
    return Ok(
        Loaded(
            suites=tuple(item.suite for item in loaded if item.suite is not None),
            skipped=tuple(_skipped(item) for item in loaded if item.suite is None),
            diagnostics=tuple(found for item in loaded for found in item.diagnostics),
            folders=tuple(dict.fromkeys(file.resolve().parent for file in files)),
            ignored=tuple(ignored),
        )
    )


def _skipped(loaded: LoadedSuite) -> SkippedSuite:
    error = next(found.error for found in loaded.diagnostics if found.severity == "error")
    return SkippedSuite(loaded.name, str(loaded.path), loaded.tests, error)


def _no_tests(paths: Sequence[Path]) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"No tests in {', '.join(str(path) for path in paths)}.",
        "A test suite is a YAML file with `kindlm: 1` at its top; kindlm init writes one.",
    )
