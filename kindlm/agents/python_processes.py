"""Python agents in processes of their own, so that one that crashes ends itself and nothing else.

A process is lent to one conversation at a time: if it ends, it is known which agent ended it. After
the conversation the next one with the same agent gets it, what it has imported included. A process
that is in an unknown state, since a call was cut off or took too long, is ended instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from kindlm.agents import failures
from kindlm.agents.python_agent import wrong_target
from kindlm.agents.worker_messages import Opening
from kindlm.agents.worker_process import WorkerProcess
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.suite import AgentTarget

_MAX_IDLE = 8


class PythonProcesses:
    """The processes of a run; as `async with`, at whose end all of them have ended.

    Args:
        environ: their environment.
        root: where agents are looked for that are not in the folder of their file.
        redact: takes secrets out of what they print, which is shown.
    """

    def __init__(
        self, environ: Mapping[str, str], root: Path, redact: Callable[[str], str]
    ) -> None:
        self._environ = environ
        self._redact = redact
        self._root = root
        self._idle: deque[tuple[AgentTarget, WorkerProcess]] = deque()

    async def __aenter__(self) -> Self:
        """Start nothing yet: a process starts with a conversation."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """End all processes."""
        await asyncio.gather(*(worker.end() for _, worker in self._idle))
        self._idle.clear()

    def agent(self, target: AgentTarget) -> Result[Agent]:
        """Make an agent for one conversation; whether it can be imported is known later."""
        error = wrong_target(failures.Who(target.id), target)
        return Ok(ProcessAgent(target, self)) if error is None else Err(error)

    async def lend(self, target: AgentTarget) -> Result[WorkerProcess]:
        """Return a process in which the agent is open."""
        kept = self._kept(target)
        if kept is not None and isinstance(await self._open(kept, target), Ok):
            return Ok(kept)
        # Else it ended while nobody used it.
        try:
            worker = await WorkerProcess.start(self._environ, self._redact)
        except OSError as error:
            return Err(_not_started(target, error))
        opened = await self._open(worker, target)
        return Ok(worker) if isinstance(opened, Ok) else opened

    async def _open(self, worker: WorkerProcess, target: AgentTarget) -> Result[AgentReply | None]:
        """Open the agent in a process, or end the process."""
        opened = None
        try:
            opened = await worker.ask(Opening(target, str(self._root.resolve())), target.id)
        finally:
            if not isinstance(opened, Ok):
                await worker.end()
        return opened

    def _kept(self, target: AgentTarget) -> WorkerProcess | None:
        """Return a process that has imported the agent already."""
        found = next((kept for kept in self._idle if kept[0] == target), None)
        if found is None:
            return None
        self._idle.remove(found)
        return found[1]

    async def give_back(self, target: AgentTarget, worker: WorkerProcess) -> None:
        """Take a process back; it is kept if it is fit for another conversation."""
        if not worker.is_ready:
            await worker.end()
            return
        self._idle.append((target, worker))
        if len(self._idle) > _MAX_IDLE:
            await self._idle.popleft()[1].end()


class ProcessAgent:
    """Implements `ports.Agent`."""

    def __init__(self, target: AgentTarget, processes: PythonProcesses) -> None:
        self._target = target
        self._processes = processes
        self._lent: Result[WorkerProcess] | None = None

    async def __aenter__(self) -> Self:
        """Import the agent in a process; what goes wrong is told with the first message."""
        self._lent = await self._processes.lend(self._target)
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Leave the agent, and give its process back."""
        if isinstance(self._lent, Ok):
            worker = self._lent.value
            try:
                await worker.leave(self._target.id)
            finally:
                await self._processes.give_back(self._target, worker)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message to the process; see `ports.Agent`."""
        assert self._lent is not None, "use it as `async with`"
        if isinstance(self._lent, Err):
            return self._lent
        answer = await self._lent.value.ask(request, self._target.id)
        if isinstance(answer, Err):
            return answer
        assert answer.value is not None
        return Ok(answer.value)


def _not_started(target: AgentTarget, error: OSError) -> KindlmError:
    who = failures.Who(target.id)
    return failures.failed(
        who,
        ErrorCode.PROVIDER_API_ERROR,
        f"The process of agent {who.name!r} could not be started: {error.strerror or error}",
    )
