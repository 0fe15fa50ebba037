"""The process that a Python agent runs in: it hosts one conversation after another.

It ends when kindlm closes the connection, or asks it to by SIGTERM; and soon after kindlm is gone,
whatever the agent is doing then.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from kindlm.agents import failures
from kindlm.agents.python_agent import PythonAgent, python_agent
from kindlm.agents.worker_messages import HEADER, Answer, Opening, pack_answer, unpack_call
from kindlm.errors import Err, Ok
from kindlm.ports import AgentRequest

GRACE_S = 2.0
"""How long what the agent still does may keep the process alive when it is to end."""


def main(descriptor: int) -> None:
    """Serve the connection with this file descriptor to its end."""
    with socket.socket(fileno=descriptor) as connection, suppress(asyncio.CancelledError):
        connection.set_inheritable(False)  # programs that the agent starts
        try:
            asyncio.run(_serve(connection))
        except OSError:
            # kindlm is gone, or an agent closed what the event loop works with: it is not fit for
            # an orderly end, whose traces would say nothing of the agent.
            os._exit(1)


async def _serve(connection: socket.socket) -> None:
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    loop.add_signal_handler(signal.SIGTERM, this.cancel)
    payloads: asyncio.Queue[bytes | None] = asyncio.Queue()
    threading.Thread(target=_listen, args=(connection, loop, payloads), daemon=True).start()
    host = _Host()
    try:
        while (payload := await payloads.get()) is not None:
            connection.sendall(await host.answer(payload))
    finally:
        await host.leave()


def _listen(
    connection: socket.socket,
    loop: asyncio.AbstractEventLoop,
    payloads: asyncio.Queue[bytes | None],
) -> None:
    """Pass on what arrives, in a thread: the end is noticed also while an agent blocks the loop."""
    with connection.makefile("rb") as stream, suppress(OSError):
        while len(header := stream.read(HEADER.size)) == HEADER.size:
            payload = stream.read(HEADER.unpack(header)[0])
            loop.call_soon_threadsafe(payloads.put_nowait, payload)
    with suppress(RuntimeError):  # the loop is closed already
        loop.call_soon_threadsafe(payloads.put_nowait, None)
    time.sleep(GRACE_S)
    os._exit(1)


class _Host:
    """Holds the agent of the conversation that goes on."""

    def __init__(self) -> None:
        self._who = failures.Who("")
        self._agent: PythonAgent | None = None
        self._conversation = AsyncExitStack()

    async def answer(self, payload: bytes) -> bytes:
        """Do what a call asks for, and return the frame of the answer."""
        answer = await self._do(payload)
        try:
            return pack_answer(answer)
        except (TypeError, ValueError, RecursionError) as error:
            return pack_answer(Err(failures.of_reply(self._who, f"it is no JSON: {error}", "")))

    async def leave(self) -> None:
        """Leave the agent, if there is one."""
        await self._conversation.aclose()

    async def _do(self, payload: bytes) -> Answer:
        match unpack_call(payload):
            case Opening(target, root):
                self._who = failures.Who(target.id)
                made = python_agent(target, {}, Path(root))
                if isinstance(made, Err):
                    return made
                self._agent = await self._conversation.enter_async_context(made.value)
            case AgentRequest() as request:
                assert self._agent is not None
                result = await self._agent.send(request)
                return result if isinstance(result, Err) else Ok(result.value)
            case None:
                await self.leave()
        return Ok(None)
