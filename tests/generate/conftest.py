"""A project whose agent is a shop's, and whose model plans what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from planned_shop import serving_shop
from scenario_project import LoopbackAgent, Project, new_project


@pytest.fixture
def agent() -> Iterator[LoopbackAgent]:
    with serving_shop() as agent:
        yield agent


@pytest.fixture
def project(tmp_path: Path, agent: LoopbackAgent, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return new_project(tmp_path, agent)
