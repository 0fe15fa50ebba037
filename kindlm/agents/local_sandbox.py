"""Runs programs on this machine, and ends each with all processes that it starts.

A program leads its own process group. When its context exits, kindlm sends SIGTERM to the group,
and SIGKILL a little later. This includes processes that outlive the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from kindlm.agents.sandbox import PYTHON, LastOutput, OutputLines, StartedProgram

_GRACE_S = 2.0
_LEAVE_S = 2.0
_POLL_S = 0.02
_DRAIN_S = 1.0
_CHUNK_BYTES = 65_536


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
        """Start a program; see `sandbox.Sandbox`. `errors` collects its standard error.

        asyncio's own pipes would delay the end of the program until all processes close them.
        """
        first, *rest = words
        async with AsyncExitStack() as stack:
            out, out_end = await _pipe(stack)
            err, err_end = await _pipe(stack)
            stdin, stdin_end = (None, None) if given == b"" else await _input_pipe(stack)
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable if first in PYTHON else first,
                    *rest,
                    cwd=self._folder,
                    env=dict(self._environ),
                    stdin=asyncio.subprocess.DEVNULL if stdin_end is None else stdin_end,
                    stdout=out_end,
                    stderr=err_end,
                    start_new_session=True,
                )
            finally:
                for end in (out_end, err_end, stdin_end):
                    if end is not None:
                        os.close(end)
            program = LocalProgram(process, stdin, out, err, limit, errors)
            stack.push_async_callback(program.end)
            if given and stdin is not None:
                # Without `drain`: a program may never read its input.
                stdin.write(given)
                stdin.close()
            yield program


class LocalProgram(StartedProgram):
    """A program on this machine."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        stdin: asyncio.StreamWriter | None,
        out: asyncio.StreamReader,
        err: asyncio.StreamReader,
        limit: int,
        errors: LastOutput | None,
    ) -> None:
        super().__init__(limit, errors)
        self._process = process
        self._stdin = stdin
        self._reader = asyncio.create_task(_read(out, self.lines))
        self._readers = (self._reader, asyncio.create_task(_read(err, self.errors)))
        self._reading = asyncio.create_task(self._read_to_end())

    @property
    def goes_on(self) -> bool:
        return self._process.returncode is None

    async def write_line(self, line: bytes) -> None:
        assert self._stdin is not None
        # After a broken pipe, the last output of the program says more.
        with contextlib.suppress(ConnectionError):
            self._stdin.write(line + b"\n")
            await self._stdin.drain()

    async def _read_to_end(self) -> None:
        """Wait for the end of the output; raises `TooMuchOutput` if that is too much."""
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait((ended, self._reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if not self._reader.done():
            # Processes that it left behind may keep the pipe open forever.
            await self.drained()
        if self._reader.done():
            self._reader.result()

    async def exit_code(self) -> int | None:
        try:
            async with asyncio.timeout(_LEAVE_S):
                code = await self._process.wait()
        except TimeoutError:
            return None
        await self.drained()  # so that its log is complete
        return code

    async def leave(self) -> None:
        """Close its input and give it a moment to end."""
        if self._stdin is not None:
            self._stdin.close()
        await self.exit_code()

    async def drained(self) -> None:
        """End the processes that it left behind, and read the rest; raises `TooMuchOutput`."""
        await self._end_group()
        # The pipes end with the group, unless a process left the group.
        done, _ = await asyncio.wait(self._readers, timeout=_DRAIN_S)
        for reader in done:
            reader.result()

    async def end(self) -> None:
        """End the program and everything it started, even if it has only begun to start."""
        try:
            await self._end_group()
        finally:
            self._signal(signal.SIGKILL)
            reading = (*self._readers, self._reading)
            for task in reading:
                task.cancel()
        await self._process.wait()
        await asyncio.gather(*reading, return_exceptions=True)

    async def _end_group(self) -> None:
        if not self._signal(signal.SIGTERM):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                while self._signal(0):  # noqa: ASYNC110 - nothing reports a grandchild's end
                    await asyncio.sleep(_POLL_S)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; return whether any process is left in it."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


async def _pipe(stack: AsyncExitStack) -> tuple[asyncio.StreamReader, int]:
    """Return the reader of a pipe, and the descriptor that a program writes to."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    stack.callback(transport.close)
    return reader, write_end


async def _input_pipe(stack: AsyncExitStack) -> tuple[asyncio.StreamWriter, int]:
    """Return the writer of a pipe, and the descriptor that a program reads."""
    read_end, write_end = os.pipe()
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        os.fdopen(write_end, "wb", buffering=0),
    )
    stack.callback(_abandon, transport)
    return asyncio.StreamWriter(transport, protocol, None, loop), read_end


def _abandon(transport: asyncio.WriteTransport) -> None:
    """Close a pipe; input that the program has not read is lost."""
    if transport.get_write_buffer_size():
        transport.abort()
    else:
        transport.close()


async def _read(reader: asyncio.StreamReader, output: OutputLines | LastOutput) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        output.add(chunk)
