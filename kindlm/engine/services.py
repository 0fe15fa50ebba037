"""Starts and ends the programs of `serve:`.

Each gets a free port, as `PORT` in its environment and as `{{serve.NAME.port}}` in its command.
Each has its own process group, which ends with the run.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from kindlm.engine import FieldLog
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.programs import LastOutput, Program, start_program
from kindlm.suite import Service
from kindlm.trace_context import UNTRACED
from kindlm.values import filled
from kindlm.wording import last_words

_log = FieldLog(__name__)

_TRIES = 5
_LAST_WORDS_S = 0.5
_POLL_S = 0.02
_ANSWER_S = 2.0
_THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "::1"})


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
        result: Result[dict[str, int]] = Ok(ports)
        for service in services:
            started = await _start(service, ports, environ(service))
            if isinstance(started, Err):
                result = started
                break
            running = started.value
            stack.push_async_callback(running.program.end)
            watch = asyncio.create_task(_watch(running, ended))
            stack.callback(watch.cancel)
            watched.append((running, watch))
            ports[service.name] = running.port
            _log.info("The service is ready", service=service.name, port=running.port)
        yield result
        for running, watch in watched:
            if running.has_ended:
                await watch


async def _watch(running: _Running, ended: Callable[[KindlmError], None]) -> None:
    """Report the end of a program, and end the processes that it left behind."""
    await running.program.process.wait()
    # They may keep its output open, but its own last words are there already.
    await running.program.read_on(_LAST_WORDS_S)
    ended(running.ended("while the tests ran"))
    await running.program.end_group()


class _Running(LastOutput):
    """The program of a service with its output: knows when it is ready, and why it is not.

    Its `service` has the ports in place of placeholders. `not_ready` is what the `ready` URL did
    last instead of answering with success.
    """

    program: Program

    def __init__(self, service: Service, port: int) -> None:
        super().__init__()
        self.service = service
        self.port = port
        self.not_ready: str | None = None
        self._has_ready_line = False

    def add(self, chunk: bytes) -> None:
        """Add output, and look for the ready line in it."""
        line = (self.service.ready_line or "").encode()
        self._has_ready_line = self._has_ready_line or line in self.data + chunk
        super().add(chunk)

    @property
    def has_ended(self) -> bool:
        return self.program.process.returncode is not None

    async def is_ready(self) -> bool:
        """Return True once the service is ready, False when it has ended before."""
        url = self.service.ready_url
        while not self.has_ended:
            is_ready = self._has_ready_line
            if self.service.ready_line is None:
                self.not_ready = url and await _why_not(url)
                is_ready = self.not_ready is None
            if is_ready:
                break
            await asyncio.sleep(_POLL_S)
        return not self.has_ended

    def ended(self, when: str) -> KindlmError:
        """Return the error of a service that ended by itself."""
        hint = f"Check serve.{self.service.name}.command."
        return self.failed(f"ended {when} (exit code {self.program.process.returncode}).", hint)

    def failed(self, message: str, hint: str) -> KindlmError:
        """Return an error of the service, with the end of its output as a hint."""
        output = last_words(self.text.splitlines())
        message = f"Service {self.service.name!r} {message}"
        hint = f"Its output: {output}" if output else hint
        return KindlmError(ErrorCode.CONFIG_FILE_REF_ERROR, message, hint)


async def _start(
    service: Service, ports: Mapping[str, int], environ: Mapping[str, str]
) -> Result[_Running]:
    """Start one service, again with another port if it ends because its port was taken."""
    for _ in range(_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        values = {f"serve.{name}.port": str(each) for name, each in ports.items()}
        values |= {f"serve.{service.name}.port": str(port)}
        values["gateway"] = environ.get("KINDLM_GATEWAY", "")
        running = _Running(_with_values(service, values), port)
        command, folder = running.service.command, Path(service.directory)
        own = {**running.service.env, "PORT": str(port), "KINDLM_SERVICE": "1"}
        # Nothing is written to its input, which closes when kindlm ends: programs can notice that.
        starting = start_program(command, folder, {**environ, **own}, running.add)
        try:
            running.program = await starting
        except OSError as error:
            hint = f"Check serve.{service.name}.command; it runs in {service.directory}"
            message = f"could not be started: {error.strerror}: {command[0]}"
            return Err(running.failed(message, hint))
        is_ready = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(service.timeout_ms / 1000):
                    is_ready = await running.is_ready()
            if not is_ready:
                await running.program.drained()
        finally:
            if not is_ready:
                await running.program.end()
        if is_ready:
            return Ok(running)
        if is_ready is None:
            parts = urlsplit(running.service.ready_url or "")
            # Without credentials, which may be before the host or in the query.
            address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            why = f": {address} {running.not_ready}" if running.not_ready else ""
            message = f"was not ready after {service.timeout_ms} ms{why}."
            hint = f"Check serve.{service.name}.ready, or raise its timeoutMs."
            return Err(running.failed(message, hint))
        if not _is_taken(port):
            break
    return Err(running.ended("before it was ready"))


def _with_values(service: Service, values: Mapping[str, str]) -> Service:
    """Return a service with its placeholders filled in."""

    def fill(text: str) -> str:
        for name, value in values.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        return text

    bound: Service = filled(service, fill)
    return bound


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        # As for most servers, connections that have just ended do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


async def _why_not(url: str) -> str | None:
    """Return what a URL does instead of answering with success, None if it does."""
    import aiohttp  # few services need this slow import

    try:
        uses_proxies = urlsplit(url).hostname not in _THIS_MACHINE
        async with (
            asyncio.timeout(_ANSWER_S),
            aiohttp.ClientSession(trust_env=uses_proxies) as session,
            session.get(url, headers=UNTRACED) as answer,
        ):
            return None if answer.status < 300 else f"answers {answer.status}"
    except (aiohttp.ClientError, OSError, ValueError):  # also TLS, or redirects without an end
        return "gives no answer over HTTP"
