"""Tool calls whose arguments are not a JSON object: never taken for calls without arguments."""

from __future__ import annotations

import json

import pytest

EMAIL = "jane.roe@example.com"
CALL = {"kindlm": "tool_call", "name": "mail", "arguments": [{"to": EMAIL}]}


@pytest.fixture
def record(workspace):
    """Test a program that reports a call whose arguments are a list; return the executions."""

    def record(*expected):
        command = ["echo", json.dumps(CALL)]
        tests = [
            {"name": f"tell {number}", "command": command, "expect": expect}
            for number, expect in enumerate(expected)
        ]
        config = {"kindlm": 1, "project": "shop", "suite": {"name": "mails"}, "tests": tests}
        (workspace.root / "kindlm.yaml").write_text(json.dumps(config), "utf-8")
        return [test["executions"][0] for test in workspace.report()["tests"]]

    return record


def test_what_cannot_be_read_is_not_what_was_forbidden_or_asked_for(record):
    entries = {
        "failed": {"tool": "mail", "shouldNotCall": True},
        "errored": {"tool": "mail", "shouldNotCall": True, "argsMatch": {"to": EMAIL}},
        "passed": {"tool": "refund", "shouldNotCall": True, "argsMatch": {"to": EMAIL}},
    }
    found = record(*({"toolCalls": [entry]} for entry in entries.values()))
    assert [execution["status"] for execution in found] == list(entries)


def test_they_are_recorded_and_shown_as_they_were_written(workspace, record):
    (execution,) = record({"toolCalls": [{"tool": "mail"}]})

    assert execution["toolCalls"][0]["arguments"] == '[{"to":"jane.roe@example.com"}]'
    ((data,),) = workspace.query("SELECT data FROM event_log WHERE type = 'agent.replied'")
    assert json.loads(data)["tool_calls"][0]["malformed"] is True
    shown = workspace.run("show", "latest", "1").stdout
    assert EMAIL in shown
    assert 'arguments of tool call 0, "mail", are not a JSON object' in shown


def test_personal_data_in_them_is_found_and_not_repeated(workspace, record):
    (execution,) = record({"guardrails": {"pii": {}}, "toolCalls": [{"tool": "mail"}]})

    assert execution["assertions"][0]["failureCode"] == "PII_DETECTED"
    assert EMAIL not in json.dumps(execution)
    assert EMAIL not in workspace.run("show", "latest", "1").stdout
