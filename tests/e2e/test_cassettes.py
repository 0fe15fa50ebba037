"""Answers recorded in one run are given again in the next."""

from __future__ import annotations


def suite(workspace, url, **tool):
    tools = [{"name": "lookup_order", **tool}]
    expect = {"toolCalls": [{"tool": "lookup_order", "responseContains": "delivered"}]}
    workspace.suite(url, tests=[workspace.test(tools=tools, expect=expect)])


def test_a_cassette_answers_as_the_recorded_run_did(workspace, server):
    suite(workspace, server.url, defaultResponse={"status": "delivered"})
    assert workspace.run("test", "--label", "taped").returncode == 0
    suite(workspace, server.url, cassette={"run": "taped"})
    done = workspace.run("test")
    assert done.returncode == 0, done.stdout + done.stderr
    rules = workspace.query("SELECT rule, response FROM tool_call_log ORDER BY execution")
    assert sorted(rule for rule, _ in rules) == ["cassette", "defaultResponse"]
    assert {response for _, response in rules} == {'{"status": "delivered"}'}


def test_latest_is_the_last_finished_run_of_the_suite(workspace, server):
    suite(workspace, server.url, defaultResponse={"status": "delivered"})
    workspace.run("test")
    suite(workspace, server.url, cassette={"run": "latest"})
    assert workspace.run("test").returncode == 0


def test_a_cassette_of_no_run_skips_the_suite_and_says_what_to_do(workspace, server):
    suite(workspace, server.url, cassette={"run": "never"})
    done = workspace.run("test")
    assert done.returncode == 1
    assert "never" in done.stdout
    assert "kindlm runs" in done.stdout
    assert len(server.requests) == 0
