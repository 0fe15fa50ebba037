"""Answers recorded in one run are given again in the next."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest

DEFAULT = {"defaultResponse": {"status": "delivered"}}
NEVER = {"cassette": {"run": "never"}}
TAPED = {"cassette": {"run": "taped"}}


def a_test(workspace, tool, name="delivered", **changes):
    expect = {"toolCalls": [{"tool": "lookup_order", "responseContains": "delivered"}]}
    tools = [{"name": "lookup_order", **tool}]
    return workspace.test(name, tools=tools, **{"expect": expect, **changes})


def suite(workspace, url, tool, *others):
    workspace.suite(url, tests=[a_test(workspace, tool), *others])


def test_a_cassette_answers_as_the_recorded_run_did(workspace, server):
    suite(workspace, server.url, DEFAULT)
    assert workspace.run("test", "--label", "taped").returncode == 0
    suite(workspace, server.url, TAPED)
    done = workspace.run("test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cassette" not in done.stderr
    rules = workspace.query("SELECT rule, response FROM tool_call_log ORDER BY execution")
    assert sorted(rule for rule, _ in rules) == ["cassette", "defaultResponse"]
    assert {response for _, response in rules} == {'{"status": "delivered"}'}


def test_latest_is_the_last_finished_run_of_the_suite(workspace, server):
    suite(workspace, server.url, DEFAULT)
    workspace.run("test")
    suite(workspace, server.url, {"cassette": {"run": "latest"}})
    assert workspace.run("test").returncode == 0


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_a_cassette_of_a_shard_has_all_tests_of_its_group(workspace, server, options):
    names = ("first", "second")
    workspace.suite(server.url, tests=[a_test(workspace, DEFAULT, name) for name in names])
    for shard in ("1/2", "2/2"):
        arguments = ("--label", "taped", "--shard", shard, "--run-group", "g")
        assert workspace.run("test", *arguments).returncode == 0
    workspace.suite(server.url, tests=[a_test(workspace, TAPED, name) for name in names])
    done = workspace.run("test", *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_shard_is_no_cassette_of_the_next_one(workspace, server):
    names = ("first", "second")
    workspace.suite(server.url, tests=[a_test(workspace, DEFAULT, name) for name in names])
    assert workspace.run("test").returncode == 0
    latest = {"cassette": {"run": "latest"}}
    workspace.suite(server.url, tests=[a_test(workspace, latest, name) for name in names])
    for shard in ("1/2", "2/2"):
        done = workspace.run("test", "--shard", shard, "--run-group", "g")
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_cassette_of_no_run_skips_the_suite_and_says_what_to_do(workspace, server):
    suite(workspace, server.url, NEVER)
    done = workspace.run("test")
    assert done.returncode == 1
    assert "never" in done.stdout
    assert "Record a run without the cassette first" in done.stdout
    assert "kindlm runs" in done.stdout
    assert len(server.requests) == 0


def test_a_test_that_does_not_run_needs_no_run_for_its_cassette(workspace, server):
    skipped = a_test(workspace, NEVER, "skipped", skip=True)
    slow = a_test(workspace, NEVER, "slow", tags=["slow"])
    suite(workspace, server.url, DEFAULT, skipped, slow)
    done = workspace.run("test", "--test", "delivered", "--test", "skipped")
    assert done.returncode == 0, done.stdout + done.stderr
    assert workspace.run("test", "--tag", "slow").returncode == 1


def test_a_run_that_executed_nothing_does_not_stand_for_its_label(workspace, server):
    suite(workspace, server.url, DEFAULT)
    workspace.run("test", "--label", "taped")
    suite(workspace, server.url, DEFAULT, a_test(workspace, NEVER, "broken"))
    workspace.run("test", "--label", "taped")
    workspace.run("test", "--label", "hollow")
    workspace.suite(server.url, tests=[a_test(workspace, DEFAULT, skip=True)])
    workspace.run("test", "--label", "taped")
    suite(workspace, server.url, TAPED)
    assert workspace.run("test").returncode == 0
    suite(workspace, server.url, {"cassette": {"run": "hollow"}})
    done = workspace.run("test")
    assert done.returncode == 1
    assert "cannot be read: no run 'hollow' has executed tests of the suite 'orders'" in " ".join(
        done.stdout.split()
    )


def test_the_first_repeat_that_called_the_tool_answers(workspace, server):
    said = {"role": "assistant", "content": "It is delivered."}
    completion = {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}
    numbers = count(1)

    def alter(request, answer):
        is_first = next(numbers) == 1
        return replace(answer, body=json.dumps(completion).encode()) if is_first else answer

    expect = {"output": {"contains": ["delivered"]}}
    workspace.suite(server.url, tests=[a_test(workspace, DEFAULT, expect=expect, repeat=2)])
    server.alter(alter)
    workspace.run("test", "--label", "taped", "-j", "1")
    assert len(workspace.query("SELECT execution FROM tool_call_log")) == 1
    suite(workspace, server.url, TAPED)
    done = workspace.run("test")
    assert done.returncode == 0, done.stdout + done.stderr


def test_answers_of_another_test_are_not_given_and_that_is_reported(workspace, server):
    suite(workspace, server.url, DEFAULT)
    workspace.run("test", "--label", "taped")
    workspace.suite(server.url, tests=[a_test(workspace, TAPED, "renamed")])
    done = workspace.run("test")
    assert done.returncode == 1
    assert 'has no result of it in the test "renamed"' in done.stderr
    assert "test of the same name" in done.stderr
    assert "kindlm.yaml:" in done.stderr
    [(response,)] = workspace.query("SELECT response FROM tool_call_log WHERE rule = 'no response'")
    assert "in the test of this name" in response


def test_each_empty_cassette_is_reported(workspace, server):
    suite(workspace, server.url, DEFAULT)
    workspace.run("test", "--label", "taped")
    tests = [a_test(workspace, TAPED, f"new {number}") for number in range(7)]
    workspace.suite(server.url, tests=tests)
    assert workspace.run("test").stderr.count("has no result of it") == 7


def test_what_an_unmatched_call_got_is_no_answer_of_the_tool(workspace, server):
    suite(workspace, server.url, {})
    workspace.run("test", "--label", "taped")
    workspace.suite(server.url, tests=[a_test(workspace, TAPED, strictTools=True, expect={})])
    done = workspace.run("test")
    assert done.returncode == 1
    assert "TOOL_CALL_UNMATCHED" in workspace.run("report", "--format", "json").stdout


def stopped(workspace, url, run, *arguments):
    """Record a run that stops after the first of its two tests, whose cassettes are of `run`."""
    taped = {"cassette": {"run": run}}
    first = a_test(workspace, taped, "first", expect={"output": {"contains": ["never"]}})
    workspace.suite(url, tests=[first, a_test(workspace, taped, "second")])
    assert workspace.run("test", "-x", "-j", "1", *arguments).returncode == 1


def tape(workspace, url, status):
    """Record the answers for these two tests; leave the suite as it was."""
    path = workspace.root / "kindlm.yaml"
    before = path.read_text() if path.exists() else ""
    answer = {"defaultResponse": {"status": status}}
    tests = [a_test(workspace, answer, name, expect={}) for name in ("first", "second")]
    workspace.suite(url, tests=tests)
    assert workspace.run("test", "--label", "nightly").returncode == 0
    path.write_text(before)


def test_a_resumed_run_is_not_its_own_cassette(workspace, server):
    tape(workspace, server.url, "delivered")
    stopped(workspace, server.url, "nightly", "--label", "nightly")
    resumed = workspace.report("--resume")
    assert [test["status"] for test in resumed["tests"]] == ["failed", "passed"]


@pytest.mark.parametrize("run", ["latest", "nightly"])
def test_a_resumed_run_has_the_cassettes_that_it_began_with(workspace, server, run):
    tape(workspace, server.url, "delivered")
    stopped(workspace, server.url, run)
    tape(workspace, server.url, "lost")
    done = workspace.run("test", "--resume")
    assert "cassette" not in done.stdout + done.stderr
    answers = workspace.query("SELECT response FROM tool_call_log WHERE rule = 'cassette'")
    assert answers == [('{"status": "delivered"}',)] * 2


def test_a_replay_has_the_cassettes_of_its_run_also_of_several_files(workspace, server):
    tape(workspace, server.url, "delivered")
    workspace.suite(server.url, tests=[a_test(workspace, DEFAULT)]).rename(
        workspace.root / "other.yaml"
    )
    workspace.suite(
        server.url, tests=[a_test(workspace, {"cassette": {"run": "nightly"}}, "first")]
    )
    files = ("kindlm.yaml", "other.yaml")
    assert workspace.run("test", *files, "--label", "once").returncode == 0
    tape(workspace, server.url, "lost")
    done = workspace.run("replay", "once")
    assert done.returncode == 0, done.stdout + done.stderr
