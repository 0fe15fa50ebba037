"""Which attempts are compared of scenarios that were run again since they did not pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scenario_project import Project

from kindlm.cli.app import run

TEST = """
@scenario("x", repeats=6)
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("good")
"""


@pytest.fixture(autouse=True)
def retries(project: Project) -> None:
    project.configure("[eval]\nretries = 1\nparallelism = 1\n")


def talks(project: Project, *texts: str) -> None:
    """Let the agent say these in turns."""
    said = 0

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal said
        said += 1
        return {"message": texts[(said - 1) % len(texts)]}

    project.agent.answer = answer


def record(project: Project, *texts: str) -> int:
    """Run the tests with an agent that says these in turns."""
    talks(project, *texts)
    return project.test(tests=TEST)


def compared(
    project: Project, capsys: pytest.CaptureFixture[str], before: int, after: int
) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what is told of two runs, by their places in the order of time."""
    runs = [row[0] for row in project.rows("SELECT id FROM runs ORDER BY started_at")]
    capsys.readouterr()
    code = run(["diff", runs[before], runs[after], "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("made", "before", "after"),
    [(["rescore"], 0, 1), (["replay", "tests"], 1, 0)],
    ids=["on to rescored", "back from replayed"],
)
def test_a_run_is_as_good_as_what_was_made_from_it(
    project: Project, capsys: pytest.CaptureFixture[str], made: list[str], before: int, after: int
) -> None:
    assert record(project, "bad", "good") == 0
    assert run(made) == 0
    code, told = compared(project, capsys, before, after)
    (test,) = told["tests"]
    assert (test["before"]["passed"], test["after"]["passed"]) == (6, 6)
    assert test["change"] == "unchanged"
    assert code == 0
    assert told["attempts"] == "last"
    assert any("last attempts" in note for note in told["notes"])


def test_what_was_made_of_what_was_made_from_last_attempts_is_compared_by_those(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "bad", "good")
    assert run(["rescore"]) == 0
    rescored = project.rows("SELECT id FROM runs ORDER BY started_at DESC")[0][0]
    assert run(["rescore", rescored]) == 0
    code, told = compared(project, capsys, 2, 0)
    assert (code, told["attempts"]) == (0, "last")


def test_what_was_made_of_first_attempts_is_compared_by_those(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "good")
    run(["rescore"])
    record(project, "bad", "good")
    code, told = compared(project, capsys, 1, 2)
    (test,) = told["tests"]
    assert (test["before"]["passed"], test["after"]["passed"]) == (6, 0)
    assert (code, told["attempts"]) == (1, "first")


def test_where_nothing_was_run_again_nothing_is_said_of_attempts(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "good")
    record(project, "good")
    code, told = compared(project, capsys, 0, 1)
    assert (code, told["attempts"]) == (0, None)
    assert not any("attempts" in note for note in told["notes"])


def test_a_regression_by_first_attempts_is_reported_with_what_those_did(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "good")
    record(project, "bad", "good")
    code, told = compared(project, capsys, 0, 1)
    (test,) = told["tests"]
    assert code == 1
    assert test["changed"]["checks"]
    (check,) = (found for found in test["details"]["checks"] if found["label"] == "good")
    assert (check["before"]["passed"], check["after"]["passed"]) == (6, 0)
    assert check["message"]
    assert test["details"]["output"]["segments"] == [["removed", "good"], ["added", "bad"]]
    run(["diff", "latest~1", "latest"])
    shown = capsys.readouterr().out
    assert "the first attempts are compared" in shown
    assert "passed 6/6 → failed 0/6" in shown


def test_baselines_are_compared_by_the_same_attempts(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "good")
    assert run(["baseline", "set", "latest"]) == 0
    record(project, "bad", "good")
    capsys.readouterr()
    assert run(["baseline", "compare", "--format", "json"]) == 1
    (comparison,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert comparison["diff"]["attempts"] == "first"
    (test,) = comparison["diff"]["tests"]
    assert (test["before"]["passed"], test["after"]["passed"]) == (6, 0)
    assert run(["baseline", "compare"]) == 1
    assert "the first attempts are compared" in capsys.readouterr().out


def test_repeats_that_are_added_count_as_their_first_attempts_came_out(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "good")
    # Of six, four pass at once: that may be chance.
    record(project, "good", "bad", "good", "good", "bad", "good", "good", "good")
    assert project.rows("SELECT count(*) FROM retried_attempts") == [(2,)]
    talks(project, "bad", "good")
    run(["settle", "latest~1", "latest", "--max-runs", "5", "-j", "1", "--no-progress"])
    _, told = compared(project, capsys, 0, 1)
    assert told["tests"][0]["added"] == {"passed": 0, "n": 5}
