"""Scenarios that are rescored, replayed, or resumed."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from scenario_project import Project

from kindlm.cli.app import run

TWO = """
@scenario("x")
async def test_it(t: Trial) -> None:
    first = await t.agent.send("one")
    t.check(first).contains("one").latency(60_000).{check}
    if first.mentions("said"):
        second = await t.agent.send("{second}")
        t.check(second).contains("two")
    t.judge(first, "polite?")
"""


def test_rescoring_checks_again_what_was_said(project: Project) -> None:
    project.agent.judge = lambda _: {"score": 5, "reasoning": "good"}
    assert project.test(tests=TWO.format(check='contains("ONE")', second="two")) == 0
    sent, asked = len(project.agent.requests), len(project.agent.questions)
    project.write(
        "tests/test_it.py",
        "from kindlm import *" + TWO.format(check='contains("three")', second="two"),
    )
    assert run(["rescore"]) == 1
    assert (len(project.agent.requests), len(project.agent.questions)) == (sent, asked)
    assert [(label, outcome) for _, label, outcome, _ in project.checks()] == [
        ("one", "passed"),
        ("60000 ms", "passed"),
        ("three", "failed"),
        ("turn 2: two", "passed"),
        ("polite?", "passed"),
    ]


@pytest.mark.parametrize("said", ["three", 'two")\n        await t.agent.send("three'])
def test_rescoring_a_scenario_that_says_something_else_is_an_error(
    project: Project, said: str
) -> None:
    project.test(tests=TWO.format(check='contains("ONE")', second="two"))
    project.write(
        "tests/test_it.py",
        "from kindlm import *" + TWO.format(check='contains("ONE")', second=said),
    )
    assert run(["rescore"]) == 1
    [(error,)] = project.rows(
        "SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
        " WHERE e.run = (SELECT id FROM runs ORDER BY started_at DESC)"
    )
    assert "no longer sends what it sent" in error


def test_replaying_answers_as_the_agent_did(project: Project) -> None:
    project.agent.judge = lambda _: {"score": 5, "reasoning": "good"}
    project.test(tests=TWO.format(check='contains("ONE")', second="two"))
    sent = len(project.agent.requests)
    assert run(["replay", "tests"]) == 0
    assert len(project.agent.requests) == sent
    assert [outcome for _, _, outcome, _ in project.checks()] == ["passed"] * 5


RAW = """
@scenario("x")
async def test_it(t: Trial) -> None:
    for text in ("one", "two"):
        reply = await t.agent.send(text)
        t.check(reply).custom("trace", lambda reply: "stacktrace" not in reply.raw)
        assert f'"{reply.text}"' in reply.raw
"""


@pytest.mark.parametrize("command", [["rescore"], ["replay", "tests"]])
def test_the_body_of_an_answer_is_the_same_again(project: Project, command: list[str]) -> None:
    project.agent.answer = lambda request: {"message": request["message"], "debug": "stacktrace"}
    assert project.test(tests=RAW) == 1
    outcomes = ["failed", "failed"]
    assert [outcome for _, _, outcome, _ in project.checks()] == outcomes
    assert run(command) == 1
    assert [outcome for _, _, outcome, _ in project.checks()] == outcomes
    assert run(["rescore"]) == 1
    assert [outcome for _, _, outcome, _ in project.checks()] == outcomes


def test_a_body_that_is_not_kept_is_not_checked(project: Project) -> None:
    project.agent.answer = lambda request: {"message": request["message"], "debug": "stacktrace"}
    assert project.test(tests=RAW.replace("        assert", "        #")) == 1
    with closing(sqlite3.connect(project.root / ".kindlm" / "kindlm.db")) as db, db:
        db.execute(
            "UPDATE contents SET body = NULL, salt = NULL, digest = NULL"
            " WHERE ref IN (SELECT raw_ref FROM provider_calls)"
        )
    assert run(["rescore"]) == 1
    assert [outcome for _, _, outcome, _ in project.checks()] == ["inconclusive"] * 2


def test_a_run_that_was_stopped_goes_on(project: Project) -> None:
    tests = """
@scenario("x", repeats=3)
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""
    assert project.test("-j", "1", "--max-time", "0", tests=tests) == 1
    done = len(project.agent.requests)
    assert done < 3
    assert run(["test", "--resume"]) == 0
    assert len(project.agent.requests) == 3


def test_a_run_stays_open_without_the_key_that_its_scripts_have_used(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = """
@scenario("x", repeats=3)
async def test_it(t: Trial) -> None:
    t.judge(await t.agent.send("hi"), "polite?")
"""
    project.configure('api_key_env = "JUDGE_KEY"\n')
    project.agent.judge = lambda _: {"score": 1, "reasoning": "rude"}
    monkeypatch.setenv("JUDGE_KEY", "judge-7f3a9c51d2e84b06")
    assert project.test("-x", "-j", "1", tests=tests) == 1
    monkeypatch.delenv("JUDGE_KEY")
    assert run(["test", "--resume"]) == 1
    assert project.rows("SELECT ended FROM runs") == [("aborted",)]
    assert len(project.agent.requests) == 1
    monkeypatch.setenv("JUDGE_KEY", "judge-7f3a9c51d2e84b06")
    assert run(["test", "--resume"]) == 1
    assert project.rows("SELECT ended FROM runs") == [("finished",)]


def test_a_run_whose_scripts_ask_no_model_is_resumed_without_its_key(project: Project) -> None:
    tests = """
@scenario("x", repeats=3)
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("bye")
"""
    project.configure('api_key_env = "JUDGE_KEY"\n')
    assert project.test("-x", "-j", "1", tests=tests) == 1
    assert run(["test", "--resume"]) == 1
    assert project.rows("SELECT ended FROM runs") == [("finished",)]
