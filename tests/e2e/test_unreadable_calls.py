"""Tool calls whose arguments are not a JSON object: never taken for calls without arguments."""

from __future__ import annotations

import json

import pytest

EMAIL = "jane.roe@example.com"
CALL = {"kindlm": "tool_call", "name": "mail", "arguments": [{"to": EMAIL}]}


@pytest.fixture
def record(workspace):
    """Test a program that reports a call whose arguments are a list; return the report."""

    def record(**expect):
        case = {"name": "tell", "command": ["echo", json.dumps(CALL)], "expect": expect}
        config = {"kindlm": 1, "project": "shop", "suite": {"name": "mails"}, "tests": [case]}
        (workspace.root / "kindlm.yaml").write_text(json.dumps(config), "utf-8")
        return workspace.report()["tests"][0]["executions"][0]

    return record


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        ({"tool": "mail", "shouldNotCall": True}, "failed"),
        ({"tool": "mail", "shouldNotCall": True, "argsMatch": {"to": EMAIL}}, "errored"),
        ({"tool": "refund", "shouldNotCall": True, "argsMatch": {"to": EMAIL}}, "passed"),
        ({"tool": "mail", "argsMatch": {}}, "failed"),
    ],
)
def test_what_cannot_be_read_is_not_what_was_forbidden_or_asked_for(record, entry, status):
    assert record(toolCalls=[entry])["status"] == status


def test_they_are_recorded_and_shown_as_they_were_written(workspace, record):
    execution = record(toolCalls=[{"tool": "mail"}])

    assert execution["toolCalls"][0]["arguments"] == '[{"to":"jane.roe@example.com"}]'
    ((data,),) = workspace.query("SELECT data FROM event_log WHERE type = 'agent.replied'")
    assert json.loads(data)["tool_calls"][0]["malformed"] is True
    shown = workspace.run("show", "latest", "1").stdout
    assert EMAIL in shown
    assert 'arguments of tool call 0, "mail", are not a JSON object' in shown


def test_personal_data_in_them_is_found_and_not_repeated(workspace, record):
    execution = record(guardrails={"pii": {}}, toolCalls=[{"tool": "mail"}])

    assert execution["assertions"][0]["failureCode"] == "PII_DETECTED"
    assert EMAIL not in json.dumps(execution)
    assert EMAIL not in workspace.run("show", "latest", "1").stdout
