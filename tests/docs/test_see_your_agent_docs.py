"""The page on seeing an agent is true: each of its ways sees a tool call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from checked_server import LoopbackServer
from scenario_project import Project, new_project, serving_agent

from kindlm.cli.app import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "see-your-agent.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"<!-- (\w+: \w+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
CALLED = {"text": "Done.", "tool_calls": [{"name": "lookup_order", "arguments": {}}]}
CALLING = """
import json, os, sys
from urllib.request import Request, urlopen

schema = {"type": "object", "properties": {"order_id": {"type": "string"}}}
tool = {"type": "function", "function": {"name": "lookup_order", "parameters": schema}}
system = {"role": "system", "content": "Look every order up before you answer."}
for line in sys.stdin:
    said = [system, {"role": "user", "content": json.loads(line)["message"]}]
    while True:
        body = json.dumps({"model": "gpt-4o", "messages": said, "tools": [tool]}).encode()
        key = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        headers = {"content-type": "application/json", **key}
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        with urlopen(Request(url, body, headers)) as got:
            reply = json.load(got)["choices"][0]["message"]
        said.append(reply)
        if not reply.get("tool_calls"):
            break
        for call in reply["tool_calls"]:
            said.append({"role": "tool", "tool_call_id": call["id"], "content": "{}"})
    print(json.dumps({"text": reply["content"]}), flush=True)
"""
"""Asks by hand: a program would load an SDK longer than it runs."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    with serving_agent() as agent:
        agent.answer = lambda _: CALLED
        yield new_project(tmp_path, agent)


def test_the_object(project: Project) -> None:
    project.write("tests/shop.py", f"def agent(text):\n    return {CALLED}\n")
    project.write("tests/test_order.py", BLOCKS["object: shop"])
    assert project.test() == 0


@pytest.mark.parametrize("block", ["answers: http", "gateway: program", "traces: program"])
def test_what_a_suite_sees(project: Project, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = BLOCKS[block].replace("http://127.0.0.1:8000/chat", project.agent.url)
    test = {
        "name": "looks-an-order-up",
        "prompt": "ask",
        "expect": {"toolCalls": [{"tool": "lookup_order"}]},
    }
    suite = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "shop"},
        "prompts": {"ask": {"user": "Where is my order A1?"}},
        "tests": [test],
        **yaml.safe_load(agents),
    }
    project.write("kindlm.yaml", yaml.safe_dump(suite))
    project.write("agent.py", CALLING)
    traced = ROOT / "tests" / "shared" / "traced_program.py"
    project.write("traced.py", traced.read_text("utf-8"))
    with LoopbackServer(str(ROOT / "examples" / "node-agent" / "model.yaml")) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-the-test")
        assert run(["test", "kindlm.yaml", "--quiet"]) == 0
