"""`record.redactPii`: personal data is checked as it is, and nowhere in the history."""

from __future__ import annotations

import os
import pty
import sqlite3
from contextlib import closing

from checked_server import LoopbackServer

EMAIL = "jane.roe@example.com"
CARD = "4111-1111-1111-1111"

SCRIPT = {
    "rules": [
        {
            "name": "tell",
            "when": {"offered": "notify", "notCalledThisTurn": "notify"},
            "reply": {
                "toolCalls": [{"name": "notify", "arguments": {"to": EMAIL, "card": CARD}}],
            },
        },
        {"name": "answer", "when": {}, "reply": {"text": f'Sent "{CARD}" to {EMAIL}\n.'}},
    ]
}


def files(workspace):
    found = (workspace.root / ".kindlm").rglob("*")
    return b"".join(path.read_bytes() for path in found if path.is_file())


def record(workspace, *, redact):
    """Record a run whose prompt, tool, answer, checks and errors are all about one person."""
    tests = [
        workspace.test(
            "answered",
            vars={"order": EMAIL},
            tools=[{"name": "notify", "defaultResponse": {"sent": [EMAIL], "of": CARD}}],
            expect={
                "output": {"contains": [EMAIL, f"not {EMAIL}"]},
                "guardrails": {"pii": {"enabled": True}},
                "toolCalls": [{"tool": "notify", "argsMatch": {"to": EMAIL}}],
            },
        ),
        workspace.test("refused", vars={"order": f"FAULT {EMAIL}"}, tools=[], expect={}),
    ]
    with LoopbackServer(SCRIPT, faults=[{"status": 400, "contains": "order FAULT"}]) as server:
        workspace.suite(server.url, tests=tests, record={"redactPii": redact})
        report = workspace.report("--verbose")
        sent = str([request.body for request in server.requests])
    assert EMAIL in sent
    return report


def test_nothing_of_it_is_recorded_and_the_checks_saw_it(workspace):
    report = record(workspace, redact=True)
    assert EMAIL.encode() not in files(workspace)
    assert CARD.encode() not in files(workspace)
    assert EMAIL not in str(report)
    answered, refused = report["tests"]
    (execution,) = answered["executions"]
    codes = [assertion["failureCode"] for assertion in execution["assertions"]]
    assert codes == [None, "CONTAINS_FAILED", "PII_DETECTED", None]
    assert execution["toolCalls"][0]["arguments"] == {
        "to": f"ja{'*' * 16}om",
        "card": f"41{'*' * 15}11",
    }
    assert refused["status"] == "errored"
    assert workspace.run("verify").returncode == 0
    with closing(sqlite3.connect(workspace.database)) as db:
        (kept,) = db.execute("SELECT count(*) FROM contents WHERE body LIKE '%ja***%om%'")
    assert kept[0] > 5


def test_without_it_texts_are_recorded_as_they_are(workspace):
    report = record(workspace, redact=False)
    assert EMAIL.encode() in files(workspace)
    # Reports still show what the check found with its middle taken out.
    assert CARD not in str(report["tests"][0]["executions"][0]["output"])


def shown_on_a_terminal(workspace, *arguments):
    """Run kindlm with a terminal as standard error and return what it showed there."""
    ours, theirs = pty.openpty()
    workspace.env = {name: value for name, value in workspace.env.items() if name != "CI"}
    workspace.env["TERM"] = "xterm"
    # Patterns that never come to an end are given up after a tenth of a second.
    constants = {"kindlm.checks.pii._PATTERNS_S": 0.1, "kindlm.recording.recorder._TEXT_S": 0.1}
    process = workspace.start(*arguments, stderr=theirs, constants=constants)
    os.close(theirs)
    written = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            while chunk := terminal.read(4096):
                written += chunk
        except OSError:  # how Linux tells the end of a terminal
            pass
    process.communicate(timeout=30)
    return written.decode()


def test_nothing_of_it_is_shown_while_the_run_goes_on(workspace, server):
    slow = {"name": "slow", "pattern": "^(a|a)*$"}
    test = workspace.test(
        vars={"order": f"of {EMAIL}"},
        tools=[],
        expect={
            "output": {"contains": [f"not {EMAIL}"]},
            "guardrails": {"pii": {"customPatterns": [slow]}},
        },
    )
    server.use_script({"rules": [{"name": "a", "when": {}, "reply": {"text": "a" * 40 + "!"}}]})
    server.use_faults([{"latencyMs": 500}])  # long enough to be shown in flight
    workspace.suite(server.url, tests=[test, {**test, "name": "again"}], record={"redactPii": True})
    text = shown_on_a_terminal(workspace, "test")
    assert "delivered on gpt" in text
    assert EMAIL not in text
    assert text.count("takes too long") == 1
