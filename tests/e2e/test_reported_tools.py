"""Agents of which nobody knows whether they report their tool calls, from file to verdict."""

from __future__ import annotations

import json

import pytest

AGENT = """
def text(message):
    return "Done."

def listed(message):
    return {"response": "Done.", "tool_calls": []}
"""
BAN = {"toolCalls": [{"tool": "refund", "shouldNotCall": True}]}


@pytest.fixture
def write(workspace):
    (workspace.root / "shop.py").write_text(AGENT, encoding="utf-8")

    def write(*, text=(), command=()):
        said = [{"id": name, "adapter": "python", "endpoint": f"shop:{name}"}
                for name in ("text", "listed")]  # fmt: skip
        said[0] |= dict(text)
        config = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "bans"},
            "agents": said,
            "prompts": {"ask": {"user": "Refund A1."}},
            "tests": [
                {"name": "ban", "prompt": "ask", "expect": BAN},
                {"name": "run", "command": "echo Done.", "expect": BAN, **dict(command)},
            ],
        }
        (workspace.root / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")

    return write


def statuses(report):
    return {test["target"]: test["status"] for test in report["tests"]}


def test_a_ban_is_undecided_until_the_agent_is_said_to_report(workspace, write):
    write()
    report = workspace.report()
    assert statuses(report) == {"text": "errored", "listed": "passed", "command": "errored"}
    assert json.dumps(report).count("reportsTools: true") == 2
    # What an answer shows stands in its event.
    replied = "SELECT json_extract(data, '$.reports_tools') FROM event_log WHERE type = ?"
    shown = [bool(reports) for (reports,) in workspace.query(replied, "agent.replied")]
    assert sorted(shown) == [False, False, True]

    # What the suite says counts for answers that were recorded without it, too; and no more.
    again = json.loads(workspace.run("rescore", "--reporter", "json").stdout)
    assert statuses(again) == statuses(report)
    write(text={"reportsTools": True}, command={"reportsTools": True})
    again = json.loads(workspace.run("rescore", "--reporter", "json").stdout)
    assert set(statuses(again).values()) == {"passed"}
    assert set(statuses(workspace.report()).values()) == {"passed"}
    write()
    replayed = json.loads(workspace.run("replay", "--reporter", "json").stdout)
    assert statuses(replayed)["text"] == "errored"
    assert statuses(replayed)["listed"] == "passed"
