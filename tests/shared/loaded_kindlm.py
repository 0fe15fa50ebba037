"""kindlm and pytest in processes that need not load them: forks of one that has loaded them.

Loading kindlm takes several times as long as what most tests let it do. A fork is a process like
any other: memory, folder, environment, streams, signals and exit are its own. What a fork cannot
show is how kindlm loads, and what Python decides as it starts (PYTHON*, LC_*).
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TextIO

import fork_server

_LOCK: Final = threading.Lock()


_RUN: Final = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone-{os.getpid()}")


_ADDRESS: Final = f"{tempfile.gettempdir()}/kindlm-{_RUN}"
"""Where a run of pytest asks for forks."""


class Started:
    """A command line that was started, with what tests need of `subprocess.Popen`.

    `stdout` and `stderr` are read from where they are pipes, and None where they are not.
    """

    def __init__(self, args: Sequence[str], told: int, stdout: int | None, stderr: int | None):
        self.args = list(args)
        self.returncode: int | None = None
        self.stdout, self.stderr = (
            None if reader is None else os.fdopen(reader, encoding="utf-8")
            for reader in (stdout, stderr)
        )
        # Whether there is something to read is asked of the pipe: nothing may wait in a buffer.
        self._told = os.fdopen(told, "rb", buffering=0)
        self._texts: list[Future[str] | None] = []
        self.pid = int(self._told.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, the negative number of a signal, or None if it has not ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            with self._told:
                self.returncode = int(self._told.readline())
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Read what it writes until its end; it may be called again after a timeout."""
        ends = None if timeout is None else time.monotonic() + timeout

        def left() -> float | None:
            return None if ends is None else max(0, ends - time.monotonic())

        self._texts = self._texts or [_reading(each) for each in (self.stdout, self.stderr)]
        try:
            texts = [None if text is None else text.result(left()) for text in self._texts]
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
        self.wait(left())
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by a signal that it cannot handle."""
        self.send_signal(signal.SIGKILL)


def _reading(stream: TextIO | None) -> Future[str] | None:
    """Read a stream to its end in a thread of its own, and close it."""
    if stream is None:
        return None
    text: Future[str] = Future()

    def read() -> None:
        try:
            with stream:
                text.set_result(stream.read())
        except Exception as error:  # noqa: BLE001 - whoever waits for the text gets it
            text.set_exception(error)

    threading.Thread(target=read, daemon=True).start()
    return text


def start(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    own_session: bool = False,
    grace_polls: int | None = None,
    constants: Mapping[str, Any] | None = None,
    module: str = "kindlm",
) -> Started:
    """Start a command line, as `subprocess.Popen` does with `python -m MODULE`, such as kindlm.

    A stream is a pipe, a descriptor, or `subprocess.DEVNULL`. With `own_session` what it sends to
    its process group reaches nobody else. With `grace_polls` it looks ten times a second whether
    code of a user holds it up, and lets it do so for that many looks after a signal. Constants of
    kindlm, such as `kindlm.guard._POLL_S`, have other values in it.
    """
    if grace_polls is not None:
        constants = {"kindlm.guard._POLL_S": 0.1, "kindlm.guard._GRACE_POLLS": grace_polls}
    request = {
        "arguments": list(arguments),
        "cwd": str(cwd),
        "env": dict(env),
        "own_session": own_session,
        "constants": dict(constants or {}),
        "module": module,
    }
    told, *streams = (_opened(each) for each in (subprocess.PIPE, stdout, stderr))
    _ask(request, [writer for _, writer in (told, *streams)])
    assert told[0] is not None
    return Started(arguments, told[0], *(reader for reader, _ in streams))


def _opened(stream: int) -> tuple[int | None, int]:
    """Return the end to read from, if a stream is read from here, and the end to write to."""
    if stream == subprocess.PIPE:
        return os.pipe()
    if stream == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_WRONLY)
    return None, os.dup(stream)


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    own_session: bool = False,
    grace_polls: int | None = None,
    module: str = "kindlm",
) -> subprocess.CompletedProcess[str]:
    """Run a command line, as `subprocess.run` does with `python -m MODULE`; see `start`.

    Raises:
        subprocess.TimeoutExpired: if it does not end in time; it is killed then.
    """
    process = start(
        arguments,
        cwd=cwd,
        env=env,
        own_session=own_session,
        grace_polls=grace_polls,
        module=module,
    )
    try:
        texts = process.communicate(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise subprocess.TimeoutExpired(
            list(arguments), timeout_s, *process.communicate()
        ) from None
    return subprocess.CompletedProcess(list(arguments), process.wait(), *texts)


@contextmanager
def command() -> Iterator[Path]:
    """Return a folder for the PATH of programs: its `kindlm` is run by forks, too."""

    class Asked(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            size, (out, err), _, _ = socket.recv_fds(self.request, 4, 2)
            asked = json.loads(self.request.recv(int.from_bytes(size), socket.MSG_WAITALL))
            process = start(**asked | {"cwd": Path(asked["cwd"])}, stdout=out, stderr=err)
            for stream in (out, err):
                os.close(stream)
            self.request.sendall(f"{process.wait()}\n".encode())

    # Not in a folder of the test: what a socket is called may not be long.
    with TemporaryDirectory() as folder:
        address = f"{folder}/asked"
        program = Path(folder) / "kindlm"
        program.write_text(f"#!{sys.executable} -IS\nADDRESS = {address!r}\n{_CLIENT}")
        program.chmod(0o755)
        with socketserver.ThreadingUnixStreamServer(address, Asked) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            yield Path(folder)
            server.shutdown()


def fork_agents() -> None:
    """Fork the processes of agents in Python: the command is one that asks for a fork.

    Processes that are forks themselves start those of their agents anew.
    """
    from kindlm.agents import python_processes

    worker: Any = python_processes.WorkerProcess
    begin = worker.start

    async def start(environ: Mapping[str, str], redact: Any) -> Any:
        _forked()
        return await begin(environ, redact)

    worker.start = start
    python_processes._START = f"ADDRESS = {_ADDRESS!r}\n{_AGENT}"


_AGENT: Final = """
import json, os, signal, socket, sys

asked = socket.socket(socket.AF_UNIX)
asked.connect(ADDRESS)
told, teller = os.pipe()
request = {
    "arguments": json.loads(sys.argv[1]), "cwd": os.getcwd(), "env": dict(os.environ),
    "own_session": True, "constants": {}, "module": "kindlm.agents.python_worker",
}
content = json.dumps(request).encode()
socket.send_fds(asked, [len(content).to_bytes(4)], [teller, 1, 2, 0])
asked.sendall(content)
os.close(teller)
os.close(0)
os.close(1)
answers = os.fdopen(told)
fork = int(answers.readline())

def to_all(number, _=None):
    try:
        os.killpg(fork, number)
    except ProcessLookupError:
        pass

signal.signal(signal.SIGTERM, to_all)
code = int(answers.readline())
to_all(signal.SIGKILL)  # what the agent has left behind
if code < 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


_CLIENT: Final = """
import json, os, socket, sys

asked = socket.socket(socket.AF_UNIX)
asked.connect(ADDRESS)
request = {"arguments": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}
content = json.dumps(request).encode()
socket.send_fds(asked, [len(content).to_bytes(4)], [1, 2])
asked.sendall(content)
sys.exit(int(asked.makefile().readline()))
"""


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
    """Connect to the process that is forked; the first to ask starts it, the last one ends it."""
    asked = socket.socket(socket.AF_UNIX)
    with fork_server.locked():
        try:
            asked.connect(_ADDRESS)
        except (FileNotFoundError, ConnectionRefusedError):
            _start_forked()
            asked.connect(_ADDRESS)
    atexit.register(asked.close)
    return asked


def _start_forked() -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    # A process with threads cannot be forked safely, also if numpy started them.
    kept |= {"OPENBLAS_NUM_THREADS": "1"}
    Path(_ADDRESS).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(_ADDRESS)
        listening.listen()
        # With none of our other descriptors: it would keep open what others read to its end.
        process = subprocess.Popen(
            [sys.executable, fork_server.__file__, str(listening.fileno()), _ADDRESS],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
        )
        process.returncode = 0  # nobody waits for it: it goes on while other workers use it
