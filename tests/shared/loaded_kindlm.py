"""kindlm in processes that need not load it: forks of one process that has loaded it already.

Loading kindlm takes several times as long as what most tests let it do. A fork is a process like
any other: memory, folder, environment, streams, signals and exit are its own. What a fork cannot
show is how kindlm loads, and what Python decides as it starts (PYTHON*, LC_*).

Run as a program, this file is the process that is forked.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TextIO

__all__ = ["run"]

_LOADED: Final = tuple(
    f"kindlm.{name}" for name in ("cli", "checks", "config", "history", "reports")
)
"""Packages whose modules are loaded, with all that these import."""

_ALSO_LOADED: Final = (
    "kindlm.providers.openai_client",
    "httpcore2",
    "jsonschema",
    "genai_prices.data",
    "genai_prices.decompose",
)
"""What kindlm imports once a run needs it, if most tests do."""

_LOCK: Final = threading.Lock()


def run(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command line, as `subprocess.run` does with `python -m kindlm`.

    Raises:
        subprocess.TimeoutExpired: if it does not end in time; it is killed then.
    """
    request = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}
    pipes = [os.pipe() for _ in range(3)]
    _ask(request, [writer for _, writer in pipes])
    told, stdout, stderr = (os.fdopen(reader, encoding="utf-8") for reader, _ in pipes)
    with told, stdout, stderr, ThreadPoolExecutor(2) as readers:
        killed = threading.Event()
        killer = threading.Timer(timeout_s, _kill, (int(told.readline()), killed))
        killer.start()
        out, err = readers.submit(stdout.read), readers.submit(stderr.read)
        code = int(told.readline())
        killer.cancel()
        texts = out.result(), err.result()
    if killed.is_set():
        raise subprocess.TimeoutExpired(list(arguments), timeout_s, *texts)
    return subprocess.CompletedProcess(list(arguments), code, *texts)


def _kill(pid: int, killed: threading.Event) -> None:
    killed.set()
    os.kill(pid, signal.SIGKILL)


def _ask(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Have a process forked; the streams are handed over."""
    content = json.dumps(request).encode()
    try:
        with _LOCK:
            forked = _forked()
            socket.send_fds(forked, [len(content).to_bytes(4)], streams)
            forked.sendall(content)
    finally:
        for stream in streams:
            os.close(stream)


@cache
def _forked() -> socket.socket:
    """Start the process that is forked; it ends with this one."""
    ours, its = socket.socketpair()
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, __file__, str(its.fileno())],
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _load() -> None:
    for name in _LOADED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            _load_module(module.name)
    for name in _ALSO_LOADED:
        _load_module(name)
    assert threading.active_count() == 1, "a process with threads cannot be forked safely"
    # What is loaded is never collected: looking at it would copy its memory into each fork.
    gc.collect()
    gc.freeze()


def _load_module(name: str) -> None:
    # What is broken fails in the tests of the commands that need it, not in all of them.
    with suppress(Exception):
        importlib.import_module(name)


def _next_request(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    size, streams, _, _ = socket.recv_fds(requests, 4, 3)
    if not size:
        return None
    content = requests.recv(int.from_bytes(size), socket.MSG_WAITALL)
    request: dict[str, Any] = json.loads(content)
    return request, streams


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; return in each fork with what it has to do, and else at the end."""
    # Of the processes that wait for forks nobody needs to know how they ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (following := _next_request(requests)) is not None:
        request, (told, *streams) = following
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _fork_and_tell(told, streams)
            return request
        for stream in (told, *streams):
            os.close(stream)
    return None


def _fork_and_tell(told: int, streams: Sequence[int]) -> None:
    """Return in a fork that has the streams; tell its id, and once it has ended its exit code."""
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        os.write(told, f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(told, f"{code}\n".encode())
        os._exit(0)
    os.close(told)
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    # As Python makes them where it starts with pipes.
    sys.stdout = _writing(sys.stdout, 1, line_buffering=False)
    sys.stderr = _writing(sys.stderr, 2, line_buffering=True)


def _writing(like: TextIO, number: int, *, line_buffering: bool) -> TextIO:
    raw = io.FileIO(number, "w", closefd=False)
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, like.encoding, like.errors, line_buffering=line_buffering)


def _become(arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
    """Be `python -m kindlm`."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.path[0] = cwd
    sys.argv = ["kindlm", *arguments]
    runpy.run_module("kindlm", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _load()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _become(**asked)
