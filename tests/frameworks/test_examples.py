"""The examples of agents as objects: green, and red once the agent skips its tool."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checked_server import LoopbackServer
from workspace import new_workspace

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "langgraph": ("langchain", "langchain_openai"),
    "pydantic-ai": ("pydantic_ai",),
    "openai-agents": ("agents",),
    "python-function": (),
}


@pytest.mark.parametrize("name", NEEDS)
def test_an_agent_that_skips_its_tool_is_red(name: str, tmp_path: Path) -> None:
    for package in NEEDS[name]:
        pytest.importorskip(package)
    workspace = new_workspace(tmp_path)
    for folder in ("obeys", "skips"):
        shutil.copytree(EXAMPLES / name, workspace.root / folder)
    agent = workspace.root / "skips" / "agent.py"
    agent.write_text(agent.read_text().replace(" Look every order up before you answer.", ""))
    with LoopbackServer(str(EXAMPLES / name / "model.yaml")) as model:
        provider = {"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": "none"}
        done = workspace.run(
            "test", "obeys", "skips", OPENAI_AGENTS_DISABLE_TRACING="1", **provider
        )
    found = workspace.query("SELECT substr(test, 1, 5), status FROM executions ORDER BY 1")
    assert found == [("obeys", "passed"), ("skips", "failed")], done.stdout + done.stderr
    assert "no tool was called" in " ".join(done.stdout.split())
