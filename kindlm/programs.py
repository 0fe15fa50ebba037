"""Runs programs on this machine, and ends each with all processes that it starts.

A program leads its own process group. To end it, kindlm sends SIGTERM to the group, and SIGKILL a
little later. This includes processes that outlive the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from kindlm.dataclass import dataclass

PYTHON = ("python", "python3")
"""Words that stand for the Python that runs kindlm."""

_GRACE_S = 2.0
_DRAIN_S = 1.0
_POLL_S = 0.02
_CHUNK_BYTES = 65_536
_KEPT_BYTES = 16_384


def past_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which programs use no proxy to reach kindlm on this machine."""
    # Some programs read the one name first, and some the other.
    found = {}
    for name, other in (("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")):
        known = environ.get(name) or environ.get(other)
        found[name] = f"{known},127.0.0.1" if known else "127.0.0.1"
        if known == "*":
            found[name] = known  # it stands for all hosts, but only alone
    return found


class LastOutput:
    """Keeps the end of a pipe's output."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, chunk: bytes) -> None:
        """Add output."""
        self.data += chunk
        del self.data[:-_KEPT_BYTES]

    @property
    def text(self) -> str:
        """The end of the output as text."""
        return self.data.decode("utf-8", "replace")


async def start_program(
    words: Sequence[str],
    folder: Path,
    environ: Mapping[str, str],
    *outputs: Callable[[bytes], None],
    has_input: bool = True,
) -> Program:
    """Start a program without a shell; its `end` must be awaited.

    `outputs` take pieces of its standard output and its standard error; a single one takes both.
    Raises `OSError` or `ValueError` if the program could not be started.

    asyncio's own pipes would delay the end of the program until all processes close them.
    """
    first, *rest = words
    async with AsyncExitStack() as stack:
        with ExitStack() as ends:
            pipes = [await _output_pipe(stack, ends) for _ in outputs]
            stdin, stdin_end = None, asyncio.subprocess.DEVNULL
            if has_input:
                stdin, stdin_end = await _input_pipe(stack, ends)
            process = await asyncio.create_subprocess_exec(
                sys.executable if first in PYTHON else first,
                *rest,
                cwd=folder,
                env=dict(environ),
                stdin=stdin_end,
                stdout=pipes[0][1],
                stderr=pipes[-1][1],
                start_new_session=True,
            )
        readers = [_read(reader, add) for (reader, _), add in zip(pipes, outputs, strict=True)]
        tasks = tuple(map(asyncio.create_task, readers))
        return Program(process, stdin, tasks, stack.pop_all())


@dataclass(eq=False, slots=True)
class Program:
    """A running program: its process, its standard input, and the tasks that read its output."""

    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter | None
    readers: Sequence[asyncio.Task[None]]
    _pipes: AsyncExitStack

    async def drained(self) -> None:
        """End the processes that it left behind, and read the rest of the output."""
        await self.end_group()
        # The pipes end with the group, unless a process left the group.
        await self.read_on(_DRAIN_S)

    async def read_on(self, most_s: float) -> None:
        """Read until the output ends, at most this long; raises what an output raised."""
        done, _ = await asyncio.wait(self.readers, timeout=most_s)
        for reader in done:
            reader.result()

    async def end(self) -> None:
        """End the program and everything it started, even if it has only begun to start."""
        async with self._pipes:
            try:
                await self.end_group()
            finally:
                self._signal(signal.SIGKILL)
                for reader in self.readers:
                    reader.cancel()
            await self.process.wait()
            await asyncio.gather(*self.readers, return_exceptions=True)

    async def end_group(self) -> None:
        """End all processes of the group, with SIGKILL those that go on after SIGTERM."""
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
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


async def _output_pipe(stack: AsyncExitStack, ends: ExitStack) -> tuple[asyncio.StreamReader, int]:
    """Return the reader of a pipe, and the descriptor that a program writes to."""
    read_end, write_end = os.pipe()
    ends.callback(os.close, write_end)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    stack.callback(transport.close)
    return reader, write_end


async def _input_pipe(stack: AsyncExitStack, ends: ExitStack) -> tuple[asyncio.StreamWriter, int]:
    """Return the writer of a pipe, and the descriptor that a program reads."""
    read_end, write_end = os.pipe()
    ends.callback(os.close, read_end)
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


async def _read(reader: asyncio.StreamReader, add: Callable[[bytes], None]) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        add(chunk)
