"""Ctrl-C and SIGTERM at every stage of a run: what there is is told, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from checked_server import LoopbackServer
from loaded_kindlm import Started
from orders import SCRIPT, Silent, asked, hold, order, serve_orders, write_orders
from processes import assert_ended, started_pids
from workspace import Workspace, interrupt, signal_twice, until

PROGRAM = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}")
if "--ready" in sys.argv:
    print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_orders() as server:
        yield server


def assert_stopped(workspace: Workspace, process: Started, told: tuple[str, str]) -> dict[str, Any]:
    """It ended with 1, said how the run is finished, and the run can be; return its report."""
    stdout, stderr = told
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    ((run, ended),) = workspace.query("SELECT id, ended FROM runs")
    assert ended == "interrupted"
    assert "INTERRUPTED" in stdout
    assert f"kindlm test --resume {run}" in stdout
    verified = workspace.run("verify")
    assert verified.returncode == 0, verified.stdout
    report: dict[str, Any] = json.loads(workspace.run("report", "--format", "json").stdout)
    return report


def finish(workspace: Workspace, tests: int) -> None:
    report = workspace.report("--resume")
    assert report["run"]["status"] == "passed"
    assert report["summary"]["executions"] == {
        "total": tests,
        "passed": tests,
        "failed": 0,
        "errored": 0,
        "skipped": 0,
    }


@pytest.mark.parametrize(("asks", "number"), [("agent", signal.SIGINT), ("judge", signal.SIGTERM)])
def test_a_second_signal_ends_what_is_in_flight(
    workspace: Workspace, server: LoopbackServer, asks: str, number: int
) -> None:
    write_orders(workspace, server, 6)
    held = hold(server, "k2", asks=asks)
    process = workspace.start("test", "-j", "1")
    held()
    report = assert_stopped(workspace, process, interrupt(process, number, twice=True))
    assert report["summary"]["executions"]["passed"] == 2
    assert "4 of 6 executions did not finish" in workspace.run("show").stdout
    finish(workspace, 6)
    assert asked(server)["k0", "agent"] == asked(server)["k0", "judge"] == 1


def test_what_is_in_flight_gets_its_grace(workspace: Workspace, server: LoopbackServer) -> None:
    """It is answered after the signal, and counts."""
    write_orders(workspace, server, 6)
    server.use_faults([{"latencyMs": 1_000, "contains": "<k2>", "asks": "agent", "next": 1}])
    process = workspace.start("test", "-j", "1")
    until(lambda: asked(server)["k2", "agent"])
    report = assert_stopped(workspace, process, interrupt(process, signal.SIGTERM, twice=False))
    assert report["summary"]["executions"]["passed"] == 3
    finish(workspace, 6)
    assert asked(server)["k2", "agent"] == 1


@pytest.mark.parametrize("judging", [False, True])
def test_a_long_retry_after_is_not_waited_for(
    workspace: Workspace, server: LoopbackServer, judging: bool
) -> None:
    """One waits out its Retry-After, the others for the pace that it has stopped."""
    write_orders(workspace, server, 6)
    asks = "judge" if judging else "agent"
    server.use_faults([{"status": 429, "retryAfter": 60, "contains": "<k1>", "asks": asks}])
    process = workspace.start("test", "-j", "3")
    until(lambda: failed_calls(workspace))
    told = interrupt(process, signal.SIGINT, twice=True)
    server.use_script(SCRIPT)
    report = assert_stopped(workspace, process, told)
    assert report["summary"]["executions"]["errored"] == 0
    finish(workspace, 6)


def failed_calls(workspace: Workspace) -> int:
    if not workspace.database.exists():
        return 0
    with suppress(sqlite3.Error):
        return int(
            workspace.query("SELECT count(*) FROM provider_calls WHERE status='failed'")[0][0]
        )
    return 0


@pytest.mark.parametrize("ready", [True, False])
def test_programs_that_are_served_end_with_the_run(
    workspace: Workspace, server: LoopbackServer, ready: bool
) -> None:
    """While they start, and while the tests run; with the children that they started."""
    (workspace.root / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = ["python", "program.py", *(["--ready"] if ready else [])]
    serve = [{"name": "side", "command": command, "ready": {"line": "ready"}}]
    write_orders(workspace, server, 3, serve=serve)
    held = hold(server, "k1")
    process = workspace.start("test", "-j", "1")
    pids = workspace.root / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    if ready:
        held()
    told = interrupt(process, signal.SIGTERM, twice=ready)
    assert_ended(started_pids(workspace.root))
    assert_stopped(workspace, process, told)


def test_a_command_under_test_ends_with_the_run(
    workspace: Workspace, server: LoopbackServer
) -> None:
    (workspace.root / "program.py").write_text(PROGRAM, encoding="utf-8")
    slow = {
        "name": "slow",
        "command": "python program.py",
        "expect": {"output": {"contains": ["x"]}},
    }
    write_orders(workspace, server, [slow])
    process = workspace.start("test")
    pids = workspace.root / "pids"
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    told = interrupt(process, signal.SIGINT, twice=True)
    assert_ended(started_pids(workspace.root))
    assert_stopped(workspace, process, told)


def test_connections_are_closed_when_calls_are_cut_off(workspace: Workspace) -> None:
    """Seen from the other side of a call that never gets its answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        write_orders(workspace, Silent(url), 2)
        process = workspace.start("test", "-j", "1", "--exit-codes", "pytest")
        connection, _ = listening.accept()
        with connection:
            assert b"<k0>" in received(connection)
            interrupt(process, signal.SIGINT, twice=True)
            connection.settimeout(10)
            assert connection.recv(1) == b""
    assert process.returncode == 2


def received(connection: Any) -> bytes:
    data = b""
    while b"<k0>" not in data:
        data += connection.recv(65_536)
    return data


def test_a_signal_while_the_program_starts_shows_no_traceback(
    workspace: Workspace, server: LoopbackServer
) -> None:
    """From the moment that its own code is loaded; where that is, the process tells itself."""
    write_orders(workspace, server, 1)
    stages = [
        (signal.SIGTERM, "kindlm.cli.app"),
        (signal.SIGINT, "typer"),
        (signal.SIGTERM, "kindlm.cli.commands.test_run"),
        (signal.SIGINT, "kindlm.engine.runner"),
    ]
    script = (
        "import os, signal, sys\n"
        "number, module = int(sys.argv[1]), sys.argv[2]\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == module:\n"
        "            os.kill(os.getpid(), number)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from kindlm.__main__ import main\n"
        "sys.argv = ['kindlm', 'test']\n"
        "main()\n"
    )
    (workspace.root / "stage.py").write_text(script, encoding="utf-8")
    for number, stage in stages:
        done = subprocess.run(
            [*workspace.command()[:1], "stage.py", str(int(number)), stage],
            cwd=workspace.root,
            env=workspace.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1, (stage, done.stderr)
        assert "Traceback" not in done.stderr, stage


def test_a_signal_while_the_report_is_written_leaves_the_run_finished_and_the_report_whole(
    workspace: Workspace, server: LoopbackServer
) -> None:
    text = "delivered " * 2_000
    server.use_script({"rules": [{"name": "answer", "when": {}, "reply": {"text": text}}]})
    params = {"maxTokens": 100_000}
    models = [{"id": "gpt", "provider": "openai", "model": "gpt-4o", "params": params}]
    tests = [order(f"k{n}", judged=False) for n in range(20)]
    write_orders(workspace, server, tests, models=models)
    process = workspace.start("test", "--no-progress", "--reporter", "json")
    assert process.stdout is not None
    # The report has begun, and is larger than the pipe: it waits for somebody to read it.
    assert process.stdout.read(1) == "{"
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in stderr
    assert stdout.endswith('"errors": []\n}\n')
    assert workspace.query("SELECT ended, passed FROM runs") == [("finished", 1)]


def test_a_run_whose_history_is_busy_is_interrupted_once_it_can_be_written(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 6)
    held = hold(server, "k1")
    process = workspace.start("test", "-j", "1")
    held()
    with closing(sqlite3.connect(workspace.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        signal_twice(process, signal.SIGINT)
        assert workspace.query("SELECT ended FROM runs") == [(None,)]
        other.execute("ROLLBACK")
    assert_stopped(workspace, process, process.communicate(timeout=60))
    finish(workspace, 6)
