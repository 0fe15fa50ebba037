"""The examples of agents as objects: green, and red once the agent skips its tool."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checked_server import LoopbackServer
from frameworks import need
from workspace import new_workspace

EXAMPLES = Path(__file__).parents[2] / "examples"
SILENT = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
}
"""What keeps frameworks from reporting to their makers."""
PACKAGES = {
    "langgraph": ("langchain", "langchain_openai"),
    "pydantic-ai": ("pydantic_ai",),
    "openai-agents": ("agents",),
    "python-function": (),
    "autogen": ("autogen_agentchat", "autogen_ext.models.openai"),
    "google-adk": ("google.adk",),
    "smolagents": ("smolagents",),
    "llama-index": ("llama_index.llms.openai",),
    "crewai": ("crewai",),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # frameworks use what others give up
@pytest.mark.parametrize("name", PACKAGES)
def test_an_agent_that_skips_its_tool_is_red(name: str, tmp_path: Path) -> None:
    for package in PACKAGES[name]:
        need(package)
    workspace = new_workspace(tmp_path)
    for folder in ("obeys", "skips"):
        shutil.copytree(EXAMPLES / name, workspace.root / folder)
    agent = workspace.root / "skips" / "agent.py"
    agent.write_text(agent.read_text().replace(" Look every order up before you answer.", ""))
    with LoopbackServer(str(EXAMPLES / name / "model.yaml")) as model:
        openai = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), f"{model.url}/v1")
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "none")
        provider = {**openai, **keys, "ANTHROPIC_BASE_URL": model.url}
        done = workspace.run("test", "obeys", "skips", **provider, **SILENT)
    found = workspace.query("SELECT substr(test, 1, 5), status FROM executions ORDER BY 1")
    assert found == [("obeys", "passed"), ("skips", "failed")], done.stdout + done.stderr
    assert "✗ No call to lookup_order" in done.stdout
    assert "No call to lookup_order" in done.stderr


SUITE = """
kindlm: 1
project: shop
suite: { name: shop }
prompts: { ask: { user: "Where is order A1?" } }
agents: [{ id: shop, adapter: python, endpoint: "agent:agent" }]
tests:
  - name: looks it up
    prompt: ask
    expect: { toolCalls: [{ tool: lookup_order, argsMatch: { order_id: A1 } }] }
"""


def test_an_object_is_named_in_yaml_and_has_a_process_of_its_own(tmp_path: Path) -> None:
    need("pydantic_ai")
    workspace = new_workspace(tmp_path)
    shutil.copy(EXAMPLES / "pydantic-ai" / "agent.py", workspace.root)
    (workspace.root / "kindlm.yaml").write_text(SUITE)
    with LoopbackServer(str(EXAMPLES / "pydantic-ai" / "model.yaml")) as model:
        provider = {"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": "none"}
        done = workspace.run("test", **provider)
    assert done.returncode == 0, done.stdout + done.stderr
    calls = workspace.query("SELECT tool, arguments, response FROM tool_call_log")
    assert calls == [
        ("lookup_order", '{"order_id": "A1"}', '{"order_id": "A1", "status": "shipped"}')
    ]
    tokens = workspace.query("SELECT input_tokens > 0, output_tokens > 0 FROM provider_calls")
    assert tokens == [(1, 1)]
