"""What is wrong with a tool call is shown, also where it fails nothing."""

from __future__ import annotations

import json


def test_arguments_that_break_the_schema_are_shown(workspace, server):
    schema = {"type": "object", "required": ["customer"], "properties": {}}
    tools = [{"name": "lookup_order", "parameters": schema, "defaultResponse": {"ok": True}}]
    expect = {"output": {"contains": ["delivered"]}}
    workspace.suite(server.url, tests=[workspace.test(tools=tools, expect=expect)])
    assert workspace.run("test").returncode == 0
    shown = workspace.run("show", "latest", "1").stdout
    assert "problem" in shown
    assert "customer" in shown


def test_what_a_python_agent_prints_does_not_run_into_the_report(workspace):
    (workspace.root / "noisy.py").write_text(
        "def agent(message):\n    print('NOISE')\n    return 'delivered'\n", encoding="utf-8"
    )
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "noisy"},
        "agents": [{"id": "a", "adapter": "python", "endpoint": "noisy:agent"}],
        "prompts": {"ask": {"user": "Where?"}},
        "tests": [
            {"name": "t", "prompt": "ask", "expect": {"output": {"contains": ["delivered"]}}}
        ],
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")
    done = workspace.run("test", "--reporter", "json")
    assert json.loads(done.stdout)["run"]["status"] == "passed"
    assert "NOISE" in done.stderr


def test_a_problem_in_a_file_of_rows_is_reported_as_one_of_that_file(workspace):
    test = workspace.test("broken", varsFrom="orders.csv")
    workspace.suite("http://127.0.0.1:9", tests=[test])
    (workspace.root / "orders.csv").write_text("id,order\na,1\nb\n")
    (error,) = workspace.report()["errors"]
    assert error["message"].startswith("orders.csv:3:1: ")
    shown = workspace.run("show", "latest").stdout
    assert "orders.csv:3:1" in shown
    assert "kindlm.yaml:3" not in shown
