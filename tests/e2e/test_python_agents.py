"""Agents in Python as a run has them: whatever one does, the run tells how it went."""

from __future__ import annotations

import json


def test_an_agent_that_ends_its_process_makes_no_run_green(workspace):
    (workspace.root / "shop.py").write_text(
        "import os\n"
        "def leave(message):\n    os._exit(0)\n"
        "def answer(message):\n    return 'delivered'\n",
        encoding="utf-8",
    )
    expect = {"output": {"contains": ["delivered"]}}
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "leaving"},
        "agents": [
            {"id": name, "adapter": "python", "endpoint": f"shop:{name}"}
            for name in ("leave", "answer")
        ],
        "prompts": {"ask": {"user": "Where?"}},
        "tests": [{"name": "t", "prompt": "ask", "expect": expect}],
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")
    # Not from here: its agents have processes of their own that have loaded nothing.
    done = workspace.run_apart("test", "--reporter", "json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["run"]["status"] == "failed"
    tests = {test["target"]: test for test in report["tests"]}
    assert tests["answer"]["status"] == "passed"
    assert tests["leave"]["status"] == "errored"
    assert "agent 'leave' ended with exit code 0" in json.dumps(report)
