"""A trace of a real LangGraph agent becomes a test that it passes, and a careless one fails."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from checked_server import LoopbackServer
from frameworks import is_there

from kindlm.cli.app import run

pytestmark = pytest.mark.skipif(
    not is_there("langchain", "langchain_openai"), reason="LangChain is not installed"
)

MESSAGE = "Please refund my order A1. I am ann.lee@shop.org."
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


def statuses(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], str]:
    report = json.loads(capsys.readouterr().out)
    return {(test["name"], test["target"]): test["status"] for test in report["tests"]}


def test_the_agent_passes_its_own_trace_and_a_careless_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(__file__).with_name("shop_graph.py"), tmp_path)
    monkeypatch.setenv("TRACE_FILE", str(tmp_path / "trace.pb"))
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-the-test")
    program = {
        "adapter": "subprocess",
        "command": [sys.executable, "-W", "ignore", "shop_graph.py"],
    }
    suite = {
        "agent": {**program, "telemetry": "otlp"},
        "tests": [{"name": "refunds", "input": MESSAGE, "expect": {"toolCalls": ["issue_refund"]}}],
    }
    Path("kindlm.yaml").write_text(yaml.safe_dump(suite), "utf-8")
    with LoopbackServer(MODEL) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        assert run(["test", "--quiet"]) == 0
        agent = ["--agent", "python:shop_graph.py:agent", "--output", "made"]
        assert run(["gen", "--from-trace", "trace.pb", *agent]) == 0
        assert run(["gen", "--from-run", "latest", "1", *agent]) == 0
        shutil.copy("trace.pb", "model.pb")
        assert run(["gen", "--from-trace", "model.pb", "--output", "made"]) == 0
        made = {
            file.stem: yaml.safe_load(file.read_text("utf-8")) for file in Path("made").iterdir()
        }
        # Each target imports LangGraph once for both tests.
        own = made["trace"].pop("agent")
        assert own == made["refunds"]["agent"]
        careless = own | {"id": "careless", "endpoint": "shop_graph:careless"}
        made["trace"] |= {"agents": [own | {"id": "agent"}, careless]}
        made["trace"] |= {"defaults": {"concurrency": 1}}
        made["trace"]["tests"] += made.pop("refunds")["tests"]
        assert made["model"].pop("model") == "openai/careful"
        provider = {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server.url}/v1"}
        made["model"] |= {"providers": {"openai": provider}}
        made["model"] |= {"models": ["openai/careful", "openai/careless"]}
        (traced,) = (test["name"] for test in made["model"]["tests"])
        Path("made/refunds.yaml").unlink()
        for name, document in made.items():
            Path("made", f"{name}.yaml").write_text(yaml.safe_dump(document), "utf-8")
        capsys.readouterr()
        assert run(["test", "made", "--reporter", "json"]) == 1
    assert statuses(capsys) == {
        (name, target): "failed" if "careless" in target else "passed"
        for name in (traced, "refunds")
        for target in ("agent", "careless")
    } | {(traced, "openai/careful"): "passed", (traced, "openai/careless"): "failed"}
