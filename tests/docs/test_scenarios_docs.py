"""The page on scenarios is true: its scenarios run, against an agent that does what they expect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scenario_project import Project, new_project, serving_agent

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "scenarios.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"<!-- (\w+: \w+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))


def polite(request: dict[str, Any]) -> dict[str, Any]:
    calls = [{"name": "lookup_order", "arguments": {"order_id": "A1"}}]
    usage = {"input_tokens": 300, "output_tokens": 20}
    return {"message": "I am sorry. A refund takes five days.", "tool_calls": calls, "usage": usage}


def judge(data: dict[str, Any]) -> dict[str, Any]:
    if "criteria" in data:
        return {"score": 4, "reasoning": "realistic"}
    if "goal" in data:
        return {"message": "When?", "done": data["mayEnd"], "reason": "it is promised"}
    return {"conveyed": True, "quote": "sorry", "reasoning": "warm"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    with serving_agent() as agent:
        agent.answer, agent.judge = polite, judge
        project = new_project(tmp_path, agent)
        written = BLOCKS["configuration: runs"]
        written = written.replace("http://127.0.0.1:8000/chat", agent.url)
        base = agent.url.removesuffix("/chat")
        key = f'base_url = "{base}/v1"\napi_key_env = "JUDGE_KEY"\n'
        monkeypatch.setenv("JUDGE_KEY", "key-of-the-judge")
        project.write("kindlm.toml", written + key)
        yield project


@pytest.mark.parametrize(
    ("block", "file"),
    [
        ("scenario: runs", "test_refund.py"),
        ("scenario: object", "test_object.py"),
        ("scenario: sync", "test_greeting.py"),
        ("scenario: simulated", "test_simulated.py"),
        ("scenario: conversation", "test_conversation.py"),
        ("scenario: yaml", "refund.yaml"),
    ],
)
def test_the_scenarios_pass(project: Project, block: str, file: str) -> None:
    project.write(f"tests/{file}", BLOCKS[block])
    assert project.test() == 0


def test_the_first_scenario_fails_for_the_right_reason(project: Project) -> None:
    project.agent.answer = lambda _: {"message": "Calm down.", "tool_calls": []}
    project.agent.judge = lambda _: {"conveyed": False, "quote": "", "reasoning": "rude"}
    project.write("tests/test_refund.py", BLOCKS["scenario: runs"])
    assert project.test() == 1
    assert [(kind, outcome, line) for kind, _, outcome, line in project.checks()] == [
        ("not_contains", "failed", 9),
        ("tool_called", "failed", 9),
        ("latency", "passed", 9),
        ("sentiment", "failed", 10),
    ]
