"""Starts and ends the programs of `serve:`.

Each gets a free port, as `PORT` in its environment and as `{{serve.NAME.port}}` in its command.
Each has its own process group, which ends with the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from kindlm.engine import FieldLog
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.suite import Service
from kindlm.trace_context import UNTRACED
from kindlm.wording import last_words

_log = FieldLog(__name__)

_TRIES = 5
_CHUNK_BYTES = 65_536
_KEPT_BYTES = 20_000
_GRACE_S = 3.0
_LAST_WORDS_S = 1.0
_POLL_S = 0.02


@asynccontextmanager
async def start_services(
    services: Sequence[Service],
    environ: Callable[[Service], Mapping[str, str]],
    ended: Callable[[KindlmError], None],
) -> AsyncIterator[Result[dict[str, int]]]:
    """Start services. Yield the port of each by name, or the error of one that did not start.

    Each gets the environment that `environ` returns, and its own `env`. All programs are ended on
    leaving the context. `ended` is called, at the latest then, for each program that ended earlier:
    otherwise, failed calls to it would look like network errors.
    """
    async with AsyncExitStack() as stack:
        watched: list[tuple[_Running, asyncio.Task[None]]] = []
        ports: dict[str, int] = {}
        failure: Err | None = None
        for service in services:
            started = await _start(service, ports, environ(service))
            if isinstance(started, Err):
                failure = started
                break
            running = started.value
            stack.push_async_callback(running.end)
            watch = asyncio.create_task(_watch(running, ended))
            stack.callback(watch.cancel)
            watched.append((running, watch))
            ports[service.name] = running.port
            _log.info("The service is ready", service=service.name, port=running.port)
        yield failure or Ok(ports)
        for running, watch in watched:
            if running.process.returncode is not None:
                await watch


async def _watch(running: _Running, ended: Callable[[KindlmError], None]) -> None:
    await running.process.wait()
    await running.drained()
    ended(running.ended("while the tests ran"))


class _Running:
    """A started program: drains its output, knows when it is ready, ends it."""

    def __init__(self, service: Service, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port
        self._service = service
        self._has_ready_line = False
        self._output = b""
        self._drain = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Read the output to its end: a program whose output is not read would block."""
        assert self.process.stdout is not None
        ready_line = (self._service.ready_line or "").encode()
        while chunk := await self.process.stdout.read(_CHUNK_BYTES):
            output = self._output + chunk
            self._has_ready_line = self._has_ready_line or ready_line in output
            self._output = output[-_KEPT_BYTES:]

    async def is_ready(self, url: str | None) -> bool:
        """Return True once the service is ready, False when it has ended before."""
        while self.process.returncode is None:
            is_ready = self._has_ready_line
            if self._service.ready_line is None:
                is_ready = url is None or await asyncio.to_thread(_answers, url)
            if is_ready:
                break
            await asyncio.sleep(_POLL_S)
        return self.process.returncode is None

    async def drained(self) -> None:
        """Wait until all output is read, but not long."""
        await asyncio.wait({self._drain}, timeout=_LAST_WORDS_S)

    async def end(self) -> None:
        """End the process group with SIGTERM, and with SIGKILL after the grace period."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), _GRACE_S)
        # The leader may have ended and left children behind.
        self._signal(signal.SIGKILL)
        await self.process.wait()
        # The last output may still be in the pipe, which an escaped child may hold open.
        await self.drained()
        self._drain.cancel()
        await asyncio.gather(self._drain, return_exceptions=True)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def ended(self, when: str) -> KindlmError:
        """Return the error of a service that ended by itself."""
        hint = f"Check serve.{self._service.name}.command."
        return self.failed(f"ended {when} (exit code {self.process.returncode}).", hint)

    def failed(self, message: str, hint: str) -> KindlmError:
        """Return an error of the service, with the end of its output as a hint."""
        output = last_words(self._output.decode("utf-8", "replace").splitlines())
        return _error(self._service, message, f"Its output: {output}" if output else hint)


async def _start(
    service: Service, ports: Mapping[str, int], environ: Mapping[str, str]
) -> Result[_Running]:
    """Start one service; a program that ends before it is ready gets another port."""
    for _ in range(_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports = {**ports, service.name: int(probe.getsockname()[1])}
        launched = await _launch(service, ports, environ)
        if isinstance(launched, Err):
            return launched
        running, is_ready = launched.value, None
        url = None if service.ready_url is None else _with_ports(service.ready_url, ports)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(service.timeout_ms / 1000):
                    is_ready = await running.is_ready(url)
        finally:
            if not is_ready:
                await running.end()
        if is_ready:
            return launched
        if is_ready is None:
            hint = f"Check serve.{service.name}.ready, or raise its timeoutMs."
            return Err(running.failed(f"was not ready after {service.timeout_ms} ms.", hint))
    return Err(running.ended("before it was ready"))


async def _launch(
    service: Service, ports: Mapping[str, int], environ: Mapping[str, str]
) -> Result[_Running]:
    command = [_with_ports(word, ports) for word in service.command]
    if command[0] in ("python", "python3"):
        command[0] = sys.executable
    gateway = environ.get("KINDLM_GATEWAY", "")
    extra = {
        name: _with_ports(value, ports).replace("{{gateway}}", gateway)
        for name, value in service.env.items()
    }
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=service.directory,
            env={**environ, **extra, "PORT": str(ports[service.name]), "KINDLM_SERVICE": "1"},
            # Never written to: it closes when kindlm ends, which programs can notice.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        message = f"could not be started: {error.strerror}: {command[0]}"
        hint = f"Check serve.{service.name}.command; it runs in {service.directory}"
        return Err(_error(service, message, hint))
    return Ok(_Running(service, process, ports[service.name]))


def _answers(url: str) -> bool:
    # Few services need this slow import.
    import urllib.error
    import urllib.request

    try:
        request = urllib.request.Request(url, headers=UNTRACED)  # noqa: S310 - the user's own URL
        with urllib.request.urlopen(request, timeout=2) as response:  # noqa: S310
            return bool(response.status < 400)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _with_ports(text: str, ports: Mapping[str, int]) -> str:
    for name, port in ports.items():
        text = text.replace("{{serve.%s.port}}" % name, str(port))  # noqa: UP031 - braces
    return text


def _error(service: Service, message: str, hint: str) -> KindlmError:
    message = f"Service {service.name!r} {message}"
    return KindlmError(ErrorCode.CONFIG_FILE_REF_ERROR, message, hint)
