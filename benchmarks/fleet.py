"""Runs on several workers, and pushes of several clients to a history server at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import in_process, kindlm
from benchmarks.provider import provider
from benchmarks.workspaces import KEY, write_project

_LATENCY_MS = 50
_CONCURRENCY = 32
_MOST_RUNS = 200


def fleet(sizes: Sizes) -> Iterator[Figure]:
    """Yield the time of a large suite in one process and on two workers; then rates of pushes."""
    with provider(_LATENCY_MS) as server:
        for name, arguments in (("one process", ()), ("--workers 2", ("--workers", "2"))):
            walls = [_run(server.url, sizes.many, *arguments) for _ in range(sizes.long_runs)]
            yield Figure(f"wall, {sizes.many:,} tests at {_LATENCY_MS} ms, {name}", walls, "s")
    with tempfile.TemporaryDirectory() as name:
        history = Path(name) / "history.db"
        # Each run is a push, with about as many events as a worker pushes at once.
        runs = min(_MOST_RUNS, sizes.many)
        events = in_process("fleet.record", path=str(history), runs=runs, tests=sizes.many // runs)
        for clients in (1, sizes.processes):
            rates = [events / _push(history, runs, clients) for _ in range(sizes.long_runs)]
            what = "client" if clients == 1 else "clients at once"
            yield Figure(f"pushed by {clients} {what}, {events:,} events", rates, "events/s")


def record(path: str, runs: int, tests: int) -> int:
    """Record the runs to push; return the number of their events."""
    from benchmarks.recorded import record_history

    return record_history(Path(path), runs=runs, tests=tests)


def _run(url: str, tests: int, *arguments: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder, tests=tests, url=url, concurrency=_CONCURRENCY)
        return kindlm("test", *arguments, folder=folder, OPENAI_API_KEY=KEY).wall_s


def _push(history: Path, runs: int, clients: int) -> float:
    """Push all runs to an empty server, divided among the clients; return the seconds."""
    from benchmarks.recorded import run_name

    names = [run_name(number) for number in range(runs)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create = ("token", "create", "--name", "all", "--db", "team.db")
        token = kindlm(*create, folder=folder).output.strip()
        with _server(folder) as url:
            began = time.perf_counter()
            processes = [
                _start(
                    ["push", *names[client::clients], "--db", str(history)],
                    folder,
                    KINDLM_URL=url,
                    KINDLM_TOKEN=token,
                )
                for client in range(clients)
            ]
            for process in processes:
                if process.wait():
                    message = f"kindlm push ended with {process.returncode}"
                    raise RuntimeError(message)
            return time.perf_counter() - began


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    command = ["serve-history", "--db", "team.db", "--port", "0"]
    server = _start(command, folder, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().partition("/-/")[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()


def _start(
    command: Sequence[str], folder: Path, stdout: int = subprocess.DEVNULL, **environment: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kindlm", *command],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        text=True,
    )
