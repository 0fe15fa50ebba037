"""Runs that did not finish, and are finished later: nothing is paid twice, nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checked_server import LoopbackServer
from inside import run_inside
from orders import SCRIPT, asked, comparable, events_of, hold, order, serve_orders, write_orders
from workspace import Workspace, as_yaml, new_workspace, until

from kindlm.projections import PROJECTIONS
from kindlm_store import EventLog, NewEvent, Text, open_reader


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_orders() as server:
        yield server


def kill_when_held(
    workspace: Workspace,
    server: LoopbackServer,
    *names: str,
    asks: str = "agent",
    arguments: tuple[str, ...] = ("-j", "2"),
) -> None:
    """Start a run, and kill it when these orders wait for their answers."""
    held = hold(server, *names, asks=asks)
    process = workspace.start("test", *arguments)
    held()
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def recorded_kill(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, LoopbackServer]]:
    """A project of three tests whose run, labelled "mine", was killed as k1 was asked."""
    workspace = new_workspace(tmp_path_factory.mktemp("killed"))
    with serve_orders() as server:
        write_orders(workspace, server, 3)
        kill_when_held(workspace, server, "k1", arguments=("--label", "mine", "-j", "1"))
        yield workspace.root, server


@pytest.fixture
def killed(workspace: Workspace, recorded_kill: tuple[Path, LoopbackServer]) -> LoopbackServer:
    """Put that project into the workspace; return its server."""
    root, server = recorded_kill
    shutil.copytree(root, workspace.root, dirs_exist_ok=True)
    server.use_faults([])
    return server


def the_run(workspace: Workspace) -> str:
    ((run,),) = workspace.query("SELECT id FROM runs")
    return str(run)


def edit(workspace: Workspace, **changes: Any) -> None:
    """Change keys of the suite."""
    path = workspace.root / "kindlm.yaml"
    path.write_text(as_yaml(yaml.safe_load(path.read_text()) | changes), encoding="utf-8")


def assert_intact(workspace: Workspace) -> None:
    verified = workspace.run("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_that_the_agent_may_have_changed_since_is_said_when_a_run_is_resumed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 2)
    for shard in ((), ("--shard", "1/2", "--run-group", "nightly")):
        workspace.run("test", "--max-time", "0", *shard, KINDLM_COMMIT="a" * 40)
        ((run,),) = workspace.query("SELECT id FROM runs WHERE ended = 'aborted'")
        arguments = ("test", "--resume", "nightly" if shard else run)
        done = workspace.run(*arguments, KINDLM_COMMIT="b" * 40)
        assert done.stderr.count(f"Run {run} tested commit aaaaaaaa, and here is bbbbbbbb.") == 1
        assert done.returncode == 0


def test_a_killed_run_is_finished_without_asking_anything_twice(
    workspace: Workspace, server: LoopbackServer, tmp_path: Path
) -> None:
    whole = new_workspace(tmp_path / "whole")
    whole.root.mkdir()
    write_orders(whole, server)
    expected = whole.report("-j", "2")

    write_orders(workspace, server)
    kill_when_held(workspace, server, "k3", "k4")
    assert_intact(workspace)
    before, since = events_of(workspace), len(server.requests)
    finished = {
        name for (name,) in workspace.query("SELECT test FROM executions WHERE status = 'passed'")
    }
    assert finished >= {"k0", "k1", "k2"}

    report = workspace.report("--resume")
    again = asked(server, since)
    assert again == {
        (f"k{n}", asks): 1
        for n in range(8)
        if f"k{n}" not in finished
        for asks in ("agent", "judge")
    }
    assert events_of(workspace)[: len(before)] == before
    assert report["run"]["id"] == the_run(workspace)
    assert comparable(report) == comparable(expected)
    assert_intact(workspace)


def test_what_all_attempts_cost_is_counted(workspace: Workspace, server: LoopbackServer) -> None:
    write_orders(workspace, server, 4)
    single = workspace.report("-j", "1", "--db", "other.db")
    # Both have answered, which is paid for and written down, and wait for their judges.
    held = hold(server, "k0", "k1", asks="judge")
    process = workspace.start("test", "-j", "2")
    held()
    answered = "SELECT count(*) FROM provider_calls WHERE status = 'responded'"
    until(lambda: workspace.query(answered) == [(2,)])
    process.kill()
    process.communicate()
    report = workspace.report("--resume")
    assert report["run"]["status"] == "passed"
    spent = workspace.query("SELECT sum(cost_usd) FROM provider_calls WHERE purpose = 'test'")
    assert report["summary"]["costUsd"] == pytest.approx(spent[0][0])
    assert report["summary"]["costUsd"] == pytest.approx(single["summary"]["costUsd"] * 6 / 4)
    assert report["summary"]["judgeCostUsd"] == pytest.approx(single["summary"]["judgeCostUsd"])
    attempts = workspace.query("SELECT test, attempt FROM executions ORDER BY number")
    assert attempts == [("k0", 2), ("k1", 2), ("k2", 1), ("k3", 1)]


@pytest.mark.usefixtures("killed")
def test_the_path_that_a_run_began_with_may_be_named_again(workspace: Workspace) -> None:
    other = (workspace.root / "kindlm.yaml").read_text().replace("name:", "name: other-", 1)
    (workspace.root / "other.yaml").write_text(other)

    refused = workspace.run("test", "other.yaml", "--resume")
    assert refused.returncode == 1
    assert "the suites are not the same" in refused.stderr

    report = workspace.report("kindlm.yaml", "--resume")
    assert report["run"]["id"] == the_run(workspace)
    assert report["summary"]["executions"]["passed"] == 3


def test_no_suite_is_new_once_an_execution_has_begun(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server)
    # The beginning of the first may not be stored yet when the run is killed in it.
    kill_when_held(workspace, server, "k1", arguments=("kindlm.yaml", "-j", "1"))
    other = (workspace.root / "kindlm.yaml").read_text().replace("name: orders", "name: more")
    (workspace.root / "more.yaml").write_text(other)

    refused = workspace.run("test", "kindlm.yaml", "more.yaml", "--resume")
    assert refused.returncode == 1
    assert "'more' is new" in " ".join(refused.stderr.split())


def test_a_run_that_is_killed_twice_is_finished_the_third_time(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server)
    kill_when_held(workspace, server, "k2")
    kill_when_held(workspace, server, "k2", "k5", arguments=("--resume", "-j", "2"))
    report = workspace.report("--resume")
    assert report["summary"]["executions"]["passed"] == 8
    assert asked(server)["k2", "agent"] == 3
    assert_intact(workspace)


@pytest.mark.usefixtures("killed")
def test_a_killed_run_is_shown_with_the_command_that_finishes_it(workspace: Workspace) -> None:
    shown = workspace.run("show").stdout
    assert "KILLED" in shown
    assert f"kindlm test --resume {the_run(workspace)}" in shown


@pytest.mark.parametrize("lost", ["run.finished", "suite.started"])
def test_a_run_that_was_killed_between_its_executions_and_an_end_of_it(
    workspace: Workspace, server: LoopbackServer, lost: str
) -> None:
    """The events of a whole run, cut off before its end and after its start."""
    write_orders(workspace, server, 2)
    workspace.report()
    run = the_run(workspace)
    cut_off(workspace, run, lost)
    shown = json.loads(workspace.run("report", "--format", "json").stdout)
    assert shown["run"]["status"] == "killed"
    since = len(server.requests)
    report = workspace.report("--resume")
    assert report["run"]["status"] == "passed"
    assert report["run"]["id"] == run
    assert len(server.requests) - since == (0 if lost == "run.finished" else 4)
    assert_intact(workspace)


def cut_off(workspace: Workspace, run: str, event_type: str) -> None:
    """Put the events of a run before the first of a type into a new history."""
    copy = workspace.root / "cut.db"
    reader = open_reader(workspace.database)
    texts = dict(reader.execute("SELECT ref, body FROM contents").fetchall())

    def with_texts(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {"$ref"}:
                return Text(texts[value["$ref"]])
            return {key: with_texts(item) for key, item in value.items()}
        return [with_texts(item) for item in value] if isinstance(value, list) else value

    rows = reader.execute(
        "SELECT type, data, subject FROM event_log WHERE stream = ? ORDER BY version",
        (f"run/{run}",),
    ).fetchall()
    reader.close()
    with EventLog.open(copy, projections=PROJECTIONS) as log:
        events = []
        for kind, data, subject in rows:
            if kind == event_type:
                break
            events.append(NewEvent(kind, with_texts(json.loads(data)), subject=subject))
        log.append(f"run/{run}", events)
    for file in workspace.database.parent.glob("kindlm.db*"):
        if file.is_file():
            file.unlink()
    copy.rename(workspace.database)


@pytest.mark.parametrize("wanted", ["prefix", "label", "latest"])
@pytest.mark.usefixtures("killed")
def test_a_run_is_resumed_by_any_of_its_names(workspace: Workspace, wanted: str) -> None:
    run = the_run(workspace)
    name = {"prefix": run[:5], "label": "mine", "latest": "latest"}[wanted]
    folder = workspace.root / "below" / "it"
    folder.mkdir(parents=True)
    done = run_inside(
        ["test", "-j", "3", "--resume", name, "--no-progress"], cwd=folder, env=workspace.env
    )
    assert done.returncode == 0, done.stderr
    assert run in done.stdout
    assert "mine" in done.stdout


@pytest.mark.usefixtures("killed")
def test_a_run_of_another_project_is_not_resumed_here(workspace: Workspace, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".kindlm").mkdir()
    resume = ["test", "--db", str(workspace.database), "--resume"]
    done = run_inside(resume, cwd=elsewhere, env=workspace.env)
    assert done.returncode == 1
    assert "elsewhere/kindlm.yaml' does not exist." in done.stderr


@pytest.mark.usefixtures("killed")
def test_options_that_follow_resume_are_not_taken_for_a_run(workspace: Workspace) -> None:
    report = workspace.report("--resume", "-j", "3", "--timeout", "9000")
    assert report["run"]["id"] == the_run(workspace)


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Workspace, LoopbackServer]]:
    """A project with a run that has finished, for commands that leave it as it is."""
    workspace = new_workspace(tmp_path_factory.mktemp("finished"))
    with serve_orders() as server:
        write_orders(workspace, server, 1)
        assert workspace.run("test").returncode == 0
        yield workspace, server


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-cost", "0"), "0 allows no call at all"),
        (("--resume", "--tags", "a", "--repeat", "2"), "cannot be combined with --tags, --repeat"),
        (("--resume", "nothing"), "There is no run 'nothing'"),
        (("--resume", ""), "There is no run ''"),
        (("--resume",), "There is nothing to resume"),
        (("--force-resume",), "--force-resume requires --resume"),
        (("--run-group", "g"), "--run-group requires --shard"),
        (("--listen", "10.0.0.5:8787"), "--listen requires --workers"),
        (("--run-group", "", "--shard", "1/2"), "'' cannot be a --run-group"),
        (("--run-group", "a\nb", "--workers", "2"), "'a\\nb' cannot be a --run-group"),
        (("--workers", "2", "--listen", "0.0.0.0:8787"), "cannot be combined with --listen"),
        (("--workers", "2", "--shard", "1/2"), "cannot be combined with --shard"),
        (("--max-cost", "nan"), "'--max-cost' should be"),
        (("--max-time", "inf"), "is not a limit"),
    ],
)
def test_what_cannot_be_resumed_is_reported_and_makes_no_call(
    finished: tuple[Workspace, LoopbackServer], arguments: tuple[str, ...], message: str
) -> None:
    workspace, server = finished
    since = len(server.requests)
    done = workspace.run("test", *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(server.requests) == since


def test_a_finished_run_is_not_resumed(finished: tuple[Workspace, LoopbackServer]) -> None:
    workspace, _ = finished
    run = the_run(workspace)
    done = workspace.run("test", "--resume", run)
    assert done.returncode == 1
    assert f"Run {run} has finished" in done.stderr
    assert f"kindlm show {run}" in done.stderr


def test_of_two_that_resume_a_run_one_learns_who_has_it(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server)
    kill_when_held(workspace, server, "k2")
    held = hold(server, "k5")
    first = workspace.start("test", "--resume")
    held()
    second = workspace.run("test", "--resume", the_run(workspace))
    assert second.returncode == 1
    assert f"process {first.pid}" in second.stderr
    shown = workspace.run("test", "--resume")
    assert f"process {first.pid}" in shown.stderr
    first.kill()
    first.communicate()
    assert workspace.report("--resume")["summary"]["executions"]["passed"] == 8


def test_the_latest_run_that_is_resumed_is_not_one_that_goes_on(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 3)
    kill_when_held(workspace, server, "k1")
    stopped = the_run(workspace)
    held = hold(server, "k2")
    running = workspace.start("test", "-t", "k2")
    held()
    report = workspace.report("--resume")
    assert report["run"]["id"] == stopped
    running.kill()
    running.communicate()


def test_two_who_resume_at_the_same_moment_finish_it_once(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server)
    kill_when_held(workspace, server, "k2")
    since = len(server.requests)
    both = [workspace.start("test", "--resume", the_run(workspace)) for _ in range(2)]
    told = [(process.communicate(timeout=60)[1], process.returncode) for process in both]
    assert 0 in [code for _, code in told]
    assert all("Traceback" not in stderr for stderr, _ in told)
    assert set(asked(server, since).values()) == {1}
    assert_intact(workspace)


def test_a_changed_configuration_is_refused_unless_it_is_forced(
    workspace: Workspace, killed: LoopbackServer
) -> None:
    edit(workspace, defaults={"timeoutMs": 9_000})
    since = len(killed.requests)
    refused = workspace.run("test", "--resume")
    assert refused.returncode == 1
    assert "the configuration of 'orders' has changed" in refused.stderr
    assert "--force-resume" in refused.stderr
    assert len(killed.requests) == since
    report = workspace.report("--resume", "--force-resume")
    assert report["run"]["status"] == "passed"
    (changed,) = workspace.query(
        "SELECT json_extract(data, '$.changed[0]') FROM event_log WHERE type = 'run.resumed'"
    )
    assert changed == ("orders",)


def test_other_tests_are_refused_even_if_forced(
    workspace: Workspace, killed: LoopbackServer
) -> None:
    since = len(killed.requests)
    for tests, difference in (
        (["k0", "k1", "k2", "new"], "'new' on 'gpt' is new"),
        (["k0", "k1"], "'k2' on 'gpt' is gone"),
        (["k1", "k0", "k2"], "their order"),
    ):
        write_orders(workspace, killed, [order(name) for name in tests])
        refused = workspace.run("test", "--resume", "--force-resume")
        assert refused.returncode == 1
        assert difference in refused.stderr
    assert len(killed.requests) == since


def second_suite(workspace: Workspace, server: LoopbackServer, name: str, **changes: Any) -> Path:
    """Write another suite in a file of its own; `write_orders` writes kindlm.yaml only."""
    write_orders(workspace, server, [order(f"{name}1"), order(f"{name}2")], **changes)
    path = workspace.root / f"{name}.yaml"
    text = (workspace.root / "kindlm.yaml").read_text()
    path.write_text(text.replace("name: orders", f"name: {name}"), encoding="utf-8")
    (workspace.root / "kindlm.yaml").unlink()
    return path


def test_a_suite_that_is_fixed_runs_when_its_run_is_resumed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    """The first of three files has an error: the others must keep their numbers."""
    files = [second_suite(workspace, server, name) for name in ("a", "b", "c")]
    good = files[0].read_text()
    files[0].write_text(good.replace("prompt: ask", "prompt: aks"))
    names = tuple(path.name for path in files)
    kill_when_held(workspace, server, "b2", arguments=(*names, "-j", "1"))
    numbers = workspace.query("SELECT number, test FROM executions ORDER BY number")
    files[0].write_text(good)
    since = len(server.requests)
    report = workspace.report("--resume")
    assert report["summary"]["executions"]["passed"] == 6
    assert (
        workspace.query("SELECT number, test FROM executions ORDER BY number")[: len(numbers)]
        == numbers
    )
    assert {name for name, _ in asked(server, since)} == {"a1", "a2", "b2", "c1", "c2"}
    assert workspace.run("report", "--format", "junit").returncode == 0
    assert_intact(workspace)


def test_a_suite_that_has_an_error_still_keeps_no_other_from_being_finished(
    workspace: Workspace, server: LoopbackServer
) -> None:
    files = [second_suite(workspace, server, name) for name in ("a", "b")]
    files[0].write_text(files[0].read_text().replace("prompt: ask", "prompt: aks"))
    names = tuple(path.name for path in files)
    kill_when_held(workspace, server, "b2", arguments=(*names, "-j", "1"))
    assert workspace.report("--resume")["summary"]["executions"]["passed"] == 2
    assert workspace.query("SELECT ended FROM runs") == [("finished",)]


@pytest.mark.usefixtures("killed")
def test_a_suite_that_had_started_and_has_an_error_now_is_refused(workspace: Workspace) -> None:
    path = workspace.root / "kindlm.yaml"
    good = path.read_text()
    path.write_text(good.replace("prompt: ask", "prompt: aks"))
    refused = workspace.run("test", "--resume", "--force-resume")
    assert refused.returncode == 1
    assert "'orders' has an error now" in refused.stderr
    path.write_text(good)
    assert workspace.report("--resume")["run"]["status"] == "passed"


def test_a_program_that_could_not_start_then_can_start_now(
    workspace: Workspace, server: LoopbackServer
) -> None:
    program = workspace.root / "program.py"
    serve = [{"name": "side", "command": ["python", "program.py"], "ready": {"line": "ready"}}]
    first = second_suite(workspace, server, "a", serve=serve)
    second = second_suite(workspace, server, "b")
    kill_when_held(workspace, server, "b2", arguments=(first.name, second.name, "-j", "1"))
    assert workspace.query("SELECT name, error_code IS NULL FROM suites ORDER BY ordinal") == [
        ("a", 0),
        ("b", 1),
    ]
    program.write_text("print('ready', flush=True)\nimport time; time.sleep(600)\n")
    report = workspace.report("--resume")
    assert report["summary"]["executions"]["passed"] == 4
    numbers = workspace.query("SELECT test FROM executions ORDER BY number")
    assert numbers == [("b1",), ("b2",), ("a1",), ("a2",)]


SERVED = """
import os, time

kindlm = os.getppid()
print("ready", flush=True)
while os.getppid() == kindlm:
    time.sleep(0.05)
"""
"""A program that ends with kindlm, also where kindlm is killed."""


@pytest.mark.parametrize("missing", ["program", "key"])
def test_a_run_whose_suite_cannot_go_on_stays_open(
    workspace: Workspace, server: LoopbackServer, missing: str
) -> None:
    program = workspace.root / "program.py"
    program.write_text(SERVED)
    serve = [{"name": "side", "command": ["python", "program.py"], "ready": {"line": "ready"}}]
    write_orders(workspace, server, 3, serve=serve)
    kill_when_held(workspace, server, "k1", arguments=("-j", "1"))
    key = workspace.env["OPENAI_API_KEY"]
    if missing == "program":
        program.unlink()
    else:
        del workspace.env["OPENAI_API_KEY"]
    since = len(server.requests)
    stopped = workspace.run("test", "--resume")
    assert stopped.returncode == 1
    assert ("OPENAI_API_KEY" if missing == "key" else "'side'") in stopped.stderr
    assert "ABORTED" in stopped.stdout
    assert f"kindlm test --resume {the_run(workspace)}" in stopped.stdout
    assert len(server.requests) == since
    report = json.loads(workspace.run("report", "--format", "json").stdout)
    assert report["summary"]["executions"]["passed"] == 1
    program.write_text(SERVED)
    (workspace.root / ".env").write_text(f"OPENAI_API_KEY={key}\n")
    assert workspace.report("--resume")["run"]["status"] == "passed"


JUDGED = {"judge": [{"criteria": "Is polite", "minScore": 0.8}]}
SIMILAR = {"output": {"similarTo": {"text": "It was delivered."}}}
DRIFT = {"baseline": {"drift": {"method": "judge"}}}


def stop_before(workspace: Workspace, server: LoopbackServer, expect: Any) -> None:
    """Record a run that stopped before a test whose checks ask openai; its target is another."""
    provider = {"apiKeyEnv": "OPENAI_API_KEY", "baseUrl": f"{server.url}/v1"}
    scripted = {"type": "scripted", "replies": [{"text": "delivered"}]}
    tests = [
        order("first", judged=False, says="never", models=["agent"]),
        order("second", judged=False, models=["agent"], expect=expect),
    ]
    write_orders(
        workspace,
        server,
        tests,
        providers={"fake": scripted, "openai": provider},
        models=[
            {"id": "agent", "provider": "fake", "model": "agent-1"},
            {"id": "judge", "provider": "openai", "model": "gpt-4o"},
        ],
        defaults={"judgeModel": "judge"},
    )
    assert workspace.run("test", "-x", "-j", "1").returncode == 1


@pytest.mark.parametrize("expect", [JUDGED, SIMILAR])
def test_a_run_stays_open_without_the_key_for_its_checks(
    workspace: Workspace, server: LoopbackServer, expect: Any
) -> None:
    stop_before(workspace, server, expect)
    key = workspace.env.pop("OPENAI_API_KEY")
    stopped = workspace.run("test", "--resume")
    assert stopped.returncode == 1
    assert "OPENAI_API_KEY" in stopped.stderr
    assert "ABORTED" in stopped.stdout
    assert workspace.query("SELECT test FROM executions") == [("first",)]
    assert len(server.requests) == 0
    workspace.env["OPENAI_API_KEY"] = key
    workspace.run("test", "--resume")
    assert workspace.query("SELECT ended FROM runs") == [("finished",)]
    assert len(server.requests) > 0


def test_a_run_without_a_baseline_goes_on_without_the_key_for_drift(
    workspace: Workspace, server: LoopbackServer
) -> None:
    stop_before(workspace, server, DRIFT)
    del workspace.env["OPENAI_API_KEY"]
    workspace.run("test", "--resume")
    assert workspace.query("SELECT ended FROM runs") == [("finished",)]


def test_the_tests_that_had_failed_are_those_that_are_run(
    workspace: Workspace, server: LoopbackServer
) -> None:
    """By the time of the resumption some of them have passed, in the very run."""
    tests = [order(f"k{n}", says="delivered" if n % 2 else "nowhere") for n in range(8)]
    write_orders(workspace, server, tests)
    workspace.run("test", "--quiet")
    write_orders(workspace, server)
    kill_when_held(workspace, server, "k4", arguments=("--failed", "-j", "1"))
    since = len(server.requests)
    report = workspace.report("--resume")
    assert [test["name"] for test in report["tests"]] == ["k0", "k2", "k4", "k6"]
    assert report["run"]["status"] == "passed"
    assert {name for name, _ in asked(server, since)} == {"k4", "k6"}


def test_a_shard_with_repeats_is_resumed_as_it_was(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server)
    arguments = ("--shard", "2/2", "--run-group", "g", "--runs", "2", "-j", "1")
    kill_when_held(workspace, server, "k5", arguments=arguments)
    since = len(server.requests)
    report = workspace.report("--resume")
    assert [test["name"] for test in report["tests"]] == ["k1", "k3", "k5", "k7"]
    assert all(len(test["executions"]) == 2 for test in report["tests"])
    assert asked(server, since)["k5", "agent"] == 2
    assert workspace.query("SELECT group_id, shard FROM runs") == [("g", "2/2")]


def test_drift_is_measured_against_the_baseline_that_the_run_began_with(
    workspace: Workspace, server: LoopbackServer
) -> None:
    tests = [order(f"k{n}", judged=False) for n in range(4)]
    for test in tests:
        test["expect"]["baseline"] = {"drift": {"maxScore": 0.2, "method": "judge"}}
    write_orders(workspace, server, tests)
    first = workspace.report()["run"]["id"]
    assert workspace.run("baseline", "set").returncode == 0
    kill_when_held(workspace, server, "k2", arguments=("-j", "1"))
    run = workspace.query("SELECT id FROM runs WHERE ended IS NULL")[0][0]
    # Other answers become a newer baseline: the run must not notice.
    server.use_script({"rules": [{"name": "other", "when": {}, "reply": {"text": "delivered!"}}]})
    second = workspace.report()["run"]["id"]
    assert workspace.run("baseline", "set", second).returncode == 0
    server.use_script(SCRIPT)
    report = workspace.report("--resume", run)
    assert report["run"]["status"] == "passed"
    assert report["summary"]["driftMax"] == 0
    chosen = workspace.query("SELECT baseline_run FROM suites WHERE run = ?", run)
    assert chosen == [(first,)]
