"""`kindlm settle` as a user runs it: a flaky agent, repeated until the evidence decides."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from altering_server import AlteringServer, wrong
from small_disk import mounted
from workspace import new_workspace, until

AGENT = {"rules": [{"name": "answer", "when": {}, "reply": {"text": "It was delivered."}}]}


@pytest.fixture(scope="module")
def one_server() -> Iterator[AlteringServer]:
    with AlteringServer(AGENT) as server:
        yield server


@pytest.fixture
def server(one_server: AlteringServer) -> AlteringServer:
    one_server.use_faults([])
    return one_server


def asks(order: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": f"order-{order}",
        "prompt": "ask",
        "vars": {"order": order},
        "expect": {"output": {"contains": ["It was delivered."]}},
        **changes,
    }


def record(workspace: Any, *arguments: str) -> str:
    """Run the tests; return the id of the run."""
    workspace.run("test", *arguments)
    (newest,) = workspace.query("SELECT id FROM runs ORDER BY started_at DESC LIMIT 1")
    return str(newest[0])


class Suspicion(NamedTuple):
    """Two recorded runs: all is well at first, then every other answer about A1 is wrong."""

    before: str
    after: str
    root: Path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, one_server: AlteringServer) -> Suspicion:
    workspace = new_workspace(tmp_path_factory.mktemp("suspicion"))
    workspace.suite(one_server.url, tests=[asks("A1"), asks("B2")])
    one_server.use_faults([])
    before = record(workspace, "--runs", "10")
    one_server.alter(wrong("A1", 2))
    return Suspicion(before, record(workspace, "--runs", "3"), workspace.root)


@pytest.fixture
def suspicion(workspace: Any, server: AlteringServer, recorded: Suspicion) -> Suspicion:
    """The two runs in the workspace, and the agent as it was in the later one."""
    shutil.copytree(recorded.root, workspace.root, dirs_exist_ok=True)
    server.alter(wrong("A1", 2))
    return recorded


def settled_runs(workspace: Any) -> list[tuple[Any, ...]]:
    query = "SELECT id, source_run, ended, planned FROM runs WHERE mode = 'settled'"
    found: list[tuple[Any, ...]] = workspace.query(f"{query} ORDER BY started_at")
    return found


def repeats(workspace: Any) -> list[int]:
    """The numbers of all repeats that were added, in order."""
    return [
        row[0]
        for row in workspace.query(
            "SELECT e.repeat FROM executions e JOIN runs r ON r.id = e.run"
            " WHERE r.mode = 'settled' AND e.status <> 'skipped' ORDER BY e.repeat"
        )
    ]


def test_a_limit_that_cannot_be_kept_is_no_end_of_the_settling(
    workspace: Any, server: AlteringServer
) -> None:
    models = [{"id": "gpt", "provider": "openai", "model": "brand-new-1"}]
    workspace.suite(server.url, tests=[asks("A1")], models=models)
    record(workspace, "--runs", "10")
    server.alter(wrong("A1", 2))
    record(workspace, "--runs", "3")
    done = workspace.run("settle", "--max-cost", "1", "-j", "1")
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "a call of unknown cost was made" in said
    assert "1 repeat added by run" in said
    assert "cost unknown" in said
    assert len(repeats(workspace)) == 1


def test_a_real_drop_is_confirmed(
    workspace: Any, server: AlteringServer, suspicion: Suspicion
) -> None:
    before, after, _ = suspicion
    assert workspace.run("diff").returncode == 0
    asked = len(server.requests)

    done = workspace.run("settle")

    assert done.returncode == 1
    assert done.stderr.count("If these tests dropped by 30 points, more repeats of AFTER") == 1
    assert "order-A1 · gpt  10/10 before, 2/3 after" in done.stdout
    assert "regression confirmed" in done.stdout
    assert "1 suspected test: 1 confirmed." in done.stdout
    assert f"Next  kindlm diff {before} {after}" in done.stdout
    assert "Round 1: 1 of 1 suspected test still open" in done.stderr
    ((run, source, ended, planned),) = settled_runs(workspace)
    assert (source, ended) == (after, "finished")
    new = [json.dumps(request.body) for request in server.requests[asked:]]
    assert len(new) == planned
    assert all("order A1?" in body for body in new)
    assert repeats(workspace) == list(range(4, 4 + planned))

    # It is counted with AFTER, and is no run that one compares with.
    compared = workspace.run("diff", "--format", "json")
    document = json.loads(compared.stdout)
    assert compared.returncode == 1
    assert (document["before"]["id"], document["after"]["id"]) == (before, after)
    (test,) = [test for test in document["tests"] if test["name"] == "order-A1"]
    assert (test["strength"], test["added"]["n"]) == ("confirmed", planned)
    assert workspace.run("verify").returncode == 0
    shown = workspace.run("report", run, "--format", "json")
    assert json.loads(shown.stdout)["run"]["mode"] == "settled"

    # What is decided is not asked again.
    again = workspace.run("settle")
    assert again.returncode == 1
    assert "no repeats added" in again.stdout
    assert len(server.requests) == asked + planned


def test_that_the_agent_may_have_changed_since_is_said_before_it_is_repeated(
    workspace: Any, server: AlteringServer
) -> None:
    then, now, dirty = "a" * 40, "b" * 40, "a" * 40 + "-dirty"
    workspace.suite(server.url, tests=[asks("A1")])
    workspace.run("test", "--runs", "10", KINDLM_COMMIT=then)
    server.alter(wrong("A1", 2))
    workspace.run("test", "--runs", "3", KINDLM_COMMIT=then)
    ((after,),) = workspace.query("SELECT id FROM runs ORDER BY started_at DESC LIMIT 1")
    warning = f"Run {after} tested commit aaaaaaaa, and here is bbbbbbbb."
    said = {
        commit: workspace.run("settle", "--dry-run", KINDLM_COMMIT=commit).stderr
        for commit in (then, now, dirty)
    }
    assert [warning in each for each in said.values()] == [False, True, False]
    assert "here is aaaaaaaa with uncommitted changes." in said[dirty]
    assert warning in workspace.run("settle", "--max-runs", "1", KINDLM_COMMIT=now).stderr


def test_repeats_have_the_cassettes_of_their_run(workspace: Any, server: AlteringServer) -> None:
    workspace.suite(server.url, tests=[asks("A1")])
    record(workspace)
    tools = [{"name": "look_up", "cassette": {"run": "latest"}}]
    workspace.suite(server.url, tests=[asks("A1", tools=tools)])
    before = record(workspace, "--runs", "10")
    server.alter(wrong("A1", 2))
    record(workspace, "--runs", "3")
    workspace.run("settle", "--max-runs", "1")
    started = "SELECT data ->> '$.cassettes[0].run' FROM event_log WHERE type = 'suite.started'"
    assert workspace.query(f"{started} ORDER BY seq")[2:] == [(before,)] * 2


def test_the_same_flaky_agent_is_cleared(workspace: Any, server: AlteringServer) -> None:
    workspace.suite(server.url, tests=[asks("A1"), asks("B2")])
    server.alter(wrong("A1", 4))
    before = record(workspace, "--runs", "10")
    after = record(workspace, "--runs", "3")
    assert "SUSPECTED" in workspace.run("diff").stdout

    done = workspace.run("settle", before, after)

    assert done.returncode == 0
    assert "order-A1 · gpt  8/10 before, 2/3 after" in done.stdout
    assert "1 suspected test: 1 cleared." in done.stdout
    compared = workspace.run("diff")
    assert compared.returncode == 0
    assert "SUSPECTED" not in compared.stdout


def test_a_budget_ends_it_and_the_next_one_goes_on(
    workspace: Any, server: AlteringServer, suspicion: Suspicion
) -> None:
    before, after, _ = suspicion
    asked = len(server.requests)

    done = workspace.run("settle", "--max-runs", "3")

    assert done.returncode == 0
    assert "Ended early: --max-runs 3 is used up." in done.stdout
    assert "not decided" in done.stdout
    assert f"Next  kindlm settle {before} {after}" in done.stdout
    assert len(server.requests) == asked + 3

    # The added repeats are no run of their own.
    ((settled, *_),) = settled_runs(workspace)
    for command in (["rescore", settled], ["replay", settled]):
        refused = workspace.run(*command)
        assert refused.returncode == 1
        assert f"Run {settled} only adds repeats to run {after}." in refused.stderr

    # Each call is some thousandths of a cent.
    spent = workspace.run("settle", "--max-cost", "0.00000001", "-j", "1")
    assert spent.returncode == 0
    assert "--max-cost" in spent.stdout
    assert [run[2] for run in settled_runs(workspace)] == ["finished", "aborted"]
    kept = repeats(workspace)
    assert 3 < len(kept) < 8

    last = workspace.run("settle")
    assert last.returncode == 1
    assert "regression confirmed" in last.stdout
    assert repeats(workspace) == list(range(4, 4 + len(server.requests) - asked))


def test_a_history_that_cannot_be_written_is_named(
    workspace: Any, server: AlteringServer, suspicion: Suspicion
) -> None:
    asked = len(server.requests)
    with mounted(workspace.root / "disk", "16m") as folder:
        database = shutil.copy(workspace.database, folder)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        done = workspace.run("settle", "--db", str(database))
    assert done.returncode == 1
    assert "kindlm itself failed" not in done.stderr
    assert "The history cannot be" in done.stderr
    assert len(server.requests) == asked


@pytest.mark.usefixtures("suspicion")
def test_what_was_done_until_ctrl_c_counts(workspace: Any, server: AlteringServer) -> None:
    asked = len(server.requests)
    server.use_faults([{"latencyMs": 1_000}])
    process = workspace.start("settle", "-j", "1")
    until(lambda: len(server.requests) >= asked + 2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Ended early: Ctrl-C" in out
    ((_, _, ended, _),) = settled_runs(workspace)
    assert ended == "interrupted"
    kept = repeats(workspace)
    assert 0 < len(kept) < 5
    server.use_faults([])
    done = workspace.run("settle")
    assert done.returncode == 0
    assert "1 suspected test: 1 cleared." in done.stdout
    added = repeats(workspace)
    assert len(added) == len(set(added)) > len(kept)


def test_only_what_after_ran_is_repeated(
    workspace: Any, server: AlteringServer, suspicion: Suspicion
) -> None:
    before, after, _ = suspicion
    asked = len(server.requests)
    planned = workspace.run("settle", "--dry-run")
    assert planned.returncode == 0
    assert "up to 50 more repeats" in planned.stdout
    assert "Nothing was run." in planned.stdout
    other = workspace.run("settle", "-t", "order-b2")
    assert (other.returncode, other.stdout) == (0, "")
    assert f"no test named like order-b2 is suspected of having got worse between {before}" in (
        other.stderr
    )
    either = workspace.run("settle", "-t", "order-a1", "-t", "order-b2", "--dry-run")
    assert either.stdout == planned.stdout
    misspelt = workspace.run("settle", "-t", "order-b2", "-t", "ordr")
    assert misspelt.returncode == 1
    assert "No test or suite of these runs has 'ordr' in its name." in misspelt.stderr
    no_key = workspace.run("settle", OPENAI_API_KEY="")
    assert no_key.returncode == 1
    assert "OPENAI_API_KEY" in no_key.stderr

    changed = asks("A1", expect={"output": {"contains": ["delivered"]}})
    workspace.suite(server.url, tests=[changed, asks("B2")])
    refused = workspace.run("settle")
    assert refused.returncode == 1
    assert f"Suite 'orders' is not what run {after} ran: kindlm.yaml has changed." in (
        refused.stderr
    )
    workspace.suite(server.url, suite={"name": "returns"}, tests=[asks("A1"), asks("B2")])
    assert f"run {after} ran: kindlm.yaml now holds 'returns'." in workspace.run("settle").stderr
    (workspace.root / "kindlm.yaml").unlink()
    gone = workspace.run("settle", "--db", ".kindlm/kindlm.db")
    assert "does not exist" in gone.stderr
    assert len(server.requests) == asked
    assert settled_runs(workspace) == []


def test_no_repeat_is_run_without_the_key_of_the_judge(
    workspace: Any, server: AlteringServer
) -> None:
    found = {"openai": {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server.url}/v1"}}
    found["judging"] = {**found["openai"], "type": "openai", "apiKeyEnv": "JUDGE_KEY"}
    models = [
        {"id": "gpt", "provider": "openai", "model": "gpt-4o"},
        {"id": "judge", "provider": "judging", "model": "gpt-4o"},
    ]
    judge = [{"criteria": "Is polite", "model": "judge", "minScore": 0}]
    expect = {**asks("A1")["expect"], "judge": judge}
    test = asks("A1", models=["gpt"], expect=expect)
    workspace.suite(server.url, providers=found, models=models, tests=[test])
    workspace.env["JUDGE_KEY"] = "judge-7f3a9c51d2e84b06"
    record(workspace, "--runs", "10")
    server.alter(wrong("A1", 2))
    record(workspace, "--runs", "3")
    del workspace.env["JUDGE_KEY"]
    asked = len(server.requests)
    refused = workspace.run("settle")
    assert refused.returncode == 1
    assert "JUDGE_KEY" in refused.stderr
    assert len(server.requests) == asked


@pytest.mark.usefixtures("suspicion")
def test_a_target_out_of_reach_is_not_asked_for_long(
    workspace: Any, server: AlteringServer
) -> None:
    asked = len(server.requests)
    server.use_faults([{"status": 400}])
    done = workspace.run("settle", "--db", ".kindlm/kindlm.db")
    assert done.returncode == 1
    words = " ".join(done.stdout.split())
    assert "Ended early: No repeat of the last round was answered: kindlm show" in words
    assert words.count("--db .kindlm/kindlm.db") == 2
    assert "not decided" in done.stdout
    assert len(server.requests) == asked + 5
    assert "SUSPECTED" in workspace.run("diff").stdout


def test_too_few_repeats_before_are_never_enough(workspace: Any, server: AlteringServer) -> None:
    workspace.suite(server.url, tests=[asks("A1"), asks("B2")])
    before = record(workspace)
    server.alter(wrong("A1", 1))
    record(workspace, "--runs", "3")
    asked = len(server.requests)
    done = workspace.run("settle")
    assert done.returncode == 0
    assert done.stdout.count("too few repeats") == 1
    assert "--both FOLDER" in done.stdout
    assert len(server.requests) == asked
    replayed = workspace.run("rescore", before)
    assert replayed.returncode == 0
    ((rescored,),) = workspace.query("SELECT id FROM runs WHERE mode = 'rescored'")
    wrong_side = workspace.run("settle", before, rescored)
    assert wrong_side.returncode == 1
    assert f"Run {rescored} is rescored: only a finished run" in wrong_side.stderr
