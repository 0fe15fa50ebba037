"""`kindlm diff --base`: which run of a branch is compared, and the comment on the pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compared_runs import record_run
from github_stand_in import GitHub, serve_github
from recorded_history import History, RunWriter

from kindlm.events.run import GitState

PASSES = {"refund": "+" * 10, "greeting": "+" * 10}
FAILS = {"refund": "-" * 10, "greeting": "+" * 10}


@pytest.fixture
def history(here: Path) -> Iterator[History]:
    """The history of the working directory."""
    (here / ".kindlm").mkdir()
    history = History(here / ".kindlm" / "kindlm.db")
    yield history
    history.close()


@pytest.fixture
def github(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[GitHub]]:
    """A step of a workflow that pull request 7 started."""
    event = here / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}), "utf-8")
    with serve_github() as (url, served):
        for name, value in {
            "GITHUB_API_URL": url,
            "GITHUB_REPOSITORY": "acme/shop",
            "GITHUB_TOKEN": "a-token",
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_WORKFLOW": "ci",
            "GITHUB_JOB": "agents",
            "GITHUB_WORKSPACE": str(here),
        }.items():
            monkeypatch.setenv(name, value)
        yield served


def record(
    history: History, run: str, tests: dict[str, Any], branch: str | None, **given: Any
) -> RunWriter:
    dirty = given.pop("dirty", False)
    return record_run(
        history, run, tests, git=GitState(commit="a1" * 20, branch=branch, dirty=dirty), **given
    )


def compared(kindlm: Any, *arguments: str) -> tuple[str, str]:
    done = kindlm("diff", "--base", "main", *arguments, "--format", "json")
    assert done.out, done.err
    diff = json.loads(done.out)
    return diff["before"]["id"], diff["after"]["id"]


def test_the_newest_clean_run_of_the_branch_is_compared(kindlm: Any, history: History) -> None:
    record(history, "m1old", PASSES, "main")
    record(history, "m2clean", PASSES, "main")
    record(history, "m3dirty", PASSES, "main", dirty=True)
    record(history, "m4other", PASSES, "main", suite="billing")
    record(history, "m5broken", PASSES, "main", finish=False)
    record(history, "f1mine", FAILS, None)
    record(history, "d1dev", PASSES, "dev")
    record(history, "m6pulled", FAILS, "main")
    assert compared(kindlm) == ("m6pulled", "d1dev")
    assert compared(kindlm, "f1mine") == ("m6pulled", "f1mine")
    assert compared(kindlm, "m6pulled") == ("m2clean", "m6pulled")


def test_a_ci_job_that_changed_files_tested_its_branch(kindlm: Any, history: History) -> None:
    record(history, "m1clean", PASSES, "main", ci="github")
    record(history, "m2locked", PASSES, "main", ci="github", dirty=True)  # such as a lock file
    record(history, "m3mine", PASSES, "main", dirty=True)
    record(history, "f1mine", FAILS, None)
    assert compared(kindlm) == ("m2locked", "f1mine")


def test_shards_of_the_branch_count_as_one_run(kindlm: Any, history: History) -> None:
    for shard in ("1/2", "2/2"):
        record(history, f"m{shard[0]}", {shard: "+"}, "main", shard=shard, group="nightly")
    record(history, "m3half", {"x": "+"}, "main", shard="1/2", group="half")
    for shard in ("1/2", "2/2"):
        record(history, f"f{shard[0]}", {shard: "+"}, "dev", shard=shard, group="mine")
    assert compared(kindlm) == ("nightly", "mine")
    done = kindlm("diff", "--base", "main", "nightly")
    assert "No run of branch 'main' with a suite of nightly" in done.err


def test_a_shard_is_not_compared_with_its_own_group(kindlm: Any, history: History) -> None:
    for shard in ("1/2", "2/2"):
        record(history, f"m{shard[0]}", {shard: "+"}, "main", shard=shard, group="nightly")
    done = kindlm("diff", "--base", "main", "m1")
    assert "No run of branch 'main' with a suite of m1" in done.err


def test_without_a_run_of_another_branch_there_is_nothing_to_compare(
    kindlm: Any, history: History
) -> None:
    record(history, "m1main", PASSES, "main")
    record(history, "m2main", PASSES, "main")
    done = kindlm("diff", "--base", "main")
    assert (done.code, done.out) == (1, "")
    assert "Of branches other than 'main', no run has finished yet" in done.err
    assert compared(kindlm, "latest") == ("m1main", "m2main")


def test_a_branch_without_a_run_is_an_error(kindlm: Any, history: History) -> None:
    record(history, "m4other", PASSES, "main", suite="billing")
    record(history, "f1mine", PASSES, "dev")
    done = kindlm("diff", "--base", "main")
    assert (done.code, done.out) == (1, "")
    assert "No run of branch 'main' with a suite of f1mine ('support') has finished" in done.err
    assert kindlm("diff", "--base", "main", "one", "two").code == 1
    assert kindlm("diff", "--base", "").code == 1


def test_the_comment_of_an_earlier_commit_does_not_stay_without_a_comparison(
    kindlm: Any, here: Path, history: History, github: type[GitHub]
) -> None:
    record(history, "m1main", PASSES, "main")
    record(history, "f1mine", PASSES, None)
    other = ("--db", str(here / "none.db"))  # as on a new runner, on which no run could start
    assert kindlm("diff", "--base", "main", "--comment", *other).code == 1
    assert github.comments == []
    assert kindlm("diff", "--base", "main", "--comment").code == 0
    assert "UNCHANGED" in github.comments[0]["body"]
    damaged = here / "damaged.db"
    damaged.write_text("no history")
    setting = here / "kindlm.toml"
    for wanted in (other, ("f2gone",), ("--db", str(damaged)), ("-o", str(history.path)), ()):
        if not wanted:
            setting.write_text("[diff]\nregression_threshold = 2\n")
        github.comments[0]["body"] = github.comments[0]["body"].replace("NOT COMPARED", "x")
        assert kindlm("diff", "--base", "main", "--comment", *wanted).code == 1
        (comment,) = github.comments
        assert "NOT COMPARED" in comment["body"], wanted
        assert "UNCHANGED" not in comment["body"]


def test_the_comment_says_that_the_newest_run_is_not_compared(
    kindlm: Any, history: History, github: type[GitHub]
) -> None:
    record(history, "m1main", PASSES, "main")
    record(history, "f1mine", PASSES, None)
    record(history, "m2main", PASSES, "main", finish=False).interrupt()
    said = "The newest one, run f2mine, is unfinished: it is not compared."
    assert kindlm("diff", "--base", "main", "--comment").code == 0
    assert "is unfinished" not in github.comments[0]["body"]
    record(history, "f2mine", FAILS, None, finish=False).interrupt()
    done = kindlm("diff", "--base", "main", "--comment", "--format", "json")
    assert said in done.err
    assert json.loads(done.out)["notes"] == [said]
    assert said in github.comments[0]["body"]
    named = kindlm("diff", "--base", "main", "f1mine", "--format", "json")
    assert json.loads(named.out)["notes"] == []


@pytest.mark.parametrize("app", ["github-actions[bot]", "shop-ci[bot]"])
def test_one_comment_is_edited_and_only_if_something_changed(
    kindlm: Any, history: History, github: type[GitHub], app: str
) -> None:
    github.login = app
    record(history, "f1mine", PASSES, None)
    done = kindlm("diff", "--base", "main", "--comment")
    assert done.code == 0, done.err
    assert "nothing to compare with" in github.comments[0]["body"]

    record(history, "m1main", PASSES, "main")
    record(history, "f2mine", FAILS, None)
    for _ in range(2):
        assert kindlm("diff", "--base", "main", "--comment").code == 1
    assert github.seen == ["POST", "PATCH"]
    (comment,) = github.comments
    assert comment["body"].startswith("<!-- kindlm ci/agents/. -->\n### ❌ kindlm: REGRESSED")
    assert kindlm("diff", "--base", "main", "--format", "markdown").out in comment["body"]


def test_what_an_agent_said_is_nothing_but_code_in_a_comment(
    kindlm: Any, history: History, github: type[GitHub]
) -> None:
    bad = "@octocat ![x](https://evil.test/x.png) <img src=x> [link](https://evil.test) `@octocat`"
    said = [{"output": bad, "assertions": ()}]
    record(history, "m1main", {bad: "+" * 10}, "main")
    record(history, "f1mine", {bad: said * 10}, None)
    kindlm("diff", "--base", "main", "--comment")
    (comment,) = github.comments
    assert "octocat" in comment["body"]
    assert kindlm("diff", "--base", "main", "--format", "markdown").out in comment["body"]


@pytest.mark.parametrize("missing", ["GITHUB_TOKEN", "GITHUB_EVENT_PATH", "GITHUB_API_URL"])
def test_a_comment_that_cannot_be_written_is_no_error(
    kindlm: Any,
    history: History,
    github: type[GitHub],
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
) -> None:
    record(history, "m1main", PASSES, "main")
    record(history, "f1mine", PASSES, None)
    if missing == "GITHUB_API_URL":
        monkeypatch.setenv(missing, "http://127.0.0.1:9")
    else:
        monkeypatch.delenv(missing)
    done = kindlm("diff", "--base", "main", "--comment")
    assert done.code == 0
    assert "comment" in done.err
    assert github.comments == []
