"""Programs as agents of kindlm.yaml: what a run says of them, and what it records."""

from __future__ import annotations

import json

LINES = """
import json, os, sys

asked = []
for line in sys.stdin:
    request = json.loads(line)
    asked.append(request["message"])
    if "broken" in request["message"]:
        sys.exit("cannot go on, my key is " + os.environ["SHOP_KEY"])
    call = {"name": "lookup", "arguments": {"turn": len(asked)}, "result": 0}
    roles = [message["role"] for message in request["messages"]]
    answer = {"text": f"{asked} {roles}", "tool_calls": [call], "cost": 0.5}
    print(json.dumps(answer), flush=True)
"""
KEY = "shop-key-7c1f09d2"


def test_programs_are_agents_like_others(workspace):
    (workspace.root / "deep").mkdir()
    (workspace.root / "deep/lines.py").write_text(LINES)
    (workspace.root / "shout.py").write_text("import sys; print(sys.argv[1].upper())")
    program = {"adapter": "subprocess", "env": {"SHOP_KEY": KEY}}
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "programs"},
        "agents": [
            {**program, "id": "lines", "command": "python lines.py", "cwd": "deep"},
            {**program, "id": "once", "command": "python shout.py {{message}}", "oneShot": True},
        ],
        "prompts": {"ask": {"system": "Be kind.", "user": "{{what}}"}},
        "tests": [
            {
                "name": "talks",
                "prompt": "ask",
                "models": ["lines"],
                "vars": {"what": "first"},
                "conversation": [{"user": "second"}],
                "expect": {
                    "output": {
                        "contains": ["['first', 'second'] ['system', 'user', 'assistant', 'user']"]
                    },
                    "toolCalls": [{"tool": "lookup", "argsMatch": {"turn": 2}}],
                },
            },
            {
                "name": "fails",
                "prompt": "ask",
                "models": ["lines"],
                "vars": {"what": "broken"},
                "expect": {"output": {"contains": ["x"]}},
            },
            {
                "name": "shouts",
                "prompt": "ask",
                "models": ["once"],
                "vars": {"what": "it's $HOME"},
                "expect": {"output": {"contains": ["IT'S $HOME"]}},
            },
        ],
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")
    report = workspace.report()
    tests = {test["name"]: test for test in report["tests"]}
    assert {name: test["status"] for name, test in tests.items()} == {
        "talks": "passed",
        "fails": "errored",
        "shouts": "passed",
    }
    told = json.dumps(tests["fails"])
    assert "python lines.py ended with exit code 1 without an answer" in told
    assert "cannot go on, my key is [hidden]" in told
    assert KEY.encode() not in workspace.database.read_bytes()
    costs = "SELECT cost_usd FROM provider_calls WHERE cost_usd IS NOT NULL"
    assert workspace.query(costs) == [(0.5,), (0.5,)]
