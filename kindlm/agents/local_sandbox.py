"""Runs programs of agents on this machine; see `programs`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from kindlm.agents.sandbox import OutputLines, StartedProgram
from kindlm.programs import LastOutput, Program, start_program

_LEAVE_S = 2.0


class LocalSandbox:
    """Implements `sandbox.Sandbox`; the program `python` is the Python that runs kindlm."""

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
        """Start a program; see `sandbox.Sandbox`. `errors` collects its standard error."""
        lines, errors = OutputLines(limit), errors or LastOutput()
        program = await start_program(
            words, self._folder, self._environ, lines.add, errors.add, has_input=given != b""
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(program.end)
            started = LocalProgram(program, lines, errors)
            stack.push_async_callback(started.stop_reading)
            if given and program.stdin is not None:
                # Without `drain`: a program may never read its input.
                program.stdin.write(given)
                program.stdin.close()
            yield started


class LocalProgram(StartedProgram):
    """A program on this machine."""

    def __init__(self, program: Program, lines: OutputLines, errors: LastOutput) -> None:
        super().__init__(lines, errors)
        self._program = program
        self._reading = asyncio.create_task(self._read_to_end())

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
