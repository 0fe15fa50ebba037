"""Agents of all kinds: a test is green, and red once the agent skips its tool.

The tests are those of the examples, and those that `kindlm init --agent` writes.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from checked_server import LoopbackServer
from frameworks import is_there
from workspace import Workspace

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOK_UP = " Look every order up before you answer."
RED = "✗ No call to lookup_order"
PYTHON = f"""
INSTRUCTIONS = "You are the support agent of a shop.{LOOK_UP}"

def answer(text):
    calls = [{{"name": "lookup_order", "arguments": {{"order_id": "A1"}}}}]
    return {{"text": "It is shipped.", "tool_calls": calls if "Look" in INSTRUCTIONS else []}}
"""
ASKING = f"""\
import json
import os
import sys
from urllib.request import Request, urlopen

schema = {{"type": "object", "properties": {{"order_id": {{"type": "string"}}}}}}
tool = {{"type": "function", "function": {{"name": "lookup_order", "parameters": schema}}}}
system = {{"role": "system", "content": "You help.{LOOK_UP}"}}


def answer(text):
    said = [system, {{"role": "user", "content": text}}]
    while True:
        reply = complete({{"model": "gpt-4o", "messages": said, "tools": [tool]}})
        said.append(reply)
        if not reply.get("tool_calls"):
            return reply["content"]
        for call in reply["tool_calls"]:
            said.append({{"role": "tool", "tool_call_id": call["id"], "content": "{{}}"}})


def complete(body):
    key = {{"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}}
    headers = {{"content-type": "application/json", **key}}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as got:
        return json.load(got)["choices"][0]["message"]
"""
"""Asks by hand: a program would load an SDK longer than it runs."""
PROGRAM = f"#!{sys.executable}\n{ASKING}\n\nprint(answer(sys.argv[1]))\n"
FASTAPI = f"""{ASKING}

from fastapi import Body, FastAPI

app = FastAPI()


@app.post("/chat")
def chat(message: str = Body(embed=True)) -> dict[str, str]:
    return {{"message": answer(message)}}
"""


def agent(kind: str, *values: str) -> pytest.ParameterSet:
    runs = {"node": shutil.which("node") is not None, "fastapi": is_there("fastapi")}
    mark = pytest.mark.skipif(not runs.get(kind, True), reason=f"{kind} is not installed")
    return pytest.param(kind, *values, marks=mark, id=kind)


NODE = (EXAMPLES / "node-agent" / "server.mjs").read_text("utf-8")
AGENTS = [
    agent("node", "server.mjs", NODE),
    agent("fastapi", "main.py", FASTAPI),
    agent("program", "agent", PROGRAM),
    agent("python", "agent.py", PYTHON),
]
"""What is written for objects of frameworks is what is written for the one in Python."""


@pytest.fixture
def shop(workspace: Workspace) -> Workspace:
    """A workspace whose services run with the Python of this test."""
    own = str(Path(sys.executable).parent)
    workspace.env["PATH"] = os.pathsep.join([own, workspace.env["PATH"]])
    return workspace


@pytest.mark.parametrize("kind", [agent("node"), agent("fastapi")])
def test_the_example_of_a_service(shop: Workspace, kind: str) -> None:
    del shop.env["OPENAI_API_KEY"]
    for each in (EXAMPLES / f"{kind}-agent").iterdir():
        if each.is_file():
            shutil.copy(each, shop.root)
    assert shop.report()["run"]["status"] == "passed"
    calls = "SELECT tool, arguments, response FROM tool_call_log"
    assert shop.query(calls) == [("lookup_order", '{"order_id": "A1"}', '{"status": "shipped"}')]
    if kind == "node":  # the suites of the two differ in what they start alone
        (shop.root / "server.mjs").write_text(NODE.replace(LOOK_UP, ""))
        done = shop.run("test")
        assert done.returncode == 1
        assert RED in done.stdout


@pytest.mark.parametrize(("kind", "file", "source"), AGENTS)
def test_what_init_writes(shop: Workspace, kind: str, file: str, source: str) -> None:
    (shop.root / file).write_text(source)
    (shop.root / file).chmod(0o755)
    written = shop.run("init", "--agent", kind)
    _, _, command = written.stderr.strip().rpartition("Next: kindlm ")
    with LoopbackServer(str(EXAMPLES / "node-agent" / "model.yaml")) as model:
        shop.env["OPENAI_BASE_URL"] = f"{model.url}/v1"
        green = shop.run(*command.split())
        assert green.returncode == 0, green.stdout + green.stderr
        if kind == "fastapi":  # its suite differs from that of Node in what it starts alone
            return
        (shop.root / file).write_text(source.replace(LOOK_UP, ""))
        red = shop.run(*command.split())
        assert red.returncode == 1
        assert RED in red.stdout
