"""A run in several parts, on several machines: which part is which, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import typer
from checked_server import LoopbackServer
from orders import order, serve_orders, write_orders
from workspace import Workspace

from kindlm.cli.options import _SHARD_VARIABLES, _shard


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_orders() as server:
        yield server


def write(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, [order(f"k{n}", judged=False) for n in range(5)])


def test_shards_of_a_group_run_every_test_once_and_show_which_are_missing(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write(workspace, server)
    missing = {1: [2, 3], 2: [3], 3: []}
    names: list[str] = []
    for index, absent in missing.items():
        arguments = ("--shard", f"{index}/3", "--run-group", "nightly")
        report = workspace.report(*arguments, "--reporter", "junit=out.xml")
        assert report["run"]["shard"] == {
            "index": index,
            "count": 3,
            "group": "nightly",
            "missing": absent,
            "unfinished": [],
        }
        names += [test["name"] for test in report["tests"]]
        junit = (workspace.root / "out.xml").read_text()
        assert f'name="kindlm.shard" value="{index}/3"' in junit
        assert 'name="kindlm.group" value="nightly"' in junit
        shown = workspace.run("show").stdout
        if index == 1:
            assert (
                "Shard 1/3 of group nightly; shard 2/3 is not here, shard 3/3 is not here" in shown
            )
        assert ("not here" in shown) is bool(absent)
    assert sorted(names) == [f"k{n}" for n in range(5)]
    listed = workspace.run("runs").stdout
    assert all(f"shard {index}/3" in listed for index in missing)
    runs = json.loads(workspace.run("runs", "--format", "json").stdout)["runs"]
    assert {(run["group"], run["shard"]) for run in runs} == {
        ("nightly", f"{index}/3") for index in missing
    }


@pytest.mark.parametrize(
    "variable", ["GITHUB_RUN_ID", "CI_PIPELINE_ID", "BUILDKITE_BUILD_ID", "BUILD_BUILDID"]
)
def test_the_jobs_of_a_ci_run_are_a_group_also_when_one_is_repeated(
    workspace: Workspace, server: LoopbackServer, variable: str
) -> None:
    write(workspace, server)
    workspace.env[variable] = "4711"
    workspace.report("--shard", "1/2")
    again = workspace.report("--shard", "2/2", GITHUB_RUN_ATTEMPT="2", BUILDKITE_RETRY_COUNT="1")
    assert again["run"]["shard"]["group"] == "4711"
    assert again["run"]["shard"]["missing"] == []


def test_a_shard_without_a_group_says_that_it_stays_alone(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write(workspace, server)
    done = workspace.run("test", "--shard", "1/2")
    assert "Without --run-group" in done.stderr
    assert "Shard 1/2 of a group without a name" in done.stdout
    assert "Without --run-group" not in workspace.run("test", "--shard", "1/2", "--quiet").stderr


def test_a_shard_without_tests_says_so(workspace: Workspace, server: LoopbackServer) -> None:
    write(workspace, server)
    done = workspace.run("test", "--shard", "6/6", "--run-group", "g")
    assert done.returncode == 1
    assert "no test matches the selection" in done.stderr
    assert "--shard" in done.stderr
    assert len(server.requests) == 0


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "1/3/5", "-1/3", "1 / 3"])
def test_what_is_no_shard_is_refused(
    workspace: Workspace, server: LoopbackServer, text: str
) -> None:
    write(workspace, server)
    done = workspace.run("test", f"--shard={text}")
    assert done.returncode == 1
    assert "is not a shard" in done.stderr


@pytest.mark.parametrize(
    ("variables", "shard"),
    [
        ({"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "3"}, "1/3"),
        ({"JOB_COMPLETION_INDEX": "2", "CI_NODE_TOTAL": "3"}, "3/3"),
        ({"CI_NODE_INDEX": "3", "CI_NODE_TOTAL": "3"}, "3/3"),
        ({"CIRCLE_NODE_INDEX": "0", "CIRCLE_NODE_TOTAL": "2"}, "1/2"),
        ({"BUILDKITE_PARALLEL_JOB": "1", "BUILDKITE_PARALLEL_JOB_COUNT": "2"}, "2/2"),
    ],
)
def test_a_parallel_job_knows_its_shard(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], shard: str
) -> None:
    set_variables(monkeypatch, variables)
    assert _shard("env") == shard
    assert _shard("2/4") == "2/4"


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({}, "env needs one of these variables: JOB_COMPLETION_INDEX, CI_NODE_INDEX"),
        ({"JOB_COMPLETION_INDEX": "0"}, "nothing says of how many. Set JOB_COMPLETIONS"),
    ],
)
def test_a_job_that_does_not_know_its_shard_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], problem: str
) -> None:
    set_variables(monkeypatch, variables)
    with pytest.raises(typer.BadParameter) as refused:
        _shard("env")
    assert problem in refused.value.message


def set_variables(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for index, _, totals in _SHARD_VARIABLES:
        for name in (index, *totals):
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_the_shard_of_a_job_is_recorded(workspace: Workspace, server: LoopbackServer) -> None:
    write(workspace, server)
    workspace.env |= {"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "2", "CI_PIPELINE_ID": "4711"}
    report = workspace.report("--shard", "env")
    assert (report["run"]["shard"]["index"], report["run"]["shard"]["group"]) == (2, "4711")
    workspace.env["CI_NODE_TOTAL"] = "1"
    done = workspace.run("test", "--shard=env")
    assert done.returncode == 1
    assert "--shard '2/1' is not a shard" in done.stderr
