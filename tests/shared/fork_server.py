"""A process that has loaded kindlm and pytest, and forks for whoever asks it; see `loaded_kindlm`.

All workers of a run of pytest share it.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TextIO

from cheap_settings import copy_new_histories, trust_no_authority, wait_for_no_disk, without_dask

_LOADED: Final = tuple(
    f"kindlm.{name}"
    for name in (
        "agents",
        "checks",
        "cli",
        "config",
        "formats",
        "history",
        "providers",
        "pytest_plugin",
        "reports",
    )
)
"""Packages whose modules are loaded, with all that these import."""


_ALSO_LOADED: Final = (
    "datasette.app",
    "dotenv",
    "genai_prices.data",
    "genai_prices.decompose",
    "genai_prices.validation",
    "httpcore2",
    "openai.resources",
    "sqlite_utils",
    "typer._adapters",
    "typer._click.decorators",
    "xdist.dsession",
    "xdist.plugin",
)
"""What kindlm imports once a run needs it, if most tests do."""


@contextmanager
def locked() -> Iterator[None]:
    """Let no other worker begin or end the process that is forked meanwhile."""
    with Path(__file__).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _load() -> None:
    gc.disable()  # what is loaded is no garbage, and looked at again and again
    for name in _LOADED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            _load_module(module.name)
    from _pytest.config import default_plugins

    from kindlm.json_schema import load_jsonschema

    load_jsonschema()
    with without_dask():
        for name in (*_ALSO_LOADED, *(f"_pytest.{plugin}" for plugin in default_plugins)):
            _load_module(name)
    wait_for_no_disk()
    copy_new_histories()
    trust_no_authority()
    _compute()
    _run_once()
    assert threading.active_count() == 1, "a process with threads cannot be forked safely"
    # What is loaded is never collected: looking at it would copy its memory into each fork.
    gc.collect()
    gc.freeze()
    gc.enable()


def _load_module(name: str) -> None:
    # What is broken fails in the tests of the commands that need it, not in all of them.
    with suppress(Exception):
        importlib.import_module(name)


def _compute() -> None:
    """Compute what kindlm computes once in a process, and is the same in all of them."""
    from kindlm import http_client
    from kindlm.cli import app
    from kindlm.config import published
    from kindlm.providers import sdk_transport
    from kindlm.recording import secrets

    for name in ("", *app.COMMANDS):
        app.load_command(name)
    published.long_schema()
    secrets.own_words()
    http_client._tls_context()
    with suppress(ImportError):
        import openai

        sdk_transport._tls_context(sdk_transport._http_library(openai))


def _run_once() -> None:
    """Run a suite, so that no fork has to compute or import what each run needs first."""
    from kindlm import packages
    from kindlm.cli.app import run
    from kindlm.testing import LoopbackServer

    kept = dict(os.environ)
    rules = [{"reply": {"text": "Delivered."}}]
    with TemporaryDirectory() as folder, LoopbackServer({"rules": rules}) as server:
        suite = Path(folder) / "kindlm.yaml"
        suite.write_text(_SUITE.format(url=server.url), encoding="utf-8")
        os.environ |= {"OPENAI_API_KEY": "not-needed", "XDG_CACHE_HOME": folder, "CI": "true"}
        with chdir(folder), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            for arguments in _COMMANDS:
                run(arguments)
    os.environ.clear()
    os.environ.update(kept)
    for group in packages._KINDS:
        packages.installed(group)
    tempfile.tempdir = None  # each fork has its own TMPDIR


_SUITE: Final = """
kindlm: 1
project: shop
suite: {{ name: orders }}
providers: {{ openai: {{ apiKeyEnv: OPENAI_API_KEY, baseUrl: "{url}/v1" }} }}
models: [{{ id: gpt, provider: openai, model: gpt-4o }}]
prompts: {{ ask: {{ user: "Where is my order?" }} }}
tests: [{{ name: status, prompt: ask, expect: {{ output: {{ contains: [delivered] }} }} }}]
"""


_COMMANDS: Final = (
    ["test", "--reporter", "terminal", "--reporter", "json=report.json"],
    ["show", "latest", "1"],
    ["verify"],
)


_FORKS: socket.socket
"""Where forks that run pytest ask for workers of pytest-xdist."""


_FORKED: socket.socket
"""Where the process that is forked hears that."""


class _Worker:
    """A worker of pytest-xdist that was forked, with what execnet needs of `subprocess.Popen`."""

    def __init__(self) -> None:
        read, stdin = os.pipe()
        stdout, write = os.pipe()
        told, teller = os.pipe()
        request = {
            "arguments": [],
            "cwd": str(Path.cwd()),
            "env": dict(os.environ),
            "own_session": False,
            "constants": {},
            "module": "execnet",
        }
        socket.send_fds(_FORKS, [json.dumps(request).encode()], [teller, write, 2, read])
        for end in (teller, write, read):
            os.close(end)
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self._told = os.fdopen(told, "rb", buffering=0)
        self.pid = int(self._told.readline())

    def wait(self) -> int:
        """Wait for its end."""
        return int(self._told.readline())

    def kill(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _fork_workers() -> None:
    """Let execnet have workers forked instead of starting them."""
    from execnet import gateway_io

    class Forked(gateway_io.Popen2IOMaster):
        def __init__(self, _: object, execmodel: Any) -> None:
            self.popen: Any = _Worker()
            ends = self.popen.stdin, self.popen.stdout
            gateway_io.Popen2IO.__init__(self, *ends, execmodel=execmodel)

    gateway_io.Popen2IOMaster = Forked  # type: ignore[misc]


def _next_request(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    if requests is _FORKED:
        whole, streams, _, _ = socket.recv_fds(requests, 1 << 18, 4)
        return json.loads(whole), streams
    size, streams, _, _ = socket.recv_fds(requests, 4, 4)
    if not size:
        return None
    content = requests.recv(int.from_bytes(size), socket.MSG_WAITALL)
    request: dict[str, Any] = json.loads(content)
    return request, streams


def _serve(listening: socket.socket, address: str) -> dict[str, Any] | None:
    """Fork for each request; return in each fork with what it has to do, and else at the end."""
    told: dict[int, int] = {}
    ended, wake = os.pipe()
    for end in (ended, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    workers: set[socket.socket] = set()
    while workers or not _is_over(listening, address):
        ready, _, _ = select.select([listening, *workers, _FORKED, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _tell_ends(told)
        if listening in ready:
            workers.add(listening.accept()[0])
        for source in (each for each in (*workers, _FORKED) if each in ready):
            if (following := _next_request(source)) is None:
                workers.remove(source)
                source.close()
                continue
            request, (teller, *streams) = following
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for requests in (listening, _FORKED, *workers):
                    requests.close()
                if request["module"] != "pytest":
                    _FORKS.close()
                for other in (ended, wake, teller, *told.values()):
                    os.close(other)
                _write_to(streams)
                return request
            told[pid] = teller
            os.write(teller, f"{pid}\n".encode())
            for stream in streams:
                os.close(stream)
    return None


def _is_over(listening: socket.socket, address: str) -> bool:
    """Return whether no worker is connecting; if so, the next one has to start another process."""
    with locked():
        if select.select([listening], [], [], 0)[0]:
            return False
        Path(address).unlink()
        return True


def _tell_ends(told: dict[int, int]) -> None:
    """Tell the exit codes of the forks that have ended."""
    while told and (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
        teller = told.pop(found[0])
        # Nobody may wait for it any more.
        with suppress(BrokenPipeError):
            os.write(teller, f"{os.waitstatus_to_exitcode(found[1])}\n".encode())
        os.close(teller)


def _write_to(streams: Sequence[int]) -> None:
    """Make these standard output, error and input, as Python does where it starts with them."""
    for number, stream in zip((1, 2, 0), streams, strict=False):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout = sys.__stdout__ = _writing(sys.stdout, 1, line_buffering=os.isatty(1))
    sys.stderr = sys.__stderr__ = _writing(sys.stderr, 2, line_buffering=True)


def _writing(like: TextIO, number: int, *, line_buffering: bool) -> TextIO:
    raw = io.FileIO(number, "w", closefd=False)
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, like.encoding, like.errors, line_buffering=line_buffering)


def _unbuffered(like: TextIO, number: int) -> TextIO:
    raw: Any = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, like.encoding, like.errors, write_through=True)


def _become(
    arguments: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    own_session: bool,
    constants: Mapping[str, Any],
    module: str,
) -> None:
    """Be `python -m kindlm`, pytest, what execnet gives its work, or a process for agents."""
    if own_session:
        os.setsid()
    for name, value in constants.items():
        owner, _, constant = name.rpartition(".")
        setattr(importlib.import_module(owner), constant, value)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.path[0] = cwd
    if any(Path(cwd).glob("*.dist-info")):
        importlib.import_module("kindlm.packages").installed.cache_clear()
    if module == "kindlm.agents.python_worker":
        sys.path[:] = arguments
        sys.stdout, sys.stderr = _unbuffered(sys.stdout, 1), _unbuffered(sys.stderr, 2)
        importlib.import_module(module).main()
        sys.exit()
    if module == "execnet":
        exec(eval(sys.stdin.readline()), {"__name__": "__main__"})  # as execnet has Python do it
        sys.exit()
    if module == "pytest":
        _fork_workers()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end(code: int | str | None) -> None:
    """End as Python does, but for taking all modules apart: that would copy their memory."""
    assert code is None or isinstance(code, int)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code or 0)


if __name__ == "__main__":
    _FORKS, _FORKED = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    _load()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    if asked is not None:
        try:
            _become(**asked)
        except SystemExit as ended:
            _end(ended.code)
