"""Runs the programs of agents on this machine, in a folder: nothing keeps them from anything."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kindlm.agents.process_group import Output, Program, TooMuchOutput, started

_PYTHON = ("python", "python3")


def runnable(words: Sequence[str]) -> list[str]:
    """Return the words, where `python` is the Python that runs kindlm."""
    first, *rest = words
    return [sys.executable if first in _PYTHON else first, *rest]


def program_name(words: Sequence[str]) -> str:
    """Return the program as the user wrote it; of a script for Python, the script too."""
    first, *rest = words
    is_script = first in _PYTHON and rest and not rest[0].startswith("-")
    return " ".join([first, *rest[: 1 if is_script else 0]])


class OutputLines:
    """Takes what comes through a pipe in pieces, and gives it out line by line.

    Args:
        limit: how many bytes may wait to be taken, line ends left out.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = deque[bytes]()
        self._begun = bytearray()
        self._waiting = 0
        self.arrived = asyncio.Event()
        """Set when something arrives; whoever waits for it clears it."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing but white space waits."""
        return not any(map(bytes.strip, self._lines)) and not self._begun.strip()

    def add(self, chunk: bytes) -> None:
        """Take what was printed; raise `TooMuchOutput` if more waits than may."""
        self._waiting += len(chunk) - chunk.count(b"\n")
        self._begun += chunk
        if b"\n" in chunk:
            *whole, rest = bytes(self._begun).split(b"\n")
            self._lines.extend(whole)
            self._begun = bytearray(rest)
        self.arrived.set()
        if self._waiting > self._limit:
            raise TooMuchOutput

    def take(self) -> bytes | None:
        """Return the next whole line without its end, None if there is none yet."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        self._waiting -= len(line)
        return line

    def take_rest(self) -> bytes | None:
        """Return what was printed after the last line end, None if nothing was."""
        rest = bytes(self._begun)
        self._begun.clear()
        self._waiting -= len(rest)
        return rest or None


LOG_BYTES = 16_384
_LEAVE_S = 2.0


class LocalSandbox:
    """Implements `sandbox.Sandbox`."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    @asynccontextmanager
    async def start(
        self, words: Sequence[str], given: bytes | None, limit: int
    ) -> AsyncIterator[LocalProgram]:
        """Start a program in a process group of its own; see `sandbox.Sandbox`."""
        lines = OutputLines(limit)
        log = Output(LOG_BYTES, keeps_tail=True)
        async with started(
            runnable(words),
            directory=str(self._folder),
            environ=self._environ,
            stdout=lines,
            stderr=log,
            takes_input=given is None or bool(given),
        ) as running:
            program = LocalProgram(running, lines, log)
            if given:
                program.give(given)
            yield program


class LocalProgram:
    """Implements `sandbox.StartedProgram`."""

    def __init__(self, program: Program, lines: OutputLines, log: Output) -> None:
        self._program = program
        self._lines = lines
        self._log = log
        self._is_at_end = False

    @property
    def has_more(self) -> bool:
        """Whether it has printed something that nobody has read yet."""
        return not self._lines.is_empty

    @property
    def log(self) -> str:
        """The end of what it printed as errors."""
        return self._log.data.decode("utf-8", "replace")

    def give(self, text: bytes) -> None:
        """Give it all of its input; it need not read it."""
        assert self._program.stdin is not None
        self._program.stdin.write(text)
        self._program.stdin.close()

    async def write_line(self, line: bytes) -> None:
        """Give it a line; see `sandbox.StartedProgram`."""
        stdin = self._program.stdin
        assert stdin is not None
        # What it printed before it stopped reading says more than a broken pipe.
        with contextlib.suppress(ConnectionError):
            stdin.write(line + b"\n")
            await stdin.drain()

    async def read_line(self) -> bytes | None:
        """Return its next line; see `sandbox.StartedProgram`."""
        while (line := self._lines.take()) is None:
            if self._is_at_end:
                return self._lines.take_rest()
            await self._wait_for_more()
        return line

    async def _wait_for_more(self) -> None:
        self._lines.arrived.clear()
        reader = self._program.readers[0]
        ended = asyncio.ensure_future(self._program.process.wait())
        arrived = asyncio.ensure_future(self._lines.arrived.wait())
        try:
            await asyncio.wait((ended, arrived, reader), return_when=asyncio.FIRST_COMPLETED)
            has_ended = ended.done()
        finally:
            ended.cancel()
            arrived.cancel()
        if has_ended:
            # What it left behind may hold the pipe open for ever.
            await self._program.drained()
        if reader.done():
            reader.result()
        self._is_at_end = has_ended or reader.done()

    async def exit_code(self) -> int | None:
        """Return the code it ended with; see `sandbox.StartedProgram`."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                code = await self._program.process.wait()
        except TimeoutError:
            return None
        # So that all it said is in its log.
        await self._program.drained()
        return code

    async def leave(self) -> None:
        """Close its input and give it a moment to end."""
        if self._program.stdin is not None:
            self._program.stdin.close()
        await self.exit_code()
