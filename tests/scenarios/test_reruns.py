"""Scenarios that are run again since they did not pass."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from typing import Any

import pytest
from pytest_project import run_inside, run_pytest
from scenario_project import Project

from kindlm.cli.app import run
from kindlm.engine.stop import Stop
from kindlm.history.search import catch_up, find_texts
from kindlm_store import open_reader

TEST = """
@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("good")
"""


@pytest.fixture(autouse=True)
def retries(project: Project) -> None:
    project.configure("[eval]\nretries = 2\n")


def attempts(project: Project) -> list[tuple[Any, ...]]:
    return project.rows("SELECT attempt, status FROM retried_attempts ORDER BY attempt")


def test_what_always_fails_is_run_as_often_as_it_says(project: Project) -> None:
    project.agent.say("bad")
    assert project.test(tests=TEST) == 1
    assert project.agent.said == ["hi"] * 3
    assert len({request["conversation_id"] for request in project.agent.requests}) == 3
    assert attempts(project) == [(1, "failed"), (2, "failed")]
    assert project.statuses() == {"test_it": "failed"}
    assert project.rows("SELECT attempt, score FROM executions") == [(3, 0.0)]


def test_what_passes_is_run_once(project: Project) -> None:
    project.agent.say("good")
    assert project.test(tests=TEST) == 0
    assert project.agent.said == ["hi"]
    assert attempts(project) == []


@pytest.mark.parametrize("first", ["bad", 400])
def test_the_last_attempt_decides_and_the_test_is_flaky(
    project: Project, capsys: pytest.CaptureFixture[str], first: str | int
) -> None:
    project.agent.say(first, "good")
    project.write("tests/test_it.py", "from kindlm import *" + TEST)
    assert run(["test", "tests"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "~ test_it · agent is flaky: 1 execution passed only after a retry" in shown
    assert project.statuses() == {"test_it": "passed"}
    assert attempts(project) == [(1, "failed" if first == "bad" else "errored")]
    assert run(["report", "latest", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(test["status"], test["flaky"]) for test in told["tests"]] == [("passed", True)]


def test_pytest_says_what_passed_only_in_the_end(project: Project) -> None:
    project.agent.say("bad", "good")
    project.write("tests/test_it.py", "from kindlm import *" + TEST)
    done = run_pytest(project.root, "--kindlm", "-n", "1")
    assert done.returncode == 0, done.stdout
    flaky = "1 test passed, but not in each repeat or attempt (flaky)"
    assert f"{flaky}\nkindlm " in done.stdout
    assert "flaky" not in run_inside(project.root, "--kindlm").stdout
    project.agent.say("bad", "good")
    assert f"{flaky}\nkindlm " in run_inside(project.root, "--kindlm").stdout


def test_each_attempt_keeps_what_it_found(project: Project) -> None:
    project.agent.say("bad", "good")
    project.test(tests=TEST)
    found = project.rows("SELECT attempt, outcome FROM assertions ORDER BY attempt")
    assert found == [(1, "failed"), (2, "passed")]


def test_a_comparison_counts_first_attempts(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = TEST.replace('"x"', '"x", repeats=8')
    project.agent.say("good")
    assert project.test("-j", "1", tests=tests) == 0
    project.agent.say(*["bad", "good"] * 8)
    assert project.test("-j", "1", tests=tests) == 0
    capsys.readouterr()
    assert run(["diff", "--format", "json", "latest~1", "latest"]) == 1
    (test,) = json.loads(capsys.readouterr().out)["tests"]
    assert (test["before"]["passed"], test["after"]["passed"]) == (8, 0)


def test_the_limit_of_costs_ends_running_again(project: Project) -> None:
    project.agent.answer = lambda _: {"message": "bad", "cost": 0.5}
    assert project.test("--max-cost", "0.1", tests=TEST) == 1
    assert project.agent.said == ["hi"]
    assert attempts(project) == []
    assert project.rows("SELECT attempt, status FROM executions") == [(1, "failed")]


@pytest.mark.parametrize("command", ["rescore", "replay"])
def test_nothing_is_run_again_where_no_target_is_called(project: Project, command: str) -> None:
    project.agent.say("bad")
    project.test(tests=TEST)
    assert run([command] if command == "rescore" else [command, "tests"]) == 1
    assert len(project.agent.requests) == 3
    assert attempts(project) == [(1, "failed"), (2, "failed")]


def test_an_execution_is_searched_once(project: Project) -> None:
    project.agent.say("bad news", "good news")
    project.test(tests=TEST.replace('"good"', '"good news"'))
    history = project.root / ".kindlm" / "kindlm.db"
    with closing(open_reader(history)) as db:
        assert catch_up(db, history)
        (found,) = find_texts(db, history, "good").found
        assert find_texts(db, history, "bad").found == ()
    assert (found.execution.number, found.executions) == (1, 1)


def test_a_run_that_goes_on_counts_what_was_run_again_before(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stop.__init__, "__defaults__", (0.1,))  # for what is in flight
    asked: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["message"])
        if len(asked) == 2:
            signal.raise_signal(signal.SIGINT)
            project.agent.release.wait(20)
        return {"message": "bad"}

    project.agent.answer = answer
    assert project.test(tests=TEST) == 1
    assert attempts(project) == [(1, "failed")]
    project.agent.release.set()
    assert run(["test", "--resume"]) == 1
    assert attempts(project) == [(1, "failed"), (3, "failed")]
    assert project.rows("SELECT attempt, status FROM executions") == [(4, "failed")]


def test_answers_of_earlier_runs_do_not_keep_it_from_being_run_again(project: Project) -> None:
    project.agent.say("bad", "good")
    assert project.test("--cache", tests=TEST) == 0
    assert project.agent.said == ["hi", "hi"]
    assert attempts(project) == [(1, "failed")]


def test_what_is_stopped_between_attempts_keeps_those_that_are_left(project: Project) -> None:
    asked: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["message"])
        if len(asked) == 2:
            signal.raise_signal(signal.SIGINT)
        return {"message": "bad"}

    project.agent.answer = answer
    assert project.test(tests=TEST) == 1
    assert attempts(project) == [(1, "failed"), (2, "failed")]
    assert run(["test", "--resume"]) == 1
    assert len(asked) == 3
    assert project.rows("SELECT attempt, status FROM executions") == [(3, "failed")]
