"""`record.redactPii`: personal data is checked as it is, and nowhere in the history."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
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
    faults = [{"status": 400, "contains": "order FAULT"}]
    with LoopbackServer({**SCRIPT, "faults": faults}) as server:
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
    constants = {
        "kindlm.checks.guardrails._PATTERNS_S": 0.1,
        "kindlm.recording.personal_data._TEXT_S": 0.1,
    }
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


SAID = f"Mail {EMAIL} at once"
PIECES = [SAID[at : at + 3] for at in range(0, len(SAID), 3)]


def chunks(*texts):
    """Return a stream in which each event has a piece of some texts, one for each choice."""
    events = [
        {"choices": [{"index": at, "delta": {"content": one}} for at, one in enumerate(both)]}
        for both in zip(*texts, strict=True)
    ]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


BODIES = {
    "stream": chunks(PIECES),
    "choices": chunks(["ok", *[""] * (len(PIECES) - 1)], PIECES),
    "escaped": '{"text": "' + "".join(f"\\u{ord(char):04x}" for char in SAID) + '"}',
    "tokens": json.dumps({"text": SAID, "tokens": [{"token": one} for one in PIECES]}),
    "arguments": json.dumps(
        {"text": "ok", "tool_calls": [{"name": "mail", "arguments": {"to": EMAIL}}], "of": PIECES}
    ),
    "plain": json.dumps({"text": "Where is it?", "tool_calls": [], "of": "nobody"}),
}


class Answers(BaseHTTPRequestHandler):
    """Gives the body that its path names."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        name = self.path.strip("/")
        body = BODIES[name].encode()
        is_stream = name in ("stream", "choices")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        del args


@pytest.fixture
def answered(workspace):
    """Return what records a run of agents that give these bodies."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{served.server_port}"

        def test(*names, **settings):
            agents = [
                {"id": name, "adapter": "http", "endpoint": f"{url}/{name}", "verbose": True}
                for name in names
            ]
            tests = [workspace.test(tools=[], expect={"guardrails": {"pii": {"enabled": True}}})]
            workspace.suite(url, providers={}, models=[], agents=agents, tests=tests, **settings)
            return workspace.run("test", KINDLM_LOG="info")

        yield test
        served.shutdown()
        thread.join()


def bodies_of(workspace):
    return [body for (body,) in workspace.query("SELECT raw FROM provider_call_log") if body]


def test_no_body_that_says_it_in_another_form_is_recorded(workspace, answered):
    done = answered(*BODIES, record={"redactPii": True})
    kept = "".join(str(row) for row in workspace.query("SELECT body FROM contents"))
    for text in (kept, done.stdout, done.stderr):
        assert [one for one in PIECES[2:7] if json.dumps(one) in text] == []
        assert f"\\u{ord('@'):04x}" not in text
    assert bodies_of(workspace) == [BODIES["plain"]]
    assert workspace.run("verify").returncode == 0


def test_bodies_are_erased_with_what_was_read_from_them(workspace, answered):
    answered(*BODIES)
    assert len(bodies_of(workspace)) == len(BODIES)
    done = workspace.run("history", "purge", "--matching", r"jane\.roe@example\.com", "--yes")
    assert done.returncode == 0, done.stderr
    assert {*bodies_of(workspace)} == {"[erased]", BODIES["plain"]}
    left = files(workspace)
    assert [one for one in PIECES[2:7] if json.dumps(one).encode() in left] == []
    assert workspace.run("verify").returncode == 0


@pytest.mark.parametrize("name", sorted(BODIES.keys() - {"choices"}))
def test_a_body_is_not_shown_if_a_check_found_it_in_what_was_read(workspace, answered, name):
    answered(name)
    page = workspace.run("show", "latest", "1", "--verbose").stdout
    details = workspace.run("test", "--verbose").stderr
    assert (BODIES[name][:20] in page) == (name == "plain")
    assert ("[not shown" in page) == (name != "plain")
    for text in (page, details):
        assert [one for one in PIECES[2:7] if f'"{one}"' in text] == []
        assert EMAIL not in text


def broken(workspace, **changes):
    test = workspace.test(tools=[{"name": "look_up", "cassette": {"run": EMAIL}}])
    config = {"tests": [test], "record": {"redactPii": True}, **changes}
    workspace.suite("http://127.0.0.1:9", **config)
    done = workspace.run("test")
    assert done.returncode == 1
    return done


def test_nothing_of_it_is_in_the_error_of_a_suite_that_cannot_start(workspace):
    done = broken(workspace)
    assert "cannot be read: no run 'ja****************om'" in " ".join(done.stdout.split())
    assert EMAIL.encode() not in files(workspace)


def test_a_pattern_of_the_suite_counts_in_its_error(workspace):
    test = workspace.test(
        tools=[{"name": "look_up", "cassette": {"run": "C-123456"}}],
        expect={"guardrails": {"pii": {"customPatterns": [{"name": "c", "pattern": r"C-\d{6}"}]}}},
    )
    broken(workspace, tests=[test])
    read = "SELECT c.body FROM suites s JOIN contents c ON c.ref = s.error_ref"
    [(message,)] = workspace.query(read)
    assert "C-123456" not in message
    assert "C-****56" in message


def test_nothing_of_it_is_in_the_error_of_a_suite_that_cannot_be_loaded(workspace):
    broken(workspace, tests=[workspace.test(prompt=EMAIL)])
    assert EMAIL.encode() not in files(workspace)


def test_nothing_of_it_is_shown_of_a_program_that_ends_while_the_tests_run(workspace):
    (workspace.root / "side.py").write_text(
        "import time\n"
        "print('ready', flush=True)\n"
        "while not __import__('os').path.exists('asked'): time.sleep(0.02)\n"
        f"raise SystemExit('no account for {EMAIL}')\n"
    )
    (workspace.root / "slow.py").write_text(
        "import pathlib, time\n"
        "def answer(message):\n"
        "    pathlib.Path('asked').touch()\n"
        "    time.sleep(1)\n"
        "    return 'x'\n"
    )
    serve = [{"name": "side", "command": "python side.py", "ready": {"line": "ready"}}]
    agents = [{"id": "slow", "adapter": "python", "path": ".", "endpoint": "slow:answer"}]
    tests = [workspace.test(tools=[], models=["slow"])]
    changes = {"serve": serve, "agents": agents, "tests": tests, "record": {"redactPii": True}}
    workspace.suite("http://127.0.0.1:9", **changes)
    done = workspace.run("test")
    assert "Its output: ready | no account for ja****************om" in done.stderr
    assert EMAIL not in done.stdout + done.stderr
    assert EMAIL.encode() not in files(workspace)


def test_nothing_of_it_is_in_the_reason_why_a_run_cannot_go_on(workspace, server):
    program = workspace.root / EMAIL
    program.write_text("#!/bin/sh\necho ready; exec sleep 60")
    program.chmod(0o755)
    serve = [{"name": "side", "command": [f"./{EMAIL}"], "ready": {"line": "ready"}}]
    never = {"output": {"contains": ["never"]}}
    tests = [workspace.test("first", expect=never), workspace.test("second")]
    workspace.suite(server.url, record={"redactPii": True}, serve=serve, tests=tests)
    assert workspace.run("test", "-x", "-j", "1").returncode == 1
    program.unlink()
    done = workspace.run("test", "--resume")
    assert "ABORTED: suite 'orders' cannot continue" in " ".join(done.stdout.split())
    assert EMAIL.encode() not in files(workspace)
