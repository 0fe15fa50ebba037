"""The examples of services whose tool calls only the gateway sees, and `kindlm init --agent`."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from checked_server import LoopbackServer
from workspace import Workspace

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVICES = [
    pytest.param(
        "node",
        "server.mjs",
        marks=pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed"),
    ),
    pytest.param(
        "fastapi",
        "main.py",
        marks=pytest.mark.skipif(find_spec("fastapi") is None, reason="FastAPI is not installed"),
    ),
]


@pytest.fixture
def shop(workspace: Workspace) -> Workspace:
    """A workspace whose services run with the Python of this test."""
    own = str(Path(sys.executable).parent)
    workspace.env["PATH"] = os.pathsep.join([own, workspace.env["PATH"]])
    return workspace


@pytest.mark.parametrize(("kind", "program"), SERVICES)
def test_a_service_that_skips_its_tool_is_red(shop: Workspace, kind: str, program: str) -> None:
    for file in (EXAMPLES / f"{kind}-agent").iterdir():
        if file.is_file():
            shutil.copy(file, shop.root)
    assert shop.report()["run"]["status"] == "passed"
    calls = "SELECT tool, arguments, response FROM tool_call_log"
    assert shop.query(calls) == [("lookup_order", '{"order_id": "A1"}', '{"status": "shipped"}')]
    agent = shop.root / program
    agent.write_text(agent.read_text().replace(" Look every order up before you answer.", ""))
    done = shop.run("test")
    assert done.returncode == 1
    assert 'Expected a call of "lookup_order", but no tool was called' in done.stdout


@pytest.mark.parametrize(("kind", "program"), SERVICES)
def test_what_init_writes_for_a_service_runs(shop: Workspace, kind: str, program: str) -> None:
    example = EXAMPLES / f"{kind}-agent"
    shutil.copy(example / program, shop.root)
    assert shop.run("init", "--agent", kind).returncode == 0
    with LoopbackServer(str(example / "model.yaml")) as model:
        done = shop.run("test", OPENAI_BASE_URL=f"{model.url}/v1")
    assert done.returncode == 0, done.stdout + done.stderr
