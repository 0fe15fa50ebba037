"""Scenarios in YAML as items of pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kindlm.config.load import read_bytes
from kindlm.errors import Err
from kindlm.formats.discovery import discover
from kindlm.pytest_plugin.failures import told_error
from kindlm.scenarios.finding import Scenario
from kindlm.scenarios.yaml_form import read_scenarios

__all__ = ["YamlFile", "YamlItem", "holds_scenarios"]


def holds_scenarios(file: Path) -> bool:
    """Tell whether a file is YAML with scenarios."""
    if file.suffix.lower() not in (".yaml", ".yml"):
        return False
    found = discover(file)
    return not isinstance(found, Err) and found.value.found[0].front_end == "scenario"


class YamlItem(pytest.Item):
    """A scenario of a YAML file; `run` is what runs it."""

    def __init__(self, *, scenario: Scenario, run: Callable[[YamlItem], None], **kwargs: Any):
        super().__init__(**kwargs)
        self.scenario = scenario
        self._run = run

    def runtest(self) -> None:
        """Run the scenario."""
        self._run(self)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where it is written; pytest counts lines from 0."""
        line = self.scenario.where.line
        return self.path, None if line is None else line - 1, self.name


class YamlFile(pytest.File):
    """A YAML file with scenarios."""

    def __init__(self, *, run: Callable[[YamlItem], None], **kwargs: Any):
        super().__init__(**kwargs)
        self._run = run

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the scenarios, or tell all that is wrong with the file."""
        data = read_bytes(self.path)
        if isinstance(data, Err):
            raise self.CollectError(told_error(data.error))
        read = read_scenarios(self.path, data.value)
        errors = [told_error(each.error) for each in read.diagnostics if each.severity == "error"]
        if errors:
            raise self.CollectError("\n".join(errors))
        for scenario in read.scenarios:
            yield YamlItem.from_parent(self, name=scenario.name, scenario=scenario, run=self._run)
