"""What is asked of one generation, and what came of it: values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kindlm.generate.plan import PlannedScenario
from kindlm.suite import AgentTarget

__all__ = ["Form", "Generated", "Order", "WrittenFile"]

Form = Literal["python", "yaml"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be written.

    `agent` is asked what it is for; `written_agent` is its URL as the files name it, if the
    configuration does not. Files are written into `folder`, whose paths are told from `root`.
    """

    count: int
    categories: tuple[str, ...]
    form: Form
    folder: Path
    root: Path
    description: str | None = None
    system_prompt: str | None = None
    agent: AgentTarget | None = None
    written_agent: str | None = None
    seed: int | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written, and the scenario in it."""

    path: Path
    scenario: PlannedScenario


@dataclass(frozen=True, slots=True)
class Generated:
    """What was written, and why what was planned besides was not. `profile` is a file, too."""

    profile: Path
    files: tuple[WrittenFile, ...]
    left_out: tuple[str, ...]
