"""Scenarios under pytest-xdist: every worker records a run, and together they are one group."""

from __future__ import annotations

import json
import re
from contextlib import closing

import pytest
from pytest_project import run_pytest
from scenario_project import Project

from kindlm.cli.app import run
from kindlm.errors import Ok
from kindlm.history.groups import Group
from kindlm.history.run_names import find_run_or_group
from kindlm.history.run_view import RunView
from kindlm.history.runs import REASON
from kindlm.recording.history_file import open_log

SEVERAL = """
import os
import pytest
from kindlm import Trial, scenario

@scenario("several", repeats=2)
@pytest.mark.parametrize("word", ["a", "b", "c", "d"])
async def test_it(t: Trial, word: str) -> None:
    t.check(await t.agent.send(word)).contains(word)
    {more}
"""

REFUSED = """
import os
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        session.shouldfail = f"the shop refused {os.environ['SHOP_TOKEN']}"
"""


def write(project: Project, more: str = "") -> None:
    project.write("tests/test_it.py", SEVERAL.replace("{more}", more))


def group_in(project: Project, output: str) -> tuple[Group, dict[str, str], str]:
    """Return the group that the output names, how its tests came out, and its status."""
    found = re.search(r"^kindlm group (pytest-\w+): kindlm show \1$", output, re.MULTILINE)
    assert found, output
    with (
        open_log(project.root / ".kindlm" / "kindlm.db", set()) as log,
        closing(log.reader()) as reader,
    ):
        group = find_run_or_group(reader, found[1])
        assert isinstance(group, Ok)
        assert isinstance(group.value, Group)
        view = RunView(reader, group.value)
        counts = {test.name: test.status for test in view.tests()}
        return group.value, {name: str(status) for name, status in counts.items()}, view.status


def test_workers_run_every_test_once_and_two_groups_are_compared_without_naming_them(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project)
    project.configure('\n[report]\nformats = ["junit"]\n')
    done = run_pytest(project.root, "--kindlm", "-n", "2")
    assert done.returncode == 0, done.stdout
    # One report of them all.
    assert 'tests="4"' in (project.root / "reports/report.xml").read_text("utf-8")
    before, tests, status = group_in(project, done.stdout)
    assert (before.count, before.complete, status) == (2, True, "passed")
    assert tests == {f"tests/test_it.py::test_it[{word}]": "passed" for word in "abcd"}
    assert sorted(project.agent.said) == sorted("abcd" * 2)
    assert project.rows("SELECT sum(planned), count(DISTINCT id) FROM runs") == [(8, 2)]
    # The tests that a worker got one by one were selected in its run.
    assert run(["rescore", before.runs[0]]) == 0
    write(project, "assert word == 'b'")
    after, _, _ = group_in(project, run_pytest(project.root, "--kindlm", "-n", "2").stdout)
    capsys.readouterr()
    assert run(["diff", "--format", "json", "--fail-on", "never"]) == 0
    diff = json.loads(capsys.readouterr().out)
    assert [diff["before"]["id"], diff["after"]["id"]] == [before.name, after.name]
    changes = {test["name"][-3:]: test["change"] for test in diff["tests"]}
    assert changes == {
        "[a]": "regressed",
        "[b]": "unchanged",
        "[c]": "regressed",
        "[d]": "regressed",
    }
    assert run(["baseline", "set"]) == 0
    assert f"group {after.name} is now the baseline" in capsys.readouterr().err


def test_a_worker_without_a_test_keeps_the_group_from_nothing(project: Project) -> None:
    write(project)
    done = run_pytest(project.root, "--kindlm", "-n", "2", "-k", "test_it[b]")
    assert done.returncode == 0, done.stdout
    group, tests, status = group_in(project, done.stdout)
    assert (group.complete, status) == (True, "passed")
    assert tests == {"tests/test_it.py::test_it[b]": "passed"}
    assert project.rows("SELECT planned, passed FROM runs ORDER BY planned") == [(0, 1), (2, 1)]


def test_a_worker_that_crashes_leaves_the_group_incomplete(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "if word == 'b': os._exit(3)")
    done = run_pytest(project.root, "--kindlm", "-n", "2")
    assert done.returncode == 1
    assert "crashed while running" in done.stdout
    group, _, status = group_in(project, done.stdout)
    assert (group.complete, status) == (False, "incomplete")
    assert sorted(shard.state for shard in group.unfinished) == ["interrupted", "killed"]
    # What took the place of the worker is a run of its own: the group lacks what was lost.
    [(alone,)] = project.rows("SELECT id FROM runs WHERE group_id IS NULL")
    assert f"kindlm run {alone}: kindlm show {alone}" in done.stdout
    ended = project.rows("SELECT DISTINCT test FROM executions WHERE status = 'passed' ORDER BY 1")
    assert ended == [(f"tests/test_it.py::test_it[{word}]",) for word in "acd"]
    assert run(["test", "--resume", group.name]) == 1
    assert "pytest selected and started its tests" in capsys.readouterr().err


def test_stopped_at_the_first_failure_the_group_says_that_tests_are_missing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "assert word != 'a'")
    monkeypatch.setenv("SHOP_TOKEN", "tok-4711-of-the-shop")
    project.write("conftest.py", REFUSED)
    done = run_pytest(project.root, "--kindlm", "-n", "1", "-x")
    assert done.returncode != 0
    group, tests, status = group_in(project, done.stdout)
    assert (group.complete, status) == (False, "incomplete")
    assert tests["tests/test_it.py::test_it[a]"] == "failed"
    [(ended, reason)] = project.rows(f"SELECT ended, {REASON} FROM runs r")
    assert ended == "interrupted"
    # What plugins say may hold a secret of the environment.
    assert reason == ("pytest stopped before all tests had run: the shop refused [redacted]")


def test_a_worker_whose_test_pytest_fails_later_keeps_the_group_from_passing(
    project: Project,
) -> None:
    write(project)
    project.write(
        "conftest.py",
        """
import pytest

@pytest.fixture(autouse=True)
def left(word):
    yield
    assert word != "a"
""",
    )
    done = run_pytest(project.root, "--kindlm", "-n", "1")
    assert done.returncode == 1, done.stdout
    _, tests, status = group_in(project, done.stdout)
    assert (set(tests.values()), status) == ({"passed"}, "incomplete")
    [(ended, reason)] = project.rows(f"SELECT ended, {REASON} FROM runs r")
    assert ended == "interrupted"
    assert "test_it[a] (teardown)" in reason


def test_workers_of_which_none_can_record_do_not_begin(project: Project) -> None:
    write(project)
    project.write("file", "")
    done = run_pytest(project.root, "--kindlm", "-n", "2", "--kindlm-db", "file/kindlm.db")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "kindlm cannot record in" in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert project.agent.said == []


def test_workers_without_scenarios_need_no_history(project: Project) -> None:
    project.write("test_it.py", "def test_it(): pass\n")
    project.write("file", "")
    done = run_pytest(project.root, "--kindlm", "-n", "2", "--kindlm-db", "file/kindlm.db")
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    run_pytest(project.root, "--kindlm", "-n", "2", "--kindlm-db", "new/kindlm.db")
    assert not (project.root / "new").exists()
