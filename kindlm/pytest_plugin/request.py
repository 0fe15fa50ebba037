"""From the options of pytest to the request of a run."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kindlm.cli.labels import label_problem
from kindlm.engine.runner import Limits
from kindlm.errors import Err, KindlmError
from kindlm.events import RunOptions
from kindlm.plan import Selection
from kindlm.pytest_plugin.collected import Collected
from kindlm.recording.project import find_project
from kindlm.recording.request import RunRequest

_MOST_REPEATS = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of pytest. A worker of several is `shard`, such as 1/4, of a `group`.

    Where its tests are `dealt` to it, it learns of them only as they come.
    """

    root: Path
    database: Path
    named: bool
    label: str | None
    repeat: int | None
    max_cost_usd: float | None
    group: str | None = None
    shard: str | None = None
    dealt: bool = False

    def request(self, collected: Collected) -> RunRequest:
        """Return what is to be run of what was collected."""
        options = RunOptions(
            paths=sorted(collected.paths),
            repeat=self.repeat,
            max_cost_usd=self.max_cost_usd,
            shard=self.shard,
            runner="pytest",
        )
        return RunRequest(
            suites=collected.suites,
            skipped=collected.skipped,
            selection=Selection(repeat=self.repeat, only=collected.chosen),
            root=self.root,
            database=self.database,
            environ=collected.environ,
            options=options,
            limits=Limits(self.max_cost_usd),
            label=self.label,
            group=self.group,
        )


def read_options(config: pytest.Config) -> Asked:
    """Return what was asked; raise `pytest.UsageError` for what can not be meant.

    A worker of pytest-xdist is told by its controller where things are: all write one history.
    """
    if not hasattr(pytest, "HIDDEN_PARAM"):
        raise pytest.UsageError(
            f"--kindlm needs pytest 8.4 or newer, and this is {pytest.__version__}"
        )
    label, repeat = config.getoption("--kindlm-label"), config.getoption("--kindlm-repeat")
    max_cost = config.getoption("--kindlm-max-cost")
    if label is not None and (problem := label_problem(label)):
        raise _misused(problem)
    if repeat is not None and not 1 <= repeat <= _MOST_REPEATS:
        raise pytest.UsageError(
            f"--kindlm-repeat {repeat}: write a number from 1 to {_MOST_REPEATS}"
        )
    if max_cost is not None and not (math.isfinite(max_cost) and max_cost > 0):
        raise pytest.UsageError(f"--kindlm-max-cost {max_cost} is no limit: write a number above 0")
    named = config.getoption("--kindlm-db")
    told: dict[str, Any] = getattr(config, "workerinput", {}).get("kindlm", {})
    if told:
        root, database = Path(told["root"]), Path(told["database"])
        part = (told["group"], told["shard"], told["dealt"])
        return Asked(root, database, named is not None, label, repeat, max_cost, *part)
    chosen = Path(named) if named else None
    project = find_project(Path.cwd(), database=chosen, environ=os.environ)
    if isinstance(project, Err):
        raise _misused(project.error)
    found = project.value
    return Asked(found.root, found.database, named is not None, label, repeat, max_cost)


def _misused(error: KindlmError) -> pytest.UsageError:
    return pytest.UsageError(" ".join(filter(None, (error.message, error.hint))))
