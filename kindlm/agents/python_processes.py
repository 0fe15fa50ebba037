"""Runs Python agents in their own processes, so that a crash ends only one conversation.

A process serves one conversation at a time. The next conversation with the same agent reuses it,
with all its imports. kindlm ends a process in an unknown state, after a call that was cut off or
took too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Self

from kindlm.agents.agent_failures import Who
from kindlm.agents.python_worker import ANSWER, CALL, GRACE_S, Answer, Call, Opening
from kindlm.agents.sandbox import LocalProgram, LocalSandbox
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.packages import as_written
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.programs import LastOutput
from kindlm.strict_json import ascii_json
from kindlm.suite import AgentTarget


class PrintedOutput(LastOutput):
    """Shows output line by line, and keeps the end of it.

    `redact` removes secrets from whole lines, since a piece may end within a secret.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact
        self._waiting = b""

    def add(self, chunk: bytes) -> None:
        super().add(chunk)
        lines, end, self._waiting = (self._waiting + chunk).rpartition(b"\n")
        self._show(lines + end)

    def finish(self) -> None:
        """Show the rest of the output."""
        left, self._waiting = self._waiting, b""
        self._show(left)

    def _show(self, output: bytes) -> None:
        if not output:
            return
        # The reader of standard error may be gone.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(self._redact(output.decode("utf-8", "replace")))
            sys.stderr.flush()


_log = logging.getLogger(__name__)
# The process has the import path of this one. `-P` keeps files in the current folder from
# replacing modules that are imported before that.
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop()); "
    "from kindlm.agents.python_worker import main; main()"
)
_LEAVE_S = 10.0


class WorkerProcess:
    """A running process; `start` makes it, and `end` must be awaited."""

    def __init__(
        self, program: LocalProgram, printed: PrintedOutput, stack: AsyncExitStack
    ) -> None:
        self._program = program
        self._printed = printed
        self._stack = stack
        self._is_idle = True

    @property
    def is_ready(self) -> bool:
        """Whether it waits for a call, and no earlier call can still be active."""
        return self._is_idle and self._program.goes_on

    @classmethod
    async def start(cls, environ: Mapping[str, str], redact: Callable[[str], str]) -> Self:
        """Start a process, whose output is shown after `redact`; raises `OSError` if that fails."""
        printed, stack = PrintedOutput(redact), AsyncExitStack()
        words = [sys.executable, "-uPc", _START, json.dumps(sys.path)]
        starting = LocalSandbox(Path.cwd(), environ).start(words, None, sys.maxsize, printed)
        return cls(await stack.enter_async_context(starting), printed, stack)

    async def ask(self, call: Call, name: str) -> Answer:
        """Return the answer to a call; errors have the agent's `name`.

        The process itself enforces the timeout of a request. If it does not answer `GRACE_S` later,
        it is stuck, and never ready again.
        """
        who = Who(name)
        was_idle, self._is_idle = self._is_idle, False
        timeout_s = inf
        if isinstance(call, AgentRequest):
            # A function cannot be sent to another process: a Python agent calls its tools itself.
            timeout_s, call = call.timeout_s, replace(call, answer_tool=None)
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                await self._program.write_line(ascii_json(CALL.dump_python(call)))
                line = await self._program.read_line()
        except TimeoutError:
            return Err(who.timed_out(timeout_s))
        if not line.endswith(b"\n"):
            return Err(await self._ended(who))
        try:
            answer = ANSWER.validate_python(json.loads(line))
        except ValueError as error:
            return Err(who.unreadable(f"it is not an AgentReply: {error}", ""))
        # After a timeout, one of its threads may still be running.
        is_late = isinstance(answer, Err) and answer.error.code is ErrorCode.PROVIDER_TIMEOUT
        self._is_idle = was_idle and not is_late
        return answer

    async def leave(self, name: str) -> None:
        """Leave the agent if the process is ready; failures are logged."""
        if not self.is_ready:
            return
        try:
            async with asyncio.timeout(_LEAVE_S):
                answer = await self.ask(None, name)
        except TimeoutError:
            _log.warning("Agent %r took longer than %.0f s to close", name, _LEAVE_S)
            return
        if isinstance(answer, Err):
            _log.warning("Agent %r failed while closing", name)

    async def end(self) -> None:
        """End the process and everything it started; an idle process may end by itself."""
        async with self._stack:
            if self.is_ready:
                await self._program.leave()
            await self._program.drained()
            self._printed.finish()

    async def _ended(self, who: Who) -> KindlmError:
        """Return the error of an agent whose process, or its output, ended without an answer."""
        ending = await self._program.ending()
        await self._program.drained()
        message = f"The process of agent {who.name!r} {ending} before it answered"
        return who.failed(
            who.with_last_words(message, self._program.log),
            "Look for os._exit, a signal, a crash in an extension module, or files that it "
            "closes without having opened them",
            body=self._program.log or None,
        )


_MAX_IDLE = 8


class PythonProcesses:
    """The processes of a run, as `async with`, which ends all of them.

    Agents that are not in the folder of their file are imported from `root`.
    """

    def __init__(
        self, environ: Mapping[str, str], root: Path, redact: Callable[[str], str]
    ) -> None:
        self._environ = environ
        self._redact = redact
        self._root = root
        self._idle: deque[tuple[AgentTarget, WorkerProcess]] = deque()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.gather(*(worker.end() for _, worker in self._idle))
        self._idle.clear()

    def agent(
        self, target: AgentTarget, variables: Mapping[str, str] = MappingProxyType({})
    ) -> Agent:
        """Make an agent for one conversation; the first message reports import errors.

        With `variables`, which are added to the environment, the agent has its own process: modules
        may read them at import, so no other conversation may use the process.
        """
        # Options are sent to the process as JSON.
        return ProcessAgent(self, replace(target, options=as_written(target.options)), variables)

    async def lend(
        self, target: AgentTarget, variables: Mapping[str, str]
    ) -> Result[WorkerProcess]:
        """Return a process in which the agent is open."""
        idle = next((each for each in self._idle if each[0] == target and not variables), None)
        if idle is not None:
            self._idle.remove(idle)
            # An idle process may have ended by itself.
            if isinstance(await self._open(idle[1], target), Ok):
                return Ok(idle[1])
        try:
            worker = await WorkerProcess.start({**self._environ, **variables}, self._redact)
        except OSError as error:
            who, reason = Who(target.id), error.strerror or error
            message = f"The process of agent {who.name!r} could not be started: {reason}"
            return Err(who.failed(message))
        opened = await self._open(worker, target)
        return Ok(worker) if isinstance(opened, Ok) else opened

    async def _open(self, worker: WorkerProcess, target: AgentTarget) -> Answer:
        """Open the agent in a process; if that fails, end the process."""
        opened = None
        try:
            opened = await worker.ask(Opening(target, str(self._root.resolve())), target.id)
        finally:
            if not isinstance(opened, Ok):
                await worker.end()
        return opened

    async def take_back(self, worker: WorkerProcess, target: AgentTarget, *, keep: bool) -> None:
        """Leave the agent in a process, and keep the process for another one if it is ready."""
        try:
            await worker.leave(target.id)
        finally:
            if keep and worker.is_ready:
                self._idle.append((target, worker))
            else:
                await worker.end()
        if len(self._idle) > _MAX_IDLE:
            await self._idle.popleft()[1].end()


class ProcessAgent:
    """Implements `ports.Agent` by a process that is borrowed for one conversation."""

    _lent: Result[WorkerProcess]

    def __init__(
        self, processes: PythonProcesses, target: AgentTarget, variables: Mapping[str, str]
    ) -> None:
        self._processes = processes
        self._target = target
        self._variables = variables

    async def __aenter__(self) -> Self:
        self._lent = await self._processes.lend(self._target, self._variables)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if isinstance(self._lent, Ok):
            keep = not self._variables
            await self._processes.take_back(self._lent.value, self._target, keep=keep)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        if isinstance(self._lent, Err):
            return self._lent
        answer = await self._lent.value.ask(request, self._target.id)
        if isinstance(answer, Err):
            return answer
        assert answer.value is not None
        return Ok(answer.value)
