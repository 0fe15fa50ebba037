"""`kindlm diff --base` with a history server: the newest run of a branch is pulled from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compared_runs import record_run
from recorded_history import History

from kindlm.cli.app import run
from kindlm.errors import Ok
from kindlm.events.run import GitState
from kindlm.projections import PROJECTIONS
from kindlm.team.history_api import HistoryApi
from kindlm.team.team_server import RunningServer
from kindlm.team.token_store import TokenLimits, TokenStore
from kindlm_store import EventLog

PASSES, FAILS = {"refund": "+" * 10}, {"refund": "-" * 10}


def record(history: History, run: str, tests: Any, branch: str | None, **given: Any) -> None:
    git = GitState(commit="a1" * 20, branch=branch, dirty=given.pop("dirty", False))
    record_run(history, run, tests, git=git, **given)


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    """What a server has, which answers at KINDLM_URL; the working directory has a run `mine`."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "here" / ".kindlm").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    mine = History(tmp_path / "here" / ".kindlm" / "kindlm.db")
    record(mine, "mine", FAILS, "feature")
    mine.close()
    History(tmp_path / "team.db").close()
    with (
        EventLog.open(tmp_path / "team.db", projections=PROJECTIONS) as log,
        closing(TokenStore(tmp_path / "team.db")) as tokens,
    ):
        token = tokens.create("ci", ["pull"], project=None, days=None, limits=TokenLimits())
        assert isinstance(token, Ok)
        api = HistoryApi(log, tokens)
        with RunningServer(api) as server:
            monkeypatch.setenv("KINDLM_URL", server.url)
            monkeypatch.setenv("KINDLM_TOKEN", token.value)
            with closing(History(tmp_path / "team.db", "journal/team")) as history:
                yield history
        api.close()


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str, str]:
    run(["diff", "--base", "main", *arguments, "--format", "json"])
    written = capsys.readouterr()
    assert written.out, written.err
    diff = json.loads(written.out)
    return diff["before"]["id"], diff["after"]["id"], written.err


def record_nightly(team: History) -> None:
    """Record a group of two shards on the main branch: m1 and m2."""
    for shard in ("1/2", "2/2"):
        record(team, f"m{shard[0]}", {shard: "+"}, "main", shard=shard, group="nightly")


def test_the_newest_run_of_the_branch_is_pulled_once(team: History, capsys: Any) -> None:
    record(team, "m1old", PASSES, "main")
    record(team, "m2newest", PASSES, "main")
    record(team, "m3dirty", PASSES, "main", dirty=True)
    record(team, "m4other", PASSES, "main", suite="billing")
    record(team, "m5stopped", PASSES, "main", finish=False)
    before, after, err = compared(capsys)
    assert (before, after) == ("m2newest", "mine")
    assert "Pulled from" in err
    before, after, err = compared(capsys)
    assert (before, after) == ("m2newest", "mine")
    assert "Pulled from" not in err
    assert run(["diff", "--base", "main"]) == 1
    assert "REGRESSED" in capsys.readouterr().out


def test_a_ci_job_that_changed_files_tested_its_branch(team: History, capsys: Any) -> None:
    record(team, "m1clean", PASSES, "main", ci="github")
    record(team, "m2locked", PASSES, "main", ci="github", dirty=True)  # such as a lock file
    record(team, "m3dirty", PASSES, "main", dirty=True)
    before, _, err = compared(capsys)
    assert before == "m2locked"
    assert f"Pulled from {os.environ['KINDLM_URL']}: m2locked\n" in err


def test_a_group_is_pulled_whole(team: History, capsys: Any) -> None:
    record_nightly(team)
    record(team, "m3part", {"x": "+"}, "main", shard="1/2", group="half")
    before, after, err = compared(capsys)
    assert (before, after) == ("nightly", "mine")
    assert f"Pulled from {os.environ['KINDLM_URL']}: m2, m1\n" in err


def test_a_group_of_more_shards_than_are_listed_at_first_is_pulled(
    team: History, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm.team.pulling._MOST", 1)
    record_nightly(team)
    assert compared(capsys)[:2] == ("nightly", "mine")


def test_a_server_without_such_a_run_is_no_problem_of_the_server(
    team: History, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINDLM_EXIT_CODES", "pytest")
    assert run(["diff", "--base", "main"]) == 5
    assert "No run of branch 'main'" in capsys.readouterr().err


def test_the_history_here_does_where_the_server_is_away(
    team: History, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm.cli.commands.diff._PATIENCE_S", 0)
    monkeypatch.setenv("KINDLM_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("KINDLM_EXIT_CODES", "pytest")
    assert run(["diff", "--base", "main", "--comment"]) == 4
    assert "history server" in capsys.readouterr().err
    here = History(Path(".kindlm/kindlm.db"))
    record(here, "m0here", PASSES, "main")
    here.close()
    before, after, err = compared(capsys, "mine")
    assert (before, after) == ("m0here", "mine")
    assert "The newest run in the history here is compared." in err


def test_an_older_group_or_run_is_found_among_many_newer_ones(
    team: History, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm.cli.commands.pull.MAX_LISTED_RUNS", 2)
    record_nightly(team)
    for newer in ("n1", "n2"):
        record(team, newer, PASSES, "main")
    assert run(["pull", "--group", "nightly"]) == 0
    err = capsys.readouterr().err
    assert [line.partition(":")[0] for line in err.splitlines()[:2]] == ["m2", "m1"]
    assert run(["pull", "m"]) == 1
    assert "matches several runs of the server: m2, m1." in capsys.readouterr().err


def test_the_newest_runs_of_a_branch_are_pulled_shards_or_not(team: History, capsys: Any) -> None:
    record(team, "m0", PASSES, "main")
    record_nightly(team)
    record(team, "f1", PASSES, "feature")
    assert run(["pull", "--branch", "main", "--limit", "3"]) == 0
    err = capsys.readouterr().err
    assert [line.partition(":")[0] for line in err.splitlines()[:3]] == ["m2", "m1", "m0"]


def test_a_run_is_pulled_by_the_beginning_of_its_id(team: History, capsys: Any) -> None:
    record(team, "k3f9", PASSES, "main")
    record(team, "k3f9x2ab", PASSES, "main")
    record(team, "k3f8x2ab", PASSES, "main")
    for named, pulled in (("k3f9x", "k3f9x2ab"), ("k3f9", "k3f9"), ("k3f8x2ab", "k3f8x2ab")):
        assert run(["pull", named]) == 0
        assert f"See it with: kindlm show {pulled}\n" in capsys.readouterr().err
    for named, why in (("k3", "matches several runs"), ("", "404"), ("k3f9x2abc", "404")):
        assert run(["pull", named]) == 1
        assert why in capsys.readouterr().err
