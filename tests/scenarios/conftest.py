"""A project with scenarios, and the agent that they talk to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_project import LoopbackAgent, Project, new_project, serving_agent


@pytest.fixture
def agent() -> Iterator[LoopbackAgent]:
    with serving_agent() as agent:
        yield agent


@pytest.fixture
def project(tmp_path: Path, agent: LoopbackAgent, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return new_project(tmp_path, agent)
