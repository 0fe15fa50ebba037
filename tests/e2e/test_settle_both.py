"""`kindlm settle --both`: the old agent has a checkout of its own; both sides are repeated."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import loaded_kindlm
import pytest
from altering_server import AlteringServer, wrong
from workspace import new_workspace, until

from kindlm.cli.commands import settle_rounds

AGENT = {"rules": [{"name": "answer", "when": {}, "reply": {"text": "It was delivered."}}]}


class Situation(NamedTuple):
    """Two recorded runs of two agents, the first of which is still there, in a folder `old`."""

    before: str
    after: str
    root: Path
    old: Path
    old_server: AlteringServer
    new_server: AlteringServer


def asks(order: str) -> dict[str, Any]:
    return {
        "name": f"order-{order}",
        "prompt": "ask",
        "vars": {"order": order},
        "expect": {"output": {"contains": ["It was delivered."]}},
    }


def record(workspace: Any, *arguments: str) -> str:
    workspace.run("test", *arguments)
    (newest,) = workspace.query("SELECT id FROM runs ORDER BY started_at DESC LIMIT 1")
    return str(newest[0])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Situation]:
    """BEFORE has one repeat: repeats of AFTER alone would never decide."""
    workspace = new_workspace(tmp_path_factory.mktemp("new"))
    with AlteringServer(AGENT) as old_server, AlteringServer(AGENT) as new_server:
        tests = [asks("A1"), asks("B2")]
        config = workspace.suite(old_server.url, tests=tests)
        before = record(workspace)
        old = tmp_path_factory.mktemp("old")
        shutil.copy(config, old)
        workspace.suite(new_server.url, tests=tests)
        new_server.alter(wrong("A1", 2))
        after = record(workspace, "--runs", "2")
        yield Situation(before, after, workspace.root, old, old_server, new_server)


@pytest.fixture
def situation(workspace: Any, recorded: Situation) -> Situation:
    """The two runs in the workspace, and the agents as they were."""
    shutil.copytree(recorded.root, workspace.root, dirs_exist_ok=True)
    recorded.old_server.use_faults([])
    recorded.new_server.alter(wrong("A1", 2))
    return recorded


@pytest.fixture(autouse=True)
def _by_forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let processes that need not load kindlm repeat BEFORE."""
    with loaded_kindlm.command() as folder:
        monkeypatch.setattr(settle_rounds, "KINDLM", (str(folder / "kindlm"),))
        yield


def settled_runs(workspace: Any) -> list[tuple[str, str]]:
    query = "SELECT source_run, ended FROM runs WHERE mode = 'settled' ORDER BY started_at"
    return [tuple(row) for row in workspace.query(query)]


def test_both_sides_are_repeated_each_by_its_own_agent(
    workspace: Any, situation: Situation
) -> None:
    alone = workspace.run("settle")
    assert alone.returncode == 0
    assert "not decided, too few repeats before" in alone.stdout
    assert f"Next  kindlm settle {situation.before} {situation.after} --both FOLDER" in alone.stdout
    assert settled_runs(workspace) == []
    asked = len(situation.old_server.requests), len(situation.new_server.requests)

    done = workspace.run("settle", "--both", str(situation.old))

    assert done.returncode == 1, done.stderr
    assert "more repeats of both sides confirm at least" in done.stderr
    said = " ".join(done.stdout.split())
    assert "regression confirmed" in said
    runs = settled_runs(workspace)
    assert {source for source, _ in runs} == {situation.before, situation.after}
    assert {ended for _, ended in runs} == {"finished"}
    new = (
        len(situation.old_server.requests) - asked[0],
        len(situation.new_server.requests) - asked[1],
    )
    assert new[0] == new[1] > 0
    assert new[0] % 5 == 0
    assert f"{new[1]} repeats added by run" in said
    assert f"{new[0]} to BEFORE" in said

    compared = workspace.run("diff", "--format", "json")
    document = json.loads(compared.stdout)
    assert compared.returncode == 1
    assert document["before"]["id"] == situation.before
    (test,) = [test for test in document["tests"] if test["name"] == "order-A1"]
    assert test["strength"] == "confirmed"
    assert (test["added"]["n"], test["addedBefore"]) == (new[1], {"passed": new[0], "n": new[0]})
    shown = " ".join(workspace.run("diff").stdout.split())
    assert f"then {new[0]}/{new[0]} added before and" in shown
    assert workspace.run("verify").returncode == 0
    again = workspace.run("settle", "--both", str(situation.old))
    assert again.returncode == 1
    assert "no repeats added" in again.stdout


def test_a_folder_that_is_not_what_before_ran_is_refused(
    workspace: Any, situation: Situation, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = len(situation.old_server.requests), len(situation.new_server.requests)
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (".", str(empty)):
        assert workspace.run("settle", "--both", folder).returncode == 1
        # What repeats BEFORE says so itself.
        said = capfd.readouterr().err
        assert f"Suite 'orders' is not what run {situation.before} ran" in said
    planned = workspace.run("settle", "--both", str(situation.old), "--dry-run")
    assert planned.returncode == 0
    assert "At most 100 repeats" in planned.stdout
    assert settled_runs(workspace) == []
    now = len(situation.old_server.requests), len(situation.new_server.requests)
    assert now == asked


def test_a_checkout_need_not_be_named_as_the_project(
    workspace: Any, situation: Situation, tmp_path: Path
) -> None:
    """Without `suite` in the file, a suite has the name of the project: that of its folder."""
    config = workspace.suite(situation.new_server.url, tests=[asks("A1")])
    unnamed = config.read_text("utf-8").replace("suite:\n  name: orders\n", "")
    config.write_text(unnamed, "utf-8")
    (elsewhere := tmp_path / "v1.2").mkdir()
    shutil.copy(config, elsewhere)
    situation.new_server.use_faults([])
    before = record(workspace, "--runs", "2")
    situation.new_server.alter(wrong("A1", 2))
    after = record(workspace, "--runs", "2")
    done = workspace.run("settle", before, after, "--both", str(elsewhere), "--max-runs", "4")
    assert done.returncode == 0, done.stderr
    assert "2 to BEFORE" in done.stdout
    # A checkout inside the project needs a file of its own that makes it a project.
    (workspace.root / "worktrees" / "v1.2").mkdir(parents=True)
    for folder in ("", "worktrees/v1.2"):
        here = workspace.run("settle", before, after, "--both", folder)
        assert here.returncode == 1
        assert "--both names a folder of this project, whose agent is that of AFTER." in here.stderr
    assert len(settled_runs(workspace)) == 2


def test_a_budget_is_that_of_both_sides(workspace: Any, situation: Situation) -> None:
    asked = len(situation.old_server.requests), len(situation.new_server.requests)
    done = workspace.run("settle", "--both", str(situation.old), "--max-runs", "7")
    assert done.returncode == 0
    assert "Ended early: --max-runs 7 is used up." in done.stdout
    pair = f"{situation.before} {situation.after}"
    assert f"Next  kindlm settle {pair} --both {situation.old}   continue" in done.stdout
    new = (
        len(situation.old_server.requests) - asked[0],
        len(situation.new_server.requests) - asked[1],
    )
    assert new == (3, 3)


@pytest.mark.parametrize(
    ("send", "number", "name"),
    # From a terminal, all processes of the group get it.
    [(os.killpg, signal.SIGINT, "Ctrl-C"), (os.kill, signal.SIGTERM, "SIGTERM")],
)
def test_a_signal_while_before_is_repeated_ends_both_and_is_no_fault_of_its_folder(
    workspace: Any,
    situation: Situation,
    send: Callable[[int, int], None],
    number: int,
    name: str,
) -> None:
    situation.old_server.use_faults([{"latencyMs": 1_000}])
    asked = len(situation.old_server.requests)
    command = ("settle", "--both", str(situation.old), "-j", "1")
    process = workspace.start_anew(*command, start_new_session=True)
    until(lambda: len(situation.old_server.requests) >= asked + 2)
    send(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"Ended early: {name}" in out
    assert {ended for _, ended in settled_runs(workspace)} == {"interrupted"}


def test_an_old_agent_out_of_reach_ends_it(workspace: Any, situation: Situation) -> None:
    situation.old_server.use_faults([{"status": 400}])
    done = workspace.run("settle", "--both", str(situation.old))
    assert done.returncode == 1
    assert "Ended early: " in done.stdout
    assert "not decided" in done.stdout
    assert "regression confirmed" not in done.stdout


def test_the_part_of_a_cost_limit_for_one_side_is_named(
    workspace: Any, situation: Situation
) -> None:
    done = workspace.run("settle", "--both", str(situation.old), "--max-cost", "0.0003")
    part = "more than --max-cost allows ($0.00015)"
    assert part in " ".join(done.stdout.split())
    (run,) = workspace.query(f"SELECT id FROM runs WHERE source_run = '{situation.before}'")
    assert part in " ".join(workspace.run("show", run[0]).stdout.split())
