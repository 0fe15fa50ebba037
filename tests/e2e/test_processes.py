"""Processes that die, and processes that share a database."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from functools import partial

from checked_server import LoopbackServer
from workspace import until

EXPECT = {"output": {"contains": ["delivered"]}}


def many_tests(workspace, count):
    return [workspace.test(f"test-{number}") for number in range(count)]


def assert_intact(workspace):
    verified = workspace.run("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    (check,) = workspace.query("PRAGMA integrity_check")
    assert check == ("ok",)


def is_judged(workspace, runs=1):
    if not workspace.database.exists():
        return False
    try:
        ((found,),) = workspace.query(
            "SELECT count(DISTINCT run) FROM executions WHERE status = 'passed'"
        )
    except sqlite3.OperationalError:
        return False  # The tables are not there yet.
    return found == runs


def test_a_killed_run_keeps_everything_it_reported_as_finished(workspace, server):
    expect = {"output": {"contains": ["not in there"]}}
    tests = [workspace.test(f"test-{number}", expect=expect) for number in range(30)]
    workspace.suite(server.url, tests=tests)
    process = workspace.start("test", "-j", "4")
    told = []
    for line in process.stderr:
        if line.startswith("✗"):
            told.append(line.split()[1])
        if len(told) >= 6:
            break
    process.kill()
    process.communicate()
    assert_intact(workspace)
    recorded = {
        name for (name,) in workspace.query("SELECT test FROM executions WHERE status = 'failed'")
    }
    assert set(told) <= recorded
    answered = workspace.query("SELECT count(*) FROM provider_calls WHERE status = 'responded'")
    served = sum(request.status == 200 for request in server.requests)
    assert 2 * len(told) <= answered[0][0] <= served


def test_two_kills_in_a_row_and_a_whole_run_share_one_history(workspace, server):
    workspace.suite(server.url, tests=many_tests(workspace, 20))
    for runs in (1, 2):
        process = workspace.start("test")
        until(partial(is_judged, workspace, runs))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert workspace.run("test").returncode == 0
    assert_intact(workspace)
    ended = workspace.query("SELECT ended FROM runs ORDER BY started_at")
    assert ended == [(None,), (None,), ("finished",)]


def test_runs_at_once_on_one_new_database_lose_nothing(workspace, server):
    processes = 3
    workspace.suite(server.url, tests=many_tests(workspace, 6))
    running = [workspace.start("test", "--reporter", "json") for _ in range(processes)]
    outcomes = [(process.communicate(timeout=120), process.returncode) for process in running]
    for (stdout, stderr), code in outcomes:
        assert code == 0, stderr
        assert "locked" not in stderr
        assert json.loads(stdout)["summary"]["executions"]["passed"] == 6
    assert_intact(workspace)
    assert workspace.query("SELECT count(*) FROM runs WHERE ended = 'finished'") == [(processes,)]
    assert workspace.query("SELECT count(*) FROM executions") == [(6 * processes,)]
    assert len(server.requests) == 12 * processes


def test_a_stopped_run_prints_what_it_has_and_can_be_verified(workspace):
    rules = [{"name": "answer", "when": {}, "reply": {"text": "delivered"}}]
    with LoopbackServer({"rules": rules, "faults": [{"latencyMs": 100}]}) as slow:
        tests = [workspace.test(f"test-{n}", tools=[], expect=EXPECT) for n in range(60)]
        workspace.suite(slow.url, tests=tests, defaults={"concurrency": 2})
        process = workspace.start("test")
        until(lambda: is_judged(workspace))
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Traceback" not in stderr
    assert "interrupted" in stdout.lower()
    assert_intact(workspace)
    assert workspace.query("SELECT ended FROM runs") == [("interrupted",)]
    assert workspace.query("SELECT count(*) FROM executions WHERE status IS NULL") == [(0,)]


def test_a_report_of_a_megabyte_arrives_whole_through_a_pipe(workspace):
    script = {"rules": [{"name": "answer", "when": {}, "reply": {"text": "delivered " * 6_000}}]}
    with LoopbackServer(script) as wordy:
        expect = {"output": {"contains": ["not in there"]}}
        tests = [workspace.test(f"test-{n}", tools=[], expect=expect) for n in range(20)]
        models = [
            {"id": "m", "provider": "openai", "model": "gpt-4o", "params": {"maxTokens": 128_000}}
        ]
        workspace.suite(wordy.url, tests=tests, models=models)
        assert workspace.run("test", "--quiet").returncode == 1
    # `cat` reads slowly enough that the pipe (64 KiB) fills up again and again.
    report = workspace.start("report", "--format", "json", stdout=subprocess.PIPE)
    whole = subprocess.run(["cat"], stdin=report.stdout, capture_output=True, check=True).stdout
    report.stdout.close()
    report.stderr.close()
    assert report.wait() == 0
    assert len(whole) > 1_000_000
    assert len(json.loads(whole)["tests"]) == 20


def test_unread_output_ends_the_command_quietly(workspace, server):
    workspace.suite(server.url, tests=many_tests(workspace, 5))
    workspace.run("test", "--quiet")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        workspace.command("report", "--format", "json"),
        cwd=workspace.root,
        env=workspace.env,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert b"Traceback" not in done.stderr


def test_a_run_whose_terminal_is_closed_is_interrupted(workspace, server):
    workspace.suite(server.url, tests=many_tests(workspace, 20))
    process = workspace.start("test", "-j", "1")
    until(lambda: is_judged(workspace))
    process.send_signal(signal.SIGHUP)
    # Nobody reads what it says any more.
    process.stderr.close()
    process.stdout.close()
    assert process.wait(60) == 1
    assert workspace.query("SELECT ended FROM runs") == [("interrupted",)]
