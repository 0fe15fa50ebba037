"""`kindlm test --workers`: real processes, one of which is killed, and a group that is resumed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from checked_server import LoopbackServer
from forked_workers import beside, fork_workers
from loaded_kindlm import Started
from orders import asked, hold, order, serve_orders, write_orders
from processes import assert_ended
from small_disk import mounted
from workspace import Workspace, new_workspace, until


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return new_workspace(tmp_path)


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """The workers of `Workspace.run`; those of `Workspace.start` are processes as ever."""
    return fork_workers(monkeypatch)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_orders() as server:
        yield server


def write(workspace: Workspace, server: LoopbackServer, tests: int) -> None:
    write_orders(workspace, server, [order(f"k{n}", judged=False) for n in range(tests)])


def commands_of(group: str) -> dict[int, str]:
    """The processes of the workers of a group, with their command lines."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if f"--run-group={group}" in line:
                found[int(folder.name)] = line
    return found


def finished(workspace: Workspace) -> int:
    if not workspace.database.exists():
        return 0
    ended = "SELECT count(*) FROM executions WHERE status IS NOT NULL"
    return int(workspace.query(ended)[0][0])


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")


def test_a_killed_worker_is_replaced_and_what_it_pushed_is_not_asked_again(
    workspace: Workspace, server: LoopbackServer, forks: list[Started]
) -> None:
    write(workspace, server, 2)
    # k1 is not answered before its worker is killed.
    arrived = hold(server, "k1")

    def kill_second() -> None:
        arrived()
        until(lambda: finished(workspace) >= 1)
        (victim,) = (fork for fork in forks if "--shard=2/2" in fork.args)
        os.kill(victim.pid, signal.SIGKILL)

    with beside(kill_second):
        run = workspace.run("test", "--workers", "2", "--run-group", "g1", "-j", "1")
    assert run.returncode == 0, run.stderr
    assert asked(server) == {("k0", "agent"): 1, ("k1", "agent"): 2}
    assert workspace.run("history", "verify").returncode == 0
    shown = workspace.run("show", "g1")
    assert shown.returncode == 0
    assert "2 of 2 shards" in shown.stdout


@needs_proc
def test_no_worker_outlives_the_coordinator_and_the_group_is_resumed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write(workspace, server, 2)
    arrived = hold(server, "k1")
    run = workspace.start("test", "--workers", "2", "--run-group", "g2", "-j", "1")
    arrived()
    until(lambda: finished(workspace) >= 1)
    # The run that is held has been pushed, too.
    until(lambda: workspace.query("SELECT count(*), count(ended) FROM runs") == [(2, 1)])
    ((going_on,), *_) = workspace.query("SELECT id FROM runs WHERE ended IS NULL")
    taken = workspace.run("test", "--resume", going_on)
    assert taken.returncode == 1
    assert "is running already, in process " in taken.stderr
    left = list(commands_of("g2"))
    assert left
    run.kill()
    run.communicate()
    assert_ended(left)
    resumed = workspace.run("test", "--resume", "g2", "--reporter", "json=out.json")
    assert resumed.returncode == 0, resumed.stderr
    assert "1 of 2 shards left" in resumed.stderr
    assert asked(server)["k0", "agent"] == 1
    again = workspace.run("test", "--resume", "g2")
    assert again.returncode == 0
    assert "0 of 2 shards left" in again.stderr
    calls = len(server.requests)
    anew = workspace.run("test", "--workers", "2", "--run-group", "g2")
    assert anew.returncode == 1
    assert "There is a group g2 already" in anew.stderr
    assert len(server.requests) == calls


@needs_proc
def test_no_execution_that_was_pushed_is_paid_for_twice_whatever_is_killed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order(name, judged=False, repeat=4) for name in ("k0", "k1")])
    # The third repeat of each test is in flight when its process is killed.
    held = {"latencyMs": 600_000, "every": 3, "next": 1}
    server.use_faults([{**held, "contains": f"<{name}>"} for name in ("k0", "k1")])
    run = workspace.start("test", "--workers", "2", "--run-group", "g10", "-j", "1")
    until(lambda: finished(workspace) == 4 and len(server.requests) == 6)
    for process, line in commands_of("g10").items():
        if "--shard=1/2" in line:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    until(lambda: finished(workspace) == 6)
    left = list(commands_of("g10"))
    run.kill()
    run.communicate()
    assert_ended(left)
    resumed = workspace.run("test", "--resume", "g10")
    assert resumed.returncode == 0, resumed.stderr
    assert finished(workspace) == 8
    assert asked(server) == {("k0", "agent"): 4 + 1, ("k1", "agent"): 4 + 1}


@needs_proc
def test_what_a_worker_could_not_push_is_taken_from_its_folder_when_the_group_is_resumed(
    workspace: Workspace, server: LoopbackServer
) -> None:
    temporary = workspace.root / "temporary"
    temporary.mkdir()
    workspace.env["TMPDIR"] = str(temporary)

    def finished_by_workers() -> int:
        ended = "SELECT count(*) FROM executions WHERE status IS NOT NULL"
        found = 0
        for folder in temporary.iterdir():
            with closing(sqlite3.connect(folder / "kindlm.db")) as db:
                found += db.execute(ended).fetchone()[0]
        return found

    write_orders(
        workspace, server, [order("k0", judged=False, repeat=3), order("k1", judged=False)]
    )
    slow = {"latencyMs": 3_000, "contains": "<k0>", "next": 1}
    server.use_faults([slow, {"latencyMs": 600_000, "contains": "<k1>", "next": 1}])
    run = workspace.start("test", "--workers", "2", "--run-group", "g9", "-j", "1")
    until(lambda: workspace.database.exists() and len(workspace.query("SELECT id FROM runs")) == 2)
    # It takes no answer any more.
    run.send_signal(signal.SIGSTOP)
    until(lambda: finished_by_workers() == 3)
    left = list(commands_of("g9"))
    run.kill()
    run.communicate()
    assert_ended(left)
    assert len(list(temporary.iterdir())) == 2
    resumed = workspace.run_apart("test", "--resume", "g9")
    assert resumed.returncode == 0, resumed.stderr
    assert asked(server) == {("k0", "agent"): 3, ("k1", "agent"): 2}
    assert not list(temporary.iterdir())
    assert workspace.run("history", "verify").returncode == 0


@needs_proc
def test_what_was_never_pushed_is_found_when_the_group_is_run_again(
    workspace: Workspace, server: LoopbackServer
) -> None:
    temporary = workspace.root / "temporary"
    temporary.mkdir()
    workspace.env["TMPDIR"] = str(temporary)
    write(workspace, server, 1)
    run = workspace.start("test", "--workers", "1", "--run-group", "g12")
    until(lambda: any(temporary.glob("*/kindlm.db")))
    run.send_signal(signal.SIGSTOP)
    (database,) = temporary.glob("*/kindlm.db")

    def has_ended() -> bool:
        with closing(sqlite3.connect(database)) as db, suppress(sqlite3.OperationalError):
            return bool(db.execute("SELECT 1 FROM executions WHERE status IS NOT NULL").fetchone())
        return False  # it has no tables yet

    until(has_ended)
    left = list(commands_of("g12"))
    run.kill()
    run.communicate()
    assert_ended(left)
    anew = workspace.run_apart("test", "--workers", "1", "--run-group", "g12")
    assert anew.returncode == 1
    assert "There is a group g12 already" in anew.stderr
    assert workspace.run_apart("test", "--resume", "g12").returncode == 0
    assert asked(server) == {("k0", "agent"): 1}
    assert not list(temporary.iterdir())


@needs_proc
def test_no_worker_goes_on_if_the_coordinator_is_killed_while_it_loads(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write(workspace, server, 1)
    # Nobody resumes the group, so that the folder of its worker stays.
    workspace.env["TMPDIR"] = str(workspace.root)
    run = workspace.start("test", "--workers", "1", "--run-group", "g4")
    until(lambda: bool(commands_of("g4")))
    run.kill()
    run.communicate()
    until(lambda: not commands_of("g4"))
    assert not server.requests


def test_no_agent_is_given_what_opens_the_history_of_the_run(
    workspace: Workspace, server: LoopbackServer
) -> None:
    (workspace.root / "agent.py").write_text(
        "import json, os\n"
        "names = [name for name in os.environ if name.startswith('KINDLM')]\n"
        "print(json.dumps({'text': f'delivered, {names}'}))\n"
    )
    agent = {"id": "a", "adapter": "subprocess", "command": "python agent.py"}
    write_orders(workspace, server, [order("k0", judged=False)], agents=[agent], models=[])
    run = workspace.run("test", "--workers", "1", "--run-group", "g5")
    assert run.returncode == 0, run.stderr
    ((body,),) = workspace.query("SELECT body FROM shown_texts WHERE body LIKE 'delivered, %'")
    assert not any(name in body for name in ("KINDLM_URL", "KINDLM_TOKEN", "KINDLM_LEASE"))


def test_warnings_of_workers_are_shown_where_colours_are_forced(
    workspace: Workspace, server: LoopbackServer
) -> None:
    (workspace.root / "agent.py").write_text('print(\'{"text": "delivered"}\')\n')
    agent = {"id": "a", "adapter": "subprocess", "command": "python agent.py"}
    write_orders(workspace, server, [order("k0", judged=False)], agents=[agent], models=[])
    run = workspace.run("test", "--workers", "1", "--max-cost", "1", FORCE_COLOR="1")
    assert "The cost limit cannot be enforced" in run.stderr


def test_ctrl_c_ends_all_workers_and_says_how_to_go_on(
    workspace: Workspace, server: LoopbackServer, forks: list[Started]
) -> None:
    write(workspace, server, 2)
    arrived = hold(server, "k0", "k1")

    def interrupt() -> None:
        arrived()
        os.kill(os.getpid(), signal.SIGINT)

    with beside(interrupt):
        run = workspace.run("test", "--workers", "2", "--run-group", "g3")
    assert run.returncode == 1
    assert "Ctrl-C: finishing running executions" in run.stderr
    assert "Next: kindlm test --resume g3" in run.stdout
    assert len(forks) == 2
    assert all(fork.poll() is not None for fork in forks)


def test_a_group_that_has_spent_its_money_says_that_it_needs_more(
    workspace: Workspace, server: LoopbackServer
) -> None:
    prices = {"gpt-4o": {"input": 1, "output": 1}}
    write_orders(workspace, server, [order(f"k{n}", judged=False) for n in range(5)], prices=prices)
    stopped = workspace.run("test", "--workers=1", "--run-group=g 8", "--max-cost=1e-9")
    assert stopped.returncode == 1
    assert "Next: kindlm test --resume 'g 8' --max-cost MORE" in stopped.stdout
    shown = workspace.run("show", "g 8")
    assert "is not here" in shown.stdout
    assert "if they ran elsewhere, else kindlm test --resume 'g 8'" in shown.stdout


def test_workers_share_a_rate_and_record_the_whole_one_for_a_resumed_group(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order(f"k{n}", judged=False, repeat=2) for n in range(2)])
    run = workspace.run("test", "--workers", "2", "--max-rpm", "120")
    assert run.returncode == 0, run.stderr
    recorded = "SELECT data ->> '$.options.max_rpm' FROM event_log WHERE type = 'run.started'"
    assert workspace.query(recorded) == [(120.0,), (120.0,)]
    apart = """
        SELECT 86400 * (julianday(max(requested_at)) - julianday(min(requested_at)))
          FROM provider_calls GROUP BY run"""
    assert all(seconds > 0.9 for (seconds,) in workspace.query(apart))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0"], "--workers '0' is"),
        (["--workers", "2", "--failed"], "--workers cannot be combined with --failed"),
    ],
)
def test_what_workers_cannot_do_is_refused_before_any_call(
    workspace: Workspace, server: LoopbackServer, options: list[str], message: str
) -> None:
    write(workspace, server, 2)
    refused = workspace.run("test", *options)
    assert refused.returncode == 1
    assert message in refused.stderr
    assert not server.requests


def test_a_history_that_cannot_be_written_is_named_and_an_empty_file_becomes_one(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write(workspace, server, 1)
    workspace.database.parent.mkdir(exist_ok=True)
    # What a run leaves that was killed as it made its history.
    workspace.database.touch()
    run = workspace.run("test", "--workers", "1")
    assert run.returncode == 0, run.stderr
    other = workspace.root / "other.db"
    other.write_text("no history")
    with mounted(workspace.root / "disk", "64k") as folder:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        for database in (other, folder / "new.db"):
            refused = workspace.run("test", "--workers", "1", "--db", str(database))
            assert refused.returncode == 1
            assert "The history cannot be opened" in refused.stderr
            assert "kindlm itself failed" not in refused.stderr


def test_a_program_on_a_fixed_port_is_not_started_twice(
    workspace: Workspace, server: LoopbackServer
) -> None:
    serve = [{"name": "shop", "command": "python shop.py", "ready": "http://localhost:8123/up"}]
    write_orders(workspace, server, [order("k0", judged=False)], serve=serve)
    refused = workspace.run("test", "--workers", "2")
    assert refused.returncode == 1
    assert "Service 'shop' of suite 'orders' answers at a fixed port" in refused.stderr
    assert "{{serve.shop.port}}" in refused.stderr


def test_a_suite_that_cannot_be_loaded_fails_as_it_does_without_workers(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0", judged=False, nonsense=1)])
    failed = workspace.run("test", "--workers", "2")
    assert failed.returncode == 1
    assert failed.stderr.count("Unknown key") == 1
    assert "1 of 1 shard" in failed.stdout


def test_a_suite_that_is_changed_meanwhile_stops_the_run_before_other_calls_are_made(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write(workspace, server, 2)
    server.use_faults([{"latencyMs": 2_000, "contains": "<k0>", "next": 1}])
    suite = workspace.root / "kindlm.yaml"
    as_it_was = suite.read_text()

    def change() -> None:
        until(lambda: asked(server)["k0", "agent"])
        suite.write_text(as_it_was.replace("k1", "k2"))

    with beside(change):
        run = workspace.run("test", "--workers", "1", "--run-group", "g6", "-j", "1")
    assert run.returncode == 1
    assert "The suites have changed since this run began" in run.stderr
    assert set(asked(server)) == {("k0", "agent")}
    suite.write_text(as_it_was)
    resumed = workspace.run("test", "--resume", "g6")
    assert resumed.returncode == 0, resumed.stderr
    assert asked(server) == {(f"k{n}", "agent"): 1 for n in range(2)}


def test_a_group_is_resumed_by_force_though_one_of_its_shards_never_began(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write(workspace, server, 2)
    first = workspace.run("test", "--shard", "1/2", "--run-group", "g7")
    assert first.returncode == 0, first.stderr
    resumed = workspace.run("test", "--resume", "g7", "--force-resume", "--workers", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert asked(server) == {(f"k{n}", "agent"): 1 for n in range(2)}
