"""Starts and ends the programs of `serve:`.

Each gets a free port, as `PORT` in its environment and as `{{serve.NAME.port}}` in its command.
Each has its own process group, which ends with the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kindlm.dataclass import dataclass
from kindlm.engine import FieldLog
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.programs import LastOutput, Program, start_program
from kindlm.suite import Service
from kindlm.trace_context import UNTRACED
from kindlm.wording import last_words

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

_log = FieldLog(__name__)

_TRIES = 5
_LAST_WORDS_S = 0.5
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
            stack.push_async_callback(running.program.end)
            watch = asyncio.create_task(_watch(running, ended))
            stack.callback(watch.cancel)
            watched.append((running, watch))
            ports[service.name] = running.port
            _log.info("The service is ready", service=service.name, port=running.port)
        yield failure or Ok(ports)
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


class _Output(LastOutput):
    """The end of a service's output, and whether its ready line was in the output."""

    def __init__(self, ready_line: str) -> None:
        super().__init__()
        self._ready_line = ready_line.encode()
        self.has_ready_line = False

    def add(self, chunk: bytes) -> None:
        self.has_ready_line = self.has_ready_line or self._ready_line in self.data + chunk
        super().add(chunk)


@dataclass(eq=False, slots=True)
class _Running:
    """A started program: knows when it is ready, and why it is not.

    `answered` is what its `ready` URL did last instead of answering.
    """

    service: Service
    port: int
    program: Program
    output: _Output
    answered: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.program.process.returncode is not None

    async def is_ready(self, url: str | None) -> bool:
        """Return True once the service is ready, False when it has ended before."""
        while not self.has_ended:
            is_ready = self.output.has_ready_line
            if self.service.ready_line is None:
                self.answered = url and await asyncio.to_thread(_why_not, url)
                is_ready = self.answered is None
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
        output = last_words(self.output.text.splitlines())
        return _error(self.service, message, f"Its output: {output}" if output else hint)


async def _start(
    service: Service, ports: Mapping[str, int], environ: Mapping[str, str]
) -> Result[_Running]:
    """Start one service, again with another port if it ends because its port was taken."""
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
            if not is_ready:
                await running.program.drained()
        finally:
            if not is_ready:
                await running.program.end()
        if is_ready:
            return launched
        if is_ready is None:
            hint = f"Check serve.{service.name}.ready, or raise its timeoutMs."
            parts = urlsplit(url or "")
            # Without credentials, which may be before the host or in the query.
            address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            why = f": {address} {running.answered}" if running.answered else ""
            message = f"was not ready after {service.timeout_ms} ms{why}."
            return Err(running.failed(message, hint))
        if not _is_taken(running.port):
            break
    return Err(running.ended("before it was ready"))


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        # As for most servers, connections that have just ended do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


async def _launch(
    service: Service, ports: Mapping[str, int], environ: Mapping[str, str]
) -> Result[_Running]:
    command = [_with_ports(word, ports) for word in service.command]
    gateway = environ.get("KINDLM_GATEWAY", "")
    extra = {
        name: _with_ports(value, ports).replace("{{gateway}}", gateway)
        for name, value in service.env.items()
    }
    extra |= {"PORT": str(ports[service.name]), "KINDLM_SERVICE": "1"}
    output = _Output(_with_ports(service.ready_line or "", ports))
    # Nothing is written to its input, which closes when kindlm ends: programs can notice that.
    starting = start_program(command, Path(service.directory), {**environ, **extra}, output.add)
    try:
        program = await starting
    except OSError as error:
        message = f"could not be started: {error.strerror}: {command[0]}"
        hint = f"Check serve.{service.name}.command; it runs in {service.directory}"
        return Err(_error(service, message, hint))
    return Ok(_Running(service, ports[service.name], program, output))


_THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "::1"})


@functools.cache
def _opener(host: str | None) -> OpenerDirector:
    """Return what opens URLs of a host: through the proxy, unless it is this machine."""
    # Few services need this slow import.
    from urllib.request import ProxyHandler, build_opener

    return build_opener(*([ProxyHandler({})] if host in _THIS_MACHINE else []))


def _why_not(url: str) -> str | None:
    """Return what a URL does instead of answering with success, None if it does."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    try:
        opener = _opener(urlsplit(url).hostname)
        with opener.open(Request(url, headers=UNTRACED), timeout=2):  # noqa: S310 - the user's
            return None
    except HTTPError as error:
        return f"answers {error.code}"
    except (OSError, ValueError):
        return "does not answer"
    except HTTPException:  # such as TLS
        return "answers something that is not HTTP"


def _with_ports(text: str, ports: Mapping[str, int]) -> str:
    for name, port in ports.items():
        text = text.replace("{{serve.%s.port}}" % name, str(port))  # noqa: UP031 - braces
    return text


def _error(service: Service, message: str, hint: str) -> KindlmError:
    message = f"Service {service.name!r} {message}"
    return KindlmError(ErrorCode.CONFIG_FILE_REF_ERROR, message, hint)
