"""The base of agents that are programs: options, sandboxes, and errors.

A program runs on this machine, without any isolation, or in a sandbox of Daytona. kindlm never
retries a failed program: it lost the conversation, and its work may have effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import Field

from kindlm.agents.agent_failures import SHORTEST_HIDDEN, Who
from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError
from kindlm.plugins import Adapter
from kindlm.programs import PYTHON, LastOutput, Program, start_program
from kindlm.secrecy import is_credential_name, is_ordinary, may_be_secret_name
from kindlm.section import CommandLine, FilePath, Maybe, Variables


class TooMuchOutput(Exception):  # noqa: N818 - it names what was printed
    """A program printed more than allowed."""


def how_it_ended(code: int) -> str:
    """Return how a program ended: `ended by SIGKILL`, `ended with exit code 3`."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"ended by {names.get(-code, f'signal {-code}')}"


class SandboxError(Exception):
    """A sandbox failed while a program ran in it; the message says how."""


class StartedProgram(ABC):
    """A running program, whose output is read all the time, and waits here as lines.

    `limit` is the most bytes that may wait, and `errors` collects its standard error. All methods
    raise `SandboxError` if the sandbox itself fails.
    """

    _reading: asyncio.Task[None]

    def __init__(self, limit: int, errors: LastOutput) -> None:
        self.errors = errors
        self._limit = limit
        self._waiting = bytearray()
        self._changed = asyncio.Event()

    def _read(self, reading: Coroutine[Any, Any, None]) -> None:
        """Begin to read: `reading` passes the output to `add`, and is done at its end."""
        self._reading = asyncio.create_task(reading)
        self._reading.add_done_callback(lambda _: self._changed.set())

    def add(self, chunk: bytes) -> None:
        """Add output; raises `TooMuchOutput` if more than the limit waits."""
        self._waiting += chunk
        if b"\n" in chunk:
            self._changed.set()
        if self.has_too_much:
            raise TooMuchOutput

    @property
    def has_too_much(self) -> bool:
        """Whether more output waits than may."""
        return len(self._waiting) > self._limit

    @property
    def has_more(self) -> bool:
        """Whether output other than white space waits to be read."""
        return bool(self._waiting.strip())

    @property
    def log(self) -> str:
        return self.errors.text

    @abstractmethod
    async def write_line(self, line: bytes) -> None:
        """Write a line and a line end; a closed input is not an error."""

    async def read_line(self) -> bytes:
        """Return its next line with the line end, empty at the end of its output.

        The last line may have no line end. Raises `TooMuchOutput`.
        """
        while not (end := self._waiting.find(b"\n") + 1) and not self._reading.done():
            self._changed.clear()
            await self._changed.wait()
        if not end:
            self._reading.result()
            end = len(self._waiting)
        line = bytes(self._waiting[:end])
        del self._waiting[:end]
        return line

    @abstractmethod
    async def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None if it is still running.

        Call this when the program should be ending: the call waits for a moment.
        """

    async def ending(self) -> str:
        """Return how the program or its output ended, as the end of a sentence."""
        code = await self.exit_code()
        return "closed its output" if code is None else how_it_ended(code)

    @abstractmethod
    async def leave(self) -> None:
        """Close its input if the sandbox can, and let it end."""

    async def stop_reading(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class Sandbox(Protocol):
    """The place where programs run."""

    def start(
        self, words: Sequence[str], given: bytes | None, limit: int
    ) -> AbstractAsyncContextManager[StartedProgram]:
        """Start a program without a shell; leaving the context ends it.

        `given` is its whole input, None to write lines while it runs. `limit` is the most bytes of
        output that may wait to be read. Raises `SandboxError` if the sandbox failed, and `OSError`
        or `ValueError` if the program could not be started.
        """
        ...


_LEAVE_S = 2.0


class LocalSandbox:
    """Implements `Sandbox` on this machine; the program `python` is the Python that runs kindlm."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    @asynccontextmanager
    async def start(
        self,
        words: Sequence[str],
        given: bytes | None,
        limit: int,
        errors: LastOutput | None = None,
    ) -> AsyncIterator[LocalProgram]:
        """Start a program; `errors` collects its standard error."""
        started = LocalProgram(limit, errors or LastOutput())
        outputs = (started.add, started.errors.add)
        has_input = given != b""
        program = await start_program(
            words, self._folder, self._environ, *outputs, has_input=has_input
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(program.end)
            started.follow(program)
            stack.push_async_callback(started.stop_reading)
            if given and program.stdin is not None:
                # Without `drain`: a program may never read its input.
                program.stdin.write(given)
                program.stdin.close()
            yield started


class LocalProgram(StartedProgram):
    """A program on this machine."""

    _program: Program

    def follow(self, program: Program) -> None:
        self._program = program
        self._read(self._read_to_end())

    @property
    def goes_on(self) -> bool:
        return self._program.process.returncode is None

    async def write_line(self, line: bytes) -> None:
        stdin = self._program.stdin
        assert stdin is not None
        # After a broken pipe, the last output of the program says more.
        with contextlib.suppress(ConnectionError):
            stdin.write(line + b"\n")
            await stdin.drain()

    async def _read_to_end(self) -> None:
        """Wait for the end of the output; raises `TooMuchOutput` if that is too much."""
        reader = self._program.readers[0]
        ended = asyncio.ensure_future(self._program.process.wait())
        try:
            await asyncio.wait((ended, reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if not reader.done():
            # Processes that it left behind may keep the pipe open forever.
            await self.drained()
        if reader.done():
            reader.result()

    async def exit_code(self) -> int | None:
        try:
            async with asyncio.timeout(_LEAVE_S):
                code = await self._program.process.wait()
        except TimeoutError:
            return None
        await self.drained()  # so that its log is complete
        return code

    async def leave(self) -> None:
        """Close its input and give it a moment to end."""
        if self._program.stdin is not None:
            self._program.stdin.close()
        await self.exit_code()

    async def drained(self) -> None:
        """End the processes that it left behind, and read the rest; raises `TooMuchOutput`."""
        await self._program.drained()


MAX_OUTPUT_BYTES = 10_000_000
"""The longest answer, and the most that may wait to be read."""

TOO_MUCH = f"printed more than {MAX_OUTPUT_BYTES // 1_000_000} MB"
"""The end of a sentence about a program that printed more."""


@dataclass(frozen=True, slots=True)
class ProgramWho(Who):
    """Makes the errors of an agent that is a program; `words` are the program and its arguments."""

    words: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """The name of the program; for a Python script, with the script."""
        first, *rest = self.words
        is_script = first in PYTHON and rest and not rest[0].startswith("-")
        return self.quote(" ".join([first, *rest[: 1 if is_script else 0]]))

    def program_failure(self, what: str, log: str, *, printed: str = "") -> KindlmError:
        """Return the error of a program that did not answer properly.

        `what` ends a sentence about the program. `log` is the end of its standard error, and
        `printed` its other output.
        """
        return self.failed(
            self.with_last_words(f"{self.title}: {self.program} {what}", log),
            "Run its `command` by itself, in the same folder",
            body="\n".join(filter(None, (printed, log))),
        )

    def broke_off(
        self, raised: Exception, log: str, timeout_s: float, *, printed: str = ""
    ) -> KindlmError:
        """Return the error of an exchange that raised an exception; see `program_failure`.

        The exception is TimeoutError, TooMuchOutput or SandboxError, or OSError or ValueError at
        the start of the program.
        """
        match raised:
            case TooMuchOutput():
                return self.program_failure(TOO_MUCH, log, printed=printed)
            case SandboxError():
                what = f"failed with its sandbox, {self.quote(str(raised))}"
                return self.program_failure(what, log, printed=printed)
            case TimeoutError():
                return self.failed(
                    f"{self.title}: {self.program} did not answer within {timeout_s * 1000:.0f} ms",
                    "Raise `timeoutMs` of the agent or of the defaults (`timeout_ms` in "
                    "kindlm.toml), or check what it waits for: it must end its answer with a line "
                    "end, and flush it",
                    code=ErrorCode.PROVIDER_TIMEOUT,
                    body="\n".join(filter(None, (printed, log))),
                )
        reason = (raised.strerror if isinstance(raised, OSError) else None) or str(raised)
        return self.failed(
            f"{self.title}: {self.program} could not be started: {self.quote(reason)}",
            "Check its `command` and the folder that it runs in; kindlm uses no shell",
        )


class ProgramOptions(Adapter):
    """The base of options of agents that are programs."""

    command: Maybe[CommandLine] = Field(default=None, examples=["python agent.py"])
    """Program with its arguments (`mcp`; required for `subprocess`): a string that is split like a
    shell would, or a list. No shell runs it."""
    env: Variables = Field(default={}, examples=[{"MODE": "test"}])
    """Environment variables for the program (`subprocess`, `mcp`), added to those of the run. In a
    sandbox, the program gets only these."""
    cwd: FilePath = Field(default=".", examples=["agent"])
    """Working folder of the program (`subprocess`, `mcp`), relative to this file; in a sandbox,
    relative to the start folder of its snapshot. By default the folder of this file."""

    @property
    def words(self) -> list[str]:
        """The program and its arguments, empty without a program."""
        return shlex.split(self.command) if isinstance(self.command, str) else self.command or []

    def compiled(self) -> Self:
        """Split the command before variables are inserted, so that each value stays one word."""
        if self.command is None:
            return self
        return self.model_copy(update={"command": self.words})


def program_secrets(env: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables whose names mean secrets."""
    return frozenset(
        value
        for name, value in env.items()
        if len(value) >= SHORTEST_HIDDEN
        and (is_credential_name(name) or (may_be_secret_name(name) and not is_ordinary(value)))
    )
