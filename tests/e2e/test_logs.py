"""Log lines: who asks gets them, each is JSON where nobody watches, and none says too much."""

from __future__ import annotations

import json
import os
import pty

import pytest

PROMPT = "a message that nobody else may read"
REPLY = "delivered, and the customer is Jane Roe"


@pytest.fixture
def talkative(workspace, server):
    """A suite with a call that fails first, a reply that is known, and a message that is."""
    rules = [{"name": "answer", "when": {}, "reply": {"text": REPLY}}]
    server.use_script({"rules": rules})
    server.use_faults([{"status": 429, "retryAfter": 0.01, "next": 1}])
    test = workspace.test(tools=[], vars={"order": PROMPT}, expect={"output": {"contains": ["x"]}})
    workspace.suite(server.url, tests=[test])
    return workspace


def lines_of(stderr):
    return [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("asked", [{"DEBUG": "kindlm*"}, {"KINDLM_LOG": "debug"}], ids=str)
def test_every_line_is_json_with_the_run_and_without_any_text(talkative, key, asked):
    done = talkative.run("test", "--no-progress", **asked)
    lines = lines_of(done.stderr)
    (run,) = talkative.query("SELECT id FROM runs")[0]
    assert {line["run_id"] for line in lines} == {run}
    for line in lines:
        assert {"level", "code", "message", "run_id", "timestamp"} <= set(line)
    for secret in (PROMPT, REPLY, "Jane", key):
        assert secret not in done.stderr


DYING = f"""
import os, sys

class Dying:
    def __call__(self, message):
        return "delivered"

    async def __aexit__(self, *_):
        print("{REPLY}", file=sys.stderr, flush=True)
        os._exit(3)

    async def __aenter__(self):
        return self
"""


def test_the_words_of_an_agent_that_ends_while_closing_are_no_log_line(workspace):
    (workspace.root / "agent.py").write_text(DYING)
    agents = [{"id": "dying", "adapter": "python", "path": ".", "endpoint": "agent:Dying"}]
    tests = [workspace.test(tools=[], models=["dying"], expect={"output": {"contains": ["d"]}})]
    workspace.suite("http://127.0.0.1:9", agents=agents, tests=tests)
    done = workspace.run("test", "--no-progress", KINDLM_LOG="warn")
    assert REPLY in done.stderr  # the agent's own output
    messages = [line["message"] for line in lines_of(done.stderr)]
    assert "Agent 'dying' failed while closing" in messages
    assert REPLY not in str(messages)


def test_a_call_is_reported_with_what_became_of_it(talkative):
    lines = lines_of(talkative.run("test", KINDLM_LOG="debug").stderr)
    calls = [line for line in lines if line.get("call")]
    assert [line["message"] for line in calls] == [
        "The call began",
        "The call failed",
        "The call began",
        "The call was answered",
    ]
    failed, answered = calls[1], calls[3]
    assert (failed["level"], failed["code"]) == ("warning", "PROVIDER_RATE_LIMIT")
    assert (failed["http_status"], failed["call"]) == (429, 1)
    assert failed["retry_in_ms"] == pytest.approx(10)
    assert calls[2]["attempt"] == 2
    assert (answered["provider"], answered["model"]) == ("openai", "gpt-4o")
    assert answered["latency_ms"] > 0
    assert {line["execution"] for line in calls} == {"1.1"}
    (ended,) = [line for line in lines if line["message"] == "The execution ended"]
    assert (ended["level"], ended["status"]) == ("info", "failed")


@pytest.mark.parametrize(
    ("asked", "levels"),
    [
        ({}, ""),
        ({"DEBUG": "express:*"}, ""),
        ({"KINDLM_LOG": "error"}, ""),
        ({"KINDLM_LOG": "warning"}, "warning"),
        ({"KINDLM_LOG": "INFO"}, "warning info"),
        ({"DEBUG": "express:*,kindlm:engine:calls"}, "warning debug"),
        ({"DEBUG": "*"}, "warning info debug"),
    ],
    ids=str,
)
def test_who_asks_for_what(talkative, asked, levels):
    done = talkative.run("test", **asked)
    assert {line["level"] for line in lines_of(done.stderr)} == set(levels.split())


def test_an_error_has_its_code(workspace, server):
    workspace.suite(server.url, defaults={"retries": 0})
    server.use_faults([{"status": 401}])
    lines = lines_of(workspace.run("test", KINDLM_LOG="error").stderr)
    assert [(line["level"], line["code"]) for line in lines] == [("error", "PROVIDER_AUTH_ERROR")]


def test_standard_output_holds_the_report_alone(talkative):
    done = talkative.run("test", "--reporter", "json", DEBUG="*")
    assert json.loads(done.stdout)["schemaVersion"] == 1


def test_a_level_that_does_not_exist_is_reported(talkative):
    done = talkative.run("test", KINDLM_LOG="loud")
    assert "KINDLM_LOG=loud is not a level" in done.stderr


def test_on_a_terminal_lines_are_plain(talkative):
    ours, theirs = pty.openpty()
    env = {name: value for name, value in talkative.env.items() if name != "CI"}
    talkative.env = env | {"KINDLM_LOG": "debug", "TERM": "xterm"}
    process = talkative.start("test", "--no-progress", stderr=theirs)
    os.close(theirs)
    written = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                chunk = terminal.read(4096)
            except OSError:  # how Linux tells the end of a terminal
                break
            written += chunk
            if not chunk:
                break
    process.communicate(timeout=30)
    text = written.decode()
    assert "The call failed" in text
    assert 'code="PROVIDER_RATE_LIMIT"' in text
    assert "{" not in text
