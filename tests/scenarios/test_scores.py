"""Repeats, weights and scores of scenarios."""

from __future__ import annotations

import json

import pytest
from scenario_files import told_by_test
from scenario_project import Project

from kindlm.cli.app import run


def test_repeats_and_the_pass_rate_that_they_need(project: Project) -> None:
    answers = iter(["yes", "no", "yes", "yes"])
    project.agent.answer = lambda _: {"message": next(answers)}
    code = project.test(
        "-j",
        "1",
        tests="""
@scenario("x", repeats=4, pass_rate=0.75)
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("yes")
""",
    )
    assert code == 0
    assert project.rows("SELECT repeat, status FROM executions ORDER BY repeat") == [
        (1, "passed"),
        (2, "failed"),
        (3, "passed"),
        (4, "passed"),
    ]


def test_repeats_that_may_all_fail_are_a_warning(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    source = """from kindlm import *
@scenario("x", pass_rate=0)
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("bye")
"""
    project.write("tests/test_it.py", source)
    code, told = told_by_test(capsys)
    assert code == 0
    assert "test_it passes even if all its repeats fail" in told


def test_the_score_is_the_weighted_mean_of_what_was_decided(project: Project) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(reply, weight=3).contains("hi")
    t.check(reply).contains("bye").token_usage(5)
    t.score("of its own", 0.4)

@scenario("undecided")
async def test_undecided(t: Trial) -> None:
    t.check(await t.agent.send("hi")).token_usage(5)
"""
    )
    assert project.rows("SELECT score FROM executions ORDER BY number") == [(0.75,), (None,)]
    assert project.rows("SELECT label, score FROM assertions WHERE kind = 'score'") == [
        ("of its own", 0.4)
    ]


def test_a_number_of_a_scenario_is_shown_with_its_line(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    t.score("politeness", 0.7)
"""
    )
    capsys.readouterr()
    assert run(["show", "latest", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    at = shown.index("  ✓ score politeness  tests/test_it.py:5")
    assert shown[at + 1].split() == ["score", "0.70"]


def test_weights_change_no_verdict(project: Project) -> None:
    code = project.test(
        tests="""
@scenario("x")
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(reply, weight=1000).contains("hi")
    t.check(reply, weight=0.001).contains("bye")
"""
    )
    assert code == 1


def test_a_score_that_falls_is_seen_by_diff(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = """
import os

@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    t.score("calm", {score})
"""
    project.test(tests=tests.format(score=0.9))
    project.test(tests=tests.format(score=0.2))
    capsys.readouterr()
    run(["diff", "previous", "latest", "--format", "json"])
    told = json.loads(capsys.readouterr().out)
    assert "calm" in json.dumps(told)
