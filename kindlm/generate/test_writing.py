"""From chosen scenarios to files: rendered, loaded once before, and written beside others."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from kindlm.errors import Err
from kindlm.formats.discovery import discover
from kindlm.generate.forms import python_text, scenario_yaml, slug
from kindlm.generate.questions import AgentProfile, plain_profile
from kindlm.generate.suite_text import Comment, yaml_text
from kindlm.generate.test_plan import Order, PlannedScenario
from kindlm.scenarios.configuration import load_configuration
from kindlm.scenarios.scenario_files import Surroundings, load_scenarios


def free_name(stem: str, suffix: str, taken: Collection[str], folder: Path, *, force: bool) -> str:
    """Return the first name that is free: `stem.suffix`, else with a number.

    Names that are `taken` are not; files in the folder are left alone unless `force` is set. Names
    that differ only in case count as one, as they do on some file systems.
    """
    there: set[str] = set()
    if not force and folder.is_dir():
        there = {entry.name.lower() for entry in folder.iterdir()}
    used = there | {name.lower() for name in taken}
    names = (f"{stem}{'' if number == 1 else f'_{number}'}{suffix}" for number in count(1))
    return next(name for name in names if name.lower() not in used)


def check_folder(folder: Path) -> None:
    """Make sure that files can be written into a folder; nothing of that stays.

    Raises:
        OSError: they cannot.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    finally:
        for each in missing:
            with suppress(OSError):
                each.rmdir()


def write_file(file: Path, text: str, *, force: bool) -> Path:
    """Write a text into a file and return it; into one with a number if it came up meanwhile.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    taken: list[str] = []
    while True:
        free = free_name(file.stem, file.suffix, taken, file.parent, force=force)
        path = file.with_name(free)
        try:
            with path.open("w" if force else "x", encoding="utf-8", newline="\n") as opened:
                opened.write(text)
        except FileExistsError:
            taken.append(free)
        else:
            return path


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A scenario as it is to be written: the name of its file, and the text."""

    name: str
    text: str
    scenario: PlannedScenario


def rendered(scenarios: Sequence[PlannedScenario], order: Order) -> Iterator[RenderedFile]:
    """Yield the files of scenarios; no two have the same name, nor that of a file there is."""
    taken: list[str] = []
    for scenario in scenarios:
        stem = f"{slug(scenario.category)}_{slug(scenario.title)}"
        before, suffix = ("test_", ".py") if order.form == "python" else ("", ".yaml")
        name = free_name(f"{before}{stem}", suffix, taken, order.folder, force=order.force)
        taken.append(name)
        if order.form == "python":
            text = python_text(scenario, stem, order.written_agent)
        else:
            text = scenario_yaml(scenario, order.written_agent)
        yield RenderedFile(name, text, scenario)


def profile_text(profile: AgentProfile) -> str:
    """Return a profile as a file that people read: YAML."""
    return yaml_text({Comment(_ABOUT_PROFILE): None, **plain_profile(profile)})


_ABOUT_PROFILE = (
    "How kindlm gen understood the agent. To correct it, change the description you pass:"
    "\n--description, or --system-prompt."
)

# A file alone cannot be loaded: its tests need an agent, which is not called here.
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
