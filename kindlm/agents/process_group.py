"""A program with all that it starts, ended together.

The program leads a process group of its own. However the context is left, the group is asked to
end, and killed a little later: also what the program left behind after it ended by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

_GRACE_S = 2.0
_POLL_S = 0.02
_DRAIN_S = 1.0
_CHUNK_BYTES = 65_536


class TooMuchOutput(Exception):  # noqa: N818 - it names what was printed
    """A program printed more than it may."""


class Sink(Protocol):
    """Takes what comes through one pipe."""

    def add(self, chunk: bytes) -> None:
        """Take what was read; what this raises ends the wait for the program."""
        ...


@dataclass(slots=True)
class LastOutput:
    """The last `limit` bytes that came through one pipe."""

    limit: int
    data: bytearray = field(default_factory=bytearray)

    def add(self, chunk: bytes) -> None:
        """Take what was read."""
        self.data += chunk
        del self.data[: -self.limit]


@dataclass(slots=True)
class Program:
    """A program that runs; its output is read all the while. `stdin` is its input, if it has any.

    The first of the readers reads its standard output, the second one what it prints as errors.
    """

    process: asyncio.subprocess.Process
    readers: tuple[asyncio.Task[None], ...]
    stdin: asyncio.StreamWriter | None = None

    async def exit_code(self) -> int:
        """Wait for the program's own end and return its exit code, negative for a signal.

        Raises `TooMuchOutput` as soon as it prints too much.
        """
        ended = asyncio.ensure_future(self.process.wait())
        pending: set[asyncio.Future[Any]] = {ended, *self.readers}
        try:
            while not ended.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                _raise_errors(done)
        finally:
            ended.cancel()
        return ended.result()

    async def drained(self) -> None:
        """End what the program left behind, and take what was printed until then.

        Raises `TooMuchOutput` if it is too much.
        """
        await self._end_group()
        # With the group gone the pipes are at their end, unless something left the group.
        done, _ = await asyncio.wait(self.readers, timeout=_DRAIN_S)
        _raise_errors(done)

    async def end(self) -> None:
        """End the program and all that it started, however far it got."""
        try:
            await self._end_group()
        finally:
            self._signal(signal.SIGKILL)
            for reader in self.readers:
                reader.cancel()
        await self.process.wait()
        await asyncio.gather(*self.readers, return_exceptions=True)

    async def _end_group(self) -> None:
        if not self._signal(signal.SIGTERM):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                while self._signal(0):  # noqa: ASYNC110 - nothing reports a grandchild's end
                    await asyncio.sleep(_POLL_S)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; return whether there is anyone left in it."""
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def how_it_ended(code: int) -> str:
    """Say how a program ended, by its exit code: `ended by SIGKILL`, `ended with exit code 3`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _raise_errors(done: Iterable[asyncio.Future[Any]]) -> None:
    for task in done:
        task.result()


@asynccontextmanager
async def started(
    words: Sequence[str],
    *,
    directory: str,
    environ: Mapping[str, str],
    stdout: Sink,
    stderr: Sink,
    pass_fds: Sequence[int] = (),
    takes_input: bool = False,
) -> AsyncIterator[Program]:
    """Start a program without a shell; raise `OSError` if it cannot be.

    Its input is closed, unless it `takes_input`. `pass_fds` are file descriptors that it gets
    beside the usual three.

    The pipes are our own: so waiting for the program is not waiting for whatever holds them open.
    """
    async with contextlib.AsyncExitStack() as stack:
        out, out_end = await _pipe(stack)
        err, err_end = await _pipe(stack)
        stdin, stdin_end = await _input_pipe(stack) if takes_input else (None, None)
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=directory,
                env=dict(environ),
                stdin=asyncio.subprocess.DEVNULL if stdin_end is None else stdin_end,
                stdout=out_end,
                stderr=err_end,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        finally:
            for end in (out_end, err_end, stdin_end):
                if end is not None:
                    os.close(end)
        readers = (
            asyncio.create_task(_read(out, stdout)),
            asyncio.create_task(_read(err, stderr)),
        )
        program = Program(process, readers, stdin)
        stack.push_async_callback(program.end)
        yield program


async def _pipe(stack: contextlib.AsyncExitStack) -> tuple[asyncio.StreamReader, int]:
    """Return what reads a pipe, and the end that a program writes to."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    stack.callback(transport.close)
    return reader, write_end


async def _input_pipe(stack: contextlib.AsyncExitStack) -> tuple[asyncio.StreamWriter, int]:
    """Return what writes to a pipe, and the end that a program reads."""
    read_end, write_end = os.pipe()
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        os.fdopen(write_end, "wb", buffering=0),
    )
    stack.callback(_abandon, transport)
    return asyncio.StreamWriter(transport, protocol, None, loop), read_end


def _abandon(transport: asyncio.WriteTransport) -> None:
    """Close a pipe, even if its other end is still held: what is not read yet never will be."""
    if transport.get_write_buffer_size():
        transport.abort()
    else:
        transport.close()


async def _read(reader: asyncio.StreamReader, output: Sink) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        output.add(chunk)
