"""The base of agents that are programs: options, the interface of sandboxes, and errors.

A program runs on this machine, without any isolation, or in a sandbox of Daytona. kindlm never
retries a failed program: it lost the conversation, and its work may have effects.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

from pydantic import Field

from kindlm.agents.agent_failures import SHORTEST_HIDDEN, Who
from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError
from kindlm.plugins import Adapter
from kindlm.programs import PYTHON, LastOutput
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


class OutputLines:
    """Takes output of a pipe in pieces, and returns it line by line.

    `limit` is the most bytes that may wait to be read, without line ends.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = deque[bytes]()
        self._begun = bytearray()
        self._waiting = 0
        self._arrived: asyncio.Future[None] | None = None
        self.is_line_ended = False
        """Whether the last returned line had a line end."""

    @property
    def is_empty(self) -> bool:
        """Whether no output but white space waits to be read."""
        return not any(map(bytes.strip, self._lines)) and not self._begun.strip()

    @property
    def are_too_many(self) -> bool:
        """Whether more than the limit waits."""
        return self._waiting > self._limit

    def add(self, chunk: bytes) -> None:
        """Add output; raises `TooMuchOutput` if more than the limit waits."""
        self._waiting += len(chunk) - chunk.count(b"\n")
        self._begun += chunk
        if b"\n" in chunk:
            *whole, rest = bytes(self._begun).split(b"\n")
            self._lines.extend(whole)
            self._begun = bytearray(rest)
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
        if self.are_too_many:
            raise TooMuchOutput

    async def next(self, reading: asyncio.Future[None]) -> bytes | None:
        """Return the next line; None when `reading` has ended. Raises what `reading` raised."""
        while not self._lines and not reading.done():
            self._arrived = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._arrived, reading), return_when=asyncio.FIRST_COMPLETED)
        if not self._lines:
            reading.result()
            if not self._begun:
                return None
        self.is_line_ended = bool(self._lines)
        line = self._lines.popleft() if self._lines else bytes(self._begun)
        if not self.is_line_ended:
            self._begun.clear()
        self._waiting -= len(line)
        return line


class SandboxError(Exception):
    """A sandbox failed while a program ran in it; the message says how."""


class StartedProgram(ABC):
    """A running program, whose output is read into `lines` and `errors` all the time.

    A subclass sets `_reading`, which is done at the end of its output. All methods raise
    `SandboxError` if the sandbox itself fails.
    """

    _reading: asyncio.Future[None]

    def __init__(self, lines: OutputLines, errors: LastOutput) -> None:
        self.lines = lines
        self.errors = errors

    @property
    def has_more(self) -> bool:
        return not self.lines.is_empty

    @property
    def log(self) -> str:
        return self.errors.text

    @abstractmethod
    async def write_line(self, line: bytes) -> None:
        """Write a line and a line end; a closed input is not an error."""

    async def read_line(self) -> bytes | None:
        """Return its next line, None at the end of its output; raises `TooMuchOutput`."""
        return await self.lines.next(self._reading)

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
