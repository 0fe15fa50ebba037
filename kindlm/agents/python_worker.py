"""The process that a Python agent runs in: it hosts one conversation after another.

It ends when kindlm closes its input, sends SIGTERM or ends itself, whatever the agent is doing.

kindlm and the process exchange lines of JSON through standard input and output. They do not use
pickle, so kindlm never executes or imports anything that an agent returns.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from pydantic import TypeAdapter

from kindlm.agents.agent_failures import Who
from kindlm.agents.python_agent import PythonAgent, python_agent
from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Raised, Result
from kindlm.guard import end_fork
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import ascii_json
from kindlm.suite import AgentTarget


@dataclass(frozen=True, slots=True)
class Opening:
    """A request to import an agent for one conversation; see `python_agent` for `root`."""

    target: AgentTarget
    root: str


Call: TypeAlias = Opening | AgentRequest | None
"""Open an agent, send it a message, or (None) leave it."""

Answer: TypeAlias = Result[AgentReply | None]
"""The answer to a call; only a message has a reply."""

CALL: TypeAdapter[Call] = TypeAdapter(Call)
ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)
"""Both ends write lines with `ascii_json`, and read them with `json.loads`."""

GRACE_S = 2.0
"""How long an active agent may delay the end of its process, in seconds."""


def main() -> None:
    """Answer calls from standard input to its end.

    The agent's own standard input is empty, and its output goes to standard error.
    """
    asked, answered = os.dup(0), os.dup(1)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    with os.fdopen(answered, "wb") as answers, suppress(asyncio.CancelledError):
        try:
            asyncio.run(_serve(asked, answers))
        except OSError:
            # kindlm has ended, or an agent closed a file of the event loop. An orderly end is
            # impossible, and its tracebacks would say nothing about the agent.
            os._exit(1)


async def _serve(asked: int, answers: BinaryIO) -> None:
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    loop.add_signal_handler(signal.SIGTERM, this.cancel)
    calls: asyncio.Queue[bytes] = asyncio.Queue()
    threading.Thread(target=_listen, args=(asked, loop, calls), daemon=True).start()
    host, process = _Host(), os.getpid()
    try:
        while (call := await calls.get()).endswith(b"\n"):
            answer = await host.answer(call)
            end_fork(process)  # it must not answer, too
            answers.write(answer + b"\n")
            answers.flush()
    finally:
        await host.leave()


def _listen(asked: int, loop: asyncio.AbstractEventLoop, calls: asyncio.Queue[bytes]) -> None:
    """Pass input to the loop, from a thread that sees its end even if an agent blocks the loop."""
    with os.fdopen(asked, "rb") as stream, suppress(OSError):
        for line in stream:
            loop.call_soon_threadsafe(calls.put_nowait, line)
    with suppress(RuntimeError):  # the loop is closed already
        loop.call_soon_threadsafe(calls.put_nowait, b"")
    time.sleep(GRACE_S)
    os._exit(1)


class _Host:
    """Holds the agent of the current conversation."""

    def __init__(self) -> None:
        self._who = Who("")
        self._agent: PythonAgent | None = None
        self._conversation = AsyncExitStack()

    async def answer(self, payload: bytes) -> bytes:
        """Carry out a call, and return the line of the answer."""
        answer: Answer = Ok(None)
        try:
            match CALL.validate_python(json.loads(payload)):
                case Opening(target, root):
                    self._who = Who(target.id)
                    made = python_agent(target, Path(root))
                    self._agent = await self._conversation.enter_async_context(made)
                case AgentRequest() as request:
                    assert self._agent is not None
                    answer = await self._agent.send(request)
                case None:
                    await self.leave()
        except Raised as raised:
            answer = Err(raised.error)
        try:
            # `ANSWER` reports errors in a reply of the user's code where it is read.
            return ascii_json(ANSWER.dump_python(answer, warnings=False))
        except (TypeError, ValueError, RecursionError) as error:
            broken = self._who.unreadable(f"it is not valid JSON: {error}", "")
            return ascii_json(ANSWER.dump_python(Err(broken)))

    async def leave(self) -> None:
        await self._conversation.aclose()
