"""Agents that scenarios name themselves: with variables, and with what is wrong told where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_project import run_inside
from scenario_project import Project

from kindlm.cli.app import run

PYTHON = """
from kindlm import *

@scenario("own", agent=AGENT)
async def test_own(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")

@scenario("other")
async def test_other(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""


def write(project: Project, form: str, agent: dict[str, Any]) -> None:
    """Write a file with a scenario that names its agent, and one that does not."""
    if form == "python":
        project.write("tests/test_it.py", PYTHON.replace("AGENT", repr(agent)))
        return
    turns = [{"says": "hi", "expect": {"contains": "hi"}}]
    own = {"name": "own", "turns": turns}
    lines = [json.dumps(own)[:-1] + ",", f'"agent": {json.dumps(agent)}}}', "---"]
    project.write("tests/it.yaml", "\n".join([*lines, json.dumps({**own, "name": "other"})]))


@pytest.mark.parametrize("form", ["python", "yaml"])
def test_variables_are_put_in_and_kept_out_of_the_history(
    project: Project, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("MARK", "marked-with-care")
    monkeypatch.setenv("WHERE", project.agent.url)
    agent = {
        "type": "http",
        "url": "${env.WHERE}",
        "body": {"message": "{{message}}", "mark": "${env.MARK}"},
    }
    write(project, form, agent)
    project.agent.answer = lambda request: {"message": f"hi {request.get('mark')}"}
    assert project.test() == 0
    assert "marked-with-care" in {request.get("mark") for request in project.agent.requests}
    assert b"marked-with-care" not in (project.root / ".kindlm" / "kindlm.db").read_bytes()


@pytest.mark.parametrize(
    ("form", "more", "told"),
    [
        ("python", {"headers": {"X-Mark": "${env.NO_SUCH_NAME}"}}, "NO_SUCH_NAME is not set"),
        ("python", {"respnse_path": "x"}, 'Did you mean "response_path"?'),
        ("yaml", {"respnse_path": "x"}, 'Did you mean "response_path"?'),
        ("yaml", {"url": "nowhere"}, "agent.url must be a URL"),
    ],
)
def test_what_is_wrong_with_one_agent_leaves_the_other_scenarios_alone(
    project: Project,
    capsys: pytest.CaptureFixture[str],
    form: str,
    more: dict[str, Any],
    told: str,
) -> None:
    write(project, form, {"type": "http", "url": project.agent.url, "name": "shop", **more})
    place = "test_it.py:4" if form == "python" else "it.yaml:2"
    assert run(["validate", "tests"]) == 1
    shown = "".join(capsys.readouterr())
    assert told in shown
    assert place in shown
    assert project.test("--dry-run") == 1
    assert project.test() == 1
    assert told in "".join(capsys.readouterr())
    found = project.rows("SELECT target, status, error_code FROM executions ORDER BY number")
    assert found == [
        ("shop", "errored", "CONFIG_VALIDATION_ERROR"),
        ("agent", "passed", None),
    ]
    assert len(project.agent.requests) == 1


def test_a_key_that_is_missing_is_reported_as_python_writes_it(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "python", {"type": "http"})
    assert project.test() == 1
    assert 'Add `"url":`' in capsys.readouterr().err


def test_scenarios_without_an_agent_do_not_keep_others_from_it(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.root / "kindlm.toml").unlink()
    write(project, "yaml", {"type": "http", "url": project.agent.url})
    assert project.test() == 1
    shown = capsys.readouterr().err
    assert "There is no agent to test" in shown
    assert "`agent: http://…`" in shown
    assert project.statuses() == {"own": "passed", "other": "errored"}


def test_a_scenario_that_is_skipped_needs_no_agent(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.root / "kindlm.toml").unlink()
    skipped = '@pytest.mark.skipif("WHERE" not in os.environ, reason="no agent")\n@scenario('
    text = PYTHON.replace("AGENT", '{"type": "http", "url": "${env.WHERE}"}')
    project.write("tests/test_it.py", f"import os, pytest\n{text.replace('@scenario(', skipped)}")
    assert run(["validate", "tests"]) == 0
    assert "is not set" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("Bot()", "Bot can't be called and has no method `send`"),
        ("['http://127.0.0.1']", "but is of type list"),
        ("{'type': 'http', 'url': bot}", "agent"),
    ],
)
def test_an_agent_that_is_no_object_no_url_and_no_table_is_an_error_of_its_scenario(
    project: Project, capsys: pytest.CaptureFixture[str], named: str, told: str
) -> None:
    bots = "def bot(text):\n    return text\n\nclass Bot:\n    pass\n"
    project.write("tests/test_it.py", bots + PYTHON.replace("AGENT", named))
    project.agent.say("hi")
    assert project.test() == 1
    assert project.statuses() == {"test_own": "errored", "test_other": "passed"}
    shown = capsys.readouterr()
    assert told in " ".join((shown.out + shown.err).split())
    assert "kindlm itself failed" not in shown.out + shown.err
    under_pytest = run_inside(project.root, "--kindlm", "tests")
    assert "INTERNALERROR" not in under_pytest.stdout + under_pytest.stderr
    assert "1 passed" in under_pytest.stdout
    assert "1 failed" in under_pytest.stdout
