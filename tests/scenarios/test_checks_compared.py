"""Scenarios whose result is as before, and which check something else than before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scenario_project import Project

from kindlm.cli.app import run

ANSWERED = """
@scenario("x", repeats={repeats})
async def test_it(t: Trial) -> None:
    reply = await t.agent.send("hi")
    t.check(reply).contains("done")
{more}"""

IF_IT_COUNTS = """\
    if "invoice" in reply.text:
        t.check(reply).not_contains("overdue")
"""
WHOLE = '    t.check(reply).not_contains("overdue")\n'
DRAWN = """\
    import uuid
    t.check(reply).not_contains(uuid.uuid4().hex)
"""


def record(project: Project, says: str, more: str, *, repeats: int = 3) -> int:
    project.agent.say(says)
    return project.test(tests=ANSWERED.format(repeats=repeats, more=more))


def compared(
    capsys: pytest.CaptureFixture[str], *options: str, code: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compare the run before the newest one with that; returns the comparison and its test."""
    capsys.readouterr()
    assert run(["diff", "--format", "json", "--verbose", *options]) == code
    told = json.loads(capsys.readouterr().out)
    (test,) = told["tests"]
    return told, test


def counted(test: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """How many repeats of each side decided each check, by its label."""
    checks = test["details"]["checks"]
    return {check["label"]: (check["before"]["of"], check["after"]["of"]) for check in checks}


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_check_that_the_test_leaves_out_by_what_the_agent_said_is_named(
    project: Project, capsys: pytest.CaptureFixture[str], repeats: int
) -> None:
    assert record(project, "done, see the invoice", IF_IT_COUNTS, repeats=repeats) == 0
    assert record(project, "done", IF_IT_COUNTS, repeats=repeats) == 0
    told, test = compared(capsys)
    assert told["configs"] == []
    assert (test["change"], test["kind"]) == ("unchanged", "other checks")
    assert test["changed"]["checksMade"]
    assert not test["changed"]["checks"], "that is which of them fail"
    assert counted(test) == {"done": (repeats, repeats), "overdue": (repeats, 0)}


@pytest.mark.parametrize(("before", "after"), [(WHOLE, ""), ("", WHOLE)], ids=["less", "more"])
def test_a_check_that_was_removed_or_added_is_named(
    project: Project, capsys: pytest.CaptureFixture[str], before: str, after: str
) -> None:
    record(project, "done", before)
    record(project, "done", after)
    told, test = compared(capsys)
    assert test["kind"] == "other checks"
    assert told["verdict"]["headline"] == (
        "UNCHANGED: 1 test checked something else with the same result"
    )
    run(["diff"])
    shown = capsys.readouterr().out
    assert "Same result, different checks" in shown
    line = "3/3 → not checked" if before else "not checked → 3/3"
    assert f"· not_contains overdue  {line}" in shown
    after = project.rows("SELECT id FROM runs ORDER BY started_at DESC")[0][0]
    assert f"Next  kindlm show {after} 1" in shown


def test_other_checks_alone_fail_no_comparison(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "done", WHOLE)
    record(project, "done", "")
    for rule in ("default", "behaviour", "any", "never"):
        told, test = compared(capsys, "--fail-on", rule)
        assert (told["verdict"]["fails"], test["fails"]) == (False, False)


def test_a_label_that_is_another_one_every_time_is_no_other_check(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "done", DRAWN, repeats=3)
    record(project, "done", DRAWN, repeats=3)
    _, test = compared(capsys)
    assert test["kind"] == "unchanged"
    assert len(counted(test)) == 7


def test_a_check_is_missed_whatever_its_label_was_each_time(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "done", DRAWN, repeats=1)
    record(project, "done", "", repeats=1)
    assert compared(capsys)[1]["kind"] == "other checks"


def test_a_check_that_was_made_weaker_is_named_in_one_sample(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "done, order A-17", '    t.check(reply).contains("A-17")\n', repeats=1)
    record(project, "done, order A-17", '    t.check(reply).contains("A")\n', repeats=1)
    _, test = compared(capsys)
    assert test["kind"] == "other checks"
    assert counted(test) == {"done": (1, 1), "A": (0, 1), "A-17": (1, 0)}


def test_what_was_rescored_with_one_more_check_says_so(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "done", "")
    project.write(
        "tests/test_it.py", "from kindlm import *" + ANSWERED.format(repeats=3, more=WHOLE)
    )
    assert run(["rescore"]) == 0
    (before, after) = (row[0] for row in project.rows("SELECT id FROM runs ORDER BY started_at"))
    _, test = compared(capsys, before, after)
    assert (test["change"], test["strength"], test["kind"]) == ("unchanged", None, "other checks")
    assert counted(test) == {"done": (3, 3), "overdue": (0, 3)}


def test_a_check_that_fails_once_rescored_is_a_regression_and_no_other_check(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    record(project, "done, overdue", "")
    project.write(
        "tests/test_it.py", "from kindlm import *" + ANSWERED.format(repeats=3, more=WHOLE)
    )
    assert run(["rescore"]) == 1
    (before, after) = (row[0] for row in project.rows("SELECT id FROM runs ORDER BY started_at"))
    _, test = compared(capsys, before, after, code=1)
    assert (test["strength"], test["kind"]) == ("other expectations", "regressed")


def test_of_what_was_run_again_the_checks_of_the_first_attempts_are_compared(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.configure("[eval]\nretries = 1\nparallelism = 1\n")
    looks = '    if "no" in reply.text:\n        t.check(reply).not_contains("overdue")\n'
    tests = ANSWERED.format(repeats=1, more=looks)
    project.agent.say("no")
    project.test(tests=tests)
    # The first attempt makes the check, as before; the one that counts in the end does not.
    project.agent.say("no", "done")
    assert project.test(tests=tests) == 0
    told, test = compared(capsys)
    assert (told["attempts"], test["kind"]) == ("first", "unchanged")
    assert counted(test)["overdue"] == (1, 1)
    assert run(["rescore"]) == 0
    rescored = project.rows("SELECT id FROM runs ORDER BY started_at DESC")[0][0]
    told, test = compared(capsys, "latest", rescored)
    assert (told["attempts"], test["kind"]) == ("last", "unchanged")
    assert "overdue" not in counted(test)
