"""From chosen scenarios to files: rendered, and written beside others."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile

from kindlm.generate.forms import python_text, scenario_yaml, slug
from kindlm.generate.questions import AgentProfile, plain_profile
from kindlm.generate.suite_text import Comment, yaml_text
from kindlm.generate.test_plan import Order, PlannedScenario


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


def write_file(file: Path, text: str, *, force: bool, taken: Collection[Path] = ()) -> Path:
    """Write a text into a file and return it; into one with a number if there is such a file.

    With `force` it overwrites the file, except for those that are `taken`.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    numbered = (file.with_stem(f"{file.stem}_{number}") for number in count(2))
    path = file
    while path in taken or not _written(path, text, force=force):
        path = next(numbered)
    return path


def _written(path: Path, text: str, *, force: bool) -> bool:
    """Write a file and return whether that is allowed."""
    try:
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    except FileExistsError:
        return False
    return True


def rendered(scenario: PlannedScenario, order: Order) -> tuple[str, str]:
    """Return the name of a scenario's file, and its text."""
    stem = f"{slug(scenario.category)}_{slug(scenario.title)}"
    if order.form == "yaml":
        return f"{stem}.yaml", scenario_yaml(scenario, order.written_agent)
    return f"test_{stem}.py", python_text(scenario, stem, order.written_agent)


def profile_text(profile: AgentProfile) -> str:
    """Return a profile as a file that people read: YAML."""
    return yaml_text({Comment(_ABOUT_PROFILE): None, **plain_profile(profile)})


_ABOUT_PROFILE = (
    "How kindlm gen understood the agent. To correct it, change the description you pass:"
    "\n--description, or --system-prompt."
)
