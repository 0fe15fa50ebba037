"""A trace of a LangGraph agent becomes a test that a careful model passes and a careless one fails.

`langgraph_trace.pb` is what OpenInference's instrumentation exported of an agent with two tools.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from checked_server import LoopbackServer

from kindlm.cli.app import run

MODEL = {
    "rules": [
        {
            "name": "look up",
            "when": {"model": "careful", "notCalledThisTurn": "lookup_order"},
            "reply": {"toolCalls": [{"name": "lookup_order", "arguments": {"order_id": "A1"}}]},
        },
        {
            "name": "refund",
            "when": {"notCalledThisTurn": "issue_refund"},
            "reply": {"toolCalls": [{"name": "issue_refund", "arguments": {"order_id": "A1"}}]},
        },
        {"name": "answer", "when": {}, "reply": {"text": "It is refunded."}},
    ]
}


def test_a_careful_model_passes_the_trace_of_an_agent_and_a_careless_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-the-test")
    shutil.copy(Path(__file__).with_name("langgraph_trace.pb"), "trace.pb")
    assert run(["gen", "--from-trace", "trace.pb", "--output", "made"]) == 0
    made = yaml.safe_load(Path("made/trace.yaml").read_text("utf-8"))
    assert made.pop("model") == "openai/careful"
    with LoopbackServer(MODEL) as server:
        provider = {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server.url}/v1"}
        made |= {"providers": {"openai": provider}}
        made |= {"models": ["openai/careful", "openai/careless"]}
        Path("made/trace.yaml").write_text(yaml.safe_dump(made), "utf-8")
        capsys.readouterr()
        assert run(["test", "made", "--reporter", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    statuses = {test["target"]: test["status"] for test in report["tests"]}
    assert statuses == {"openai/careful": "passed", "openai/careless": "failed"}
