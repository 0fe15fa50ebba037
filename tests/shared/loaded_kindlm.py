"""kindlm and pytest in processes that need not load them: forks of one that has loaded them.

Loading kindlm takes several times as long as what most tests let it do. A fork is a process like
any other: memory, folder, environment, streams, signals and exit are its own. What a fork cannot
show is how kindlm loads, and what Python decides as it starts (PYTHON*, LC_*).

Run as a program, this file is the process that is forked. All workers of a run of pytest share it.
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
import socketserver
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TextIO

import certifi

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

connection = int(sys.argv[1])
asked = socket.socket(socket.AF_UNIX)
asked.connect(ADDRESS)
told, teller = os.pipe()
request = {
    "arguments": json.loads(sys.argv[2]), "cwd": os.getcwd(), "env": dict(os.environ),
    "own_session": True, "constants": {}, "module": "kindlm.agents.python_worker",
}
content = json.dumps(request).encode()
socket.send_fds(asked, [len(content).to_bytes(4)], [teller, 1, 2, connection])
asked.sendall(content)
os.close(teller)
os.close(connection)
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
    with _locked():
        try:
            asked.connect(_ADDRESS)
        except (FileNotFoundError, ConnectionRefusedError):
            _start_forked()
            asked.connect(_ADDRESS)
    atexit.register(asked.close)
    return asked


@contextmanager
def _locked() -> Iterator[None]:
    """Let no other worker begin or end the process that is forked meanwhile."""
    with Path(__file__).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
            [sys.executable, __file__, str(listening.fileno()), _ADDRESS],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
        )
        process.returncode = 0  # nobody waits for it: it goes on while other workers use it


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


@contextmanager
def without_dask() -> Iterator[None]:
    """Let Datasette be loaded without the arrays of Dask, which its Pint loads where it can."""
    is_loaded = "dask.array" in sys.modules
    if not is_loaded:
        sys.modules["dask.array"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if not is_loaded:
            del sys.modules["dask.array"]


def wait_for_no_disk() -> None:
    """Let histories opened from here on skip what only a power cut needs: SQLite's fsyncs.

    They take a fifth of the time of most commands. Processes started anew still wait for the disk.
    """
    from kindlm_store import EventLog

    EventLog.open.__func__.__kwdefaults__["synchronous"] = "OFF"  # type: ignore[attr-defined]


def copy_new_histories() -> None:
    """Let a new history be a copy of an empty one: to make its tables takes long.

    Processes started anew make them, and so do tests of the store with projections of their own.
    """
    from kindlm.projections import PROJECTIONS
    from kindlm_store import EventLog

    make: Any = EventLog.open
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kindlm.db"
        make(file, projections=PROJECTIONS).close()
        empty = file.read_bytes()

    def open_copy(
        _: type[EventLog], path: str | os.PathLike[str], *, projections: Any = (), **options: Any
    ) -> Any:
        if projections is PROJECTIONS:
            # What cannot be written is reported by the store.
            with suppress(OSError):
                _put(Path(path), empty)
        return make(path, projections=projections, **options)

    EventLog.open = classmethod(open_copy)  # type: ignore[method-assign, assignment]


def _put(path: Path, content: bytes) -> None:
    """Write a file if there is none, at once as a whole."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(content)
        os.link(part, path)
    finally:
        part.unlink(missing_ok=True)


def trust_no_authority() -> None:
    """Let clients of HTTP leave the certificates of authorities unread: 25 ms for each client.

    No server of a test has one of these. Certificates that tests name are read.
    """
    read = ssl.SSLContext.load_verify_locations
    of_authorities = {certifi.where(), *ssl.get_default_verify_paths(), None}

    def load(
        self: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None
    ) -> None:
        if cadata is not None or not {cafile, capath} <= of_authorities:
            read(self, cafile, capath, cadata)

    ssl.SSLContext.load_verify_locations = load  # type: ignore[method-assign]


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

    for name in (None, *app._LOADABLE):
        app._make_command(name)
    published._long_schema()
    secrets._vocabulary()
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
    packages.installed.cache_clear()
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
    with _locked():
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
    if module == "kindlm.agents.python_worker":
        sys.path[:] = arguments
        sys.stdout, sys.stderr = _unbuffered(sys.stdout, 1), _unbuffered(sys.stderr, 2)
        connection = os.dup(0)
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        importlib.import_module(module).main(connection)
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
