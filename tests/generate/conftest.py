"""A project whose agent is a shop's, and whose model plans what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from planned_shop import good_agent, model
from scenario_project import LoopbackAgent, Project, new_project, serving_agent


@pytest.fixture
def agent() -> Iterator[LoopbackAgent]:
    with serving_agent() as agent:
        agent.answer = good_agent()
        agent.judge = model
        yield agent


@pytest.fixture
def project(tmp_path: Path, agent: LoopbackAgent, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return new_project(tmp_path, agent)
