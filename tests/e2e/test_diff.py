"""`kindlm diff` as a user runs it: two real runs, and an agent that changed between them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from checked_server import LoopbackServer


def answering(text: str, **call: Any) -> dict[str, Any]:
    """An agent that looks an order up, once, and says a text."""
    arguments = {"order_id": "A1", **call}
    return {
        "rules": [
            {
                "name": "look up",
                "when": {"offered": "lookup_order", "notCalledThisTurn": "lookup_order"},
                "reply": {"toolCalls": [{"name": "lookup_order", "arguments": arguments}]},
            },
            {"name": "answer", "when": {}, "reply": {"text": text}},
        ],
    }


GOOD = answering("Order A1 was delivered.")
WRONG = answering("Order A1 is lost.")
OTHERWISE = answering("It was delivered.", fields="all")


def record(workspace: Any, agent: dict[str, Any], *arguments: str, **changes: Any) -> str:
    """Run the tests with an agent; return the id of the run."""
    with LoopbackServer(agent) as server:
        workspace.suite(server.url, **changes)
        workspace.run("test", *arguments)
    (newest,) = workspace.query("SELECT id FROM runs ORDER BY started_at DESC LIMIT 1")
    return str(newest[0])


def test_a_changed_agent_from_run_to_verdict(workspace: Any) -> None:
    before = record(workspace, GOOD, "--runs", "5", "--label", "v1")
    after = record(workspace, WRONG, "--runs", "5")
    done = workspace.run("diff")
    assert done.returncode == 1
    assert done.stderr == (
        "With 5 repeats in each run, kindlm confirms a drop from 100 % to 0 %, and one to 70 % in 3"
        " of 100 comparisons. Use 10 repeats to find drops more often.\n"
    )
    assert f"Before {before}" in done.stdout
    assert "delivered · gpt  passed 5/5 → failed 0/5  regressed, confirmed" in done.stdout
    assert "contains delivered  5/5 → 0/5, p = 0.00098, confirmed" in done.stdout
    assert "Order A1[- was delivered-]{+ is lost+}." in done.stdout
    assert "REGRESSED: 1 test got worse, confirmed" in done.stdout
    assert f"Next  kindlm show {after} 1" in done.stdout
    shown = workspace.run(*done.stdout.partition("Next  kindlm ")[2].split()[:3])
    assert shown.returncode == 0
    assert "Order A1 is lost." in shown.stdout


def test_names_of_runs_on_the_command_line(workspace: Any) -> None:
    before = record(workspace, GOOD, "--label", "v1")
    after = record(workspace, WRONG, "--label", "v2")
    for arguments in (
        (),
        ("previous", "latest"),
        ("v1",),
        (before[:6], after[:6]),
        ("latest~1",),
        ("--before", "v1", "--after", "v2"),
    ):
        done = workspace.run("diff", "--format", "json", *arguments)
        document = json.loads(done.stdout)
        assert (document["before"]["id"], document["after"]["id"]) == (before, after), arguments
        assert done.returncode == 1
        assert document["tests"][0]["strength"] == "one sample"
    assert workspace.run("baseline", "set", "v1").returncode == 0
    assert f"Before {before}" in workspace.run("diff", "baseline").stdout
    wrong = workspace.run("diff", "nothing")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "All runs: kindlm runs" in wrong.stderr


def test_a_git_revision_names_the_run_recorded_at_it(workspace: Any) -> None:
    def git(*arguments: str) -> None:
        settings = ("-c", "user.name=me", "-c", "user.email=me@example.com")
        subprocess.run(("git", *settings, *arguments), cwd=workspace.root, check=True)

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "one")
    before = record(workspace, GOOD)
    git("commit", "-q", "--allow-empty", "-m", "two")
    record(workspace, WRONG)
    assert f"Before {before}" in workspace.run("diff", "git:HEAD~1").stdout
    git("commit", "-q", "--allow-empty", "-m", "three")
    none = workspace.run("diff", "git:HEAD", "latest")
    assert none.returncode == 1
    assert "No finished run was recorded at 'HEAD'" in none.stderr
    assert "All runs, with their commits: kindlm runs" in none.stderr


def test_behaviour_that_changed_in_a_test_that_still_passes(workspace: Any) -> None:
    record(workspace, GOOD)
    record(workspace, OTHERWISE)
    done = workspace.run("diff")
    assert done.returncode == 0
    assert "Different behaviour, neither better nor worse" in done.stdout
    assert 'fields  added "all"' in done.stdout
    assert workspace.run("diff", "--fail-on", "behaviour").returncode == 1
    assert workspace.run("diff", "--fail-on", "any").returncode == 0


def test_what_changed_in_the_configuration_is_reported(workspace: Any) -> None:
    record(workspace, GOOD)
    record(workspace, GOOD, prompts={"ask": {"system": "Be brief.", "user": "Order {{order}}?"}})
    done = workspace.run("diff")
    assert done.returncode == 0
    assert 'prompts.ask.user  "Where is order {{order}}?" → "Order {{order}}?"' in done.stdout
    assert 'prompts.ask.system  added "Be brief."' in done.stdout


def test_a_test_that_is_gone_fails_and_one_not_selected_does_not(workspace: Any) -> None:
    tests = [workspace.test(), workspace.test("other")]
    record(workspace, GOOD, tests=tests)
    record(workspace, GOOD, "-t", "other", tests=tests)
    partly = workspace.run("diff")
    assert partly.returncode == 0
    assert "1 test compared, 1 not run" in partly.stdout
    record(workspace, GOOD, tests=[workspace.test("other")])
    gone = workspace.run("diff", "latest~2")
    assert gone.returncode == 1
    assert "1 test removed" in gone.stdout


@pytest.mark.parametrize("form", ["terminal", "json", "markdown", "html"])
def test_every_form_goes_to_a_file(workspace: Any, form: str) -> None:
    record(workspace, GOOD)
    record(workspace, WRONG)
    printed = workspace.run("diff", "--format", form)
    file = Path("reports") / f"diff.{form}"
    there = workspace.root / file
    there.parent.mkdir()
    there.write_text("An earlier comparison.\n", encoding="utf-8")
    # What still reads the earlier file, reads on in it.
    other_name = there.with_name("other name")
    other_name.hardlink_to(there)
    done = workspace.run("diff", "--format", form, "-o", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert there.read_text("utf-8") == printed.stdout
    assert other_name.read_text("utf-8") == "An earlier comparison.\n", "not cut while it is read"


def test_the_history_is_not_written_over(workspace: Any) -> None:
    record(workspace, GOOD)
    record(workspace, GOOD)
    done = workspace.run("diff", "-o", ".kindlm/kindlm.db")
    assert done.returncode == 1
    assert "would overwrite the history" in done.stderr
    assert workspace.run("runs").returncode == 0


def test_a_drop_of_scores_is_measured_by_the_threshold_of_the_project(workspace: Any) -> None:
    record(workspace, GOOD)
    record(workspace, GOOD)
    toml = workspace.root / "kindlm.toml"
    toml.write_text("[diff]\nregression_threshold = 2\n", encoding="utf-8")
    done = workspace.run("diff")
    assert done.returncode == 1
    assert "diff.regression_threshold is 2" in done.stderr
    toml.write_text("[diff]\nregression_threshold = 0.2\n", encoding="utf-8")
    assert workspace.run("diff").returncode == 0


def test_nothing_recorded_and_nothing_to_compare_with(workspace: Any) -> None:
    assert "No runs are recorded yet" in workspace.run("diff").stderr
    record(workspace, GOOD)
    alone = workspace.run("diff")
    assert alone.returncode == 1
    assert "No run of 'orders' finished before run" in alone.stderr
    assert workspace.run("diff", "latest", "--test", "nothing").returncode == 1
    record(workspace, GOOD)
    misspelt = workspace.run("diff", "--test", "nothing")
    assert (misspelt.returncode, misspelt.stdout) == (1, "")
    assert "No test or suite of these runs has 'nothing' in its name." in misspelt.stderr
