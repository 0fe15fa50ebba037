"""Runs the program of an agent in a sandbox of Daytona (the extra `kindlm[daytona]`).

See "Sandboxes" in docs/how-to/agents.md.

A program runs as a command of a session (https://www.daytona.io/docs/en/process-code-execution/),
and kindlm reads its output while it runs. A sandbox cannot close the input of a program. A program
that waits for the end of its input ends with its sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kindlm.agents.sandbox import SandboxError, StartedProgram, TooMuchOutput
from kindlm.programs import LastOutput

if TYPE_CHECKING:
    from daytona import AsyncSandbox


_KEY = "DAYTONA_API_KEY"
_CREATE_S = 60.0
_DELETE_S = 30.0
_STARTED = "kindlm: the program is started"
"""A line on standard error before the program starts: from then on, it takes input."""


def what_is_lacking(environ: Mapping[str, str]) -> str | None:
    """Return why no sandbox can be created; None if nothing is known to be lacking."""
    if find_spec("daytona") is None:
        return "the package daytona is not installed: pip install 'kindlm[daytona]'"
    if not environ.get(_KEY):
        return f"the environment variable {_KEY} is not set"
    return None


@asynccontextmanager
async def daytona_sandbox(
    snapshot: str | None, env: Mapping[str, str], folder: str, environ: Mapping[str, str]
) -> AsyncIterator[DaytonaSandbox]:
    """Create a sandbox from a snapshot, None for the account's default, and delete it at the end.

    Programs run in the `folder`, with `env`. Raises `SandboxError` if the creation fails.
    """
    if (lacking := what_is_lacking(environ)) is not None:
        raise SandboxError(lacking)
    from daytona import AsyncDaytona, CreateSandboxFromSnapshotParams, DaytonaConfig

    key = environ[_KEY]
    config = DaytonaConfig(
        api_key=key, api_url=environ.get("DAYTONA_API_URL"), target=environ.get("DAYTONA_TARGET")
    )
    # Deleted as soon as it stops; it stops by itself if kindlm cannot delete it.
    params = CreateSandboxFromSnapshotParams(snapshot=snapshot, env_vars=dict(env), ephemeral=True)
    async with AsyncExitStack() as stack:
        try:
            with _sdk_errors():
                client = AsyncDaytona(config)
                stack.push_async_callback(_quietly, client.close)
                sandbox = await client.create(params, timeout=_CREATE_S)
        except SandboxError as error:
            raise SandboxError(str(error).replace(key, "[hidden]")) from None
        stack.push_async_callback(_quietly, partial(sandbox.delete, timeout=_DELETE_S))
        yield DaytonaSandbox(sandbox, folder)


class DaytonaSandbox:
    """Implements `sandbox.Sandbox`."""

    def __init__(self, sandbox: AsyncSandbox, folder: str) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._sessions = 0

    @asynccontextmanager
    async def start(
        self, words: Sequence[str], given: bytes | None, limit: int
    ) -> AsyncIterator[DaytonaProgram]:
        from daytona import SessionExecuteRequest

        self._sessions += 1
        session = f"kindlm-{self._sessions}"
        process = self._sandbox.process
        async with AsyncExitStack() as stack:
            with _sdk_errors():
                await process.create_session(session)
                delete = partial(process.delete_session, session, request_timeout=_DELETE_S)
                stack.push_async_callback(_quietly, delete)
                command = await process.execute_session_command(
                    session,
                    SessionExecuteRequest(
                        command=_command_line(words, given, self._folder),
                        run_async=True,
                        suppress_input_echo=True,
                    ),
                )
            program = DaytonaProgram(self._sandbox, session, command.cmd_id, limit)
            stack.push_async_callback(program.stop_reading)
            await program.started()
            yield program


class DaytonaProgram(StartedProgram):
    """A command of a session."""

    def __init__(self, sandbox: AsyncSandbox, session: str, command: str, limit: int) -> None:
        super().__init__(limit, LastOutput())
        self._process = sandbox.process
        self._session = session
        self._command = command
        self._started = asyncio.get_running_loop().create_future()
        self._before = ""
        self._read(self._follow())

    async def started(self) -> None:
        """Wait until the program takes input."""
        waiting = (self._started, self._reading)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self._started.done():
            self._reading.result()
            reason = self._before.strip()
            raise SandboxError(f"the program did not start{': ' if reason else ''}{reason}")

    async def write_line(self, line: bytes) -> None:
        try:
            with _sdk_errors():
                await self._process.send_session_command_input(
                    self._session, self._command, line.decode("ascii") + "\n"
                )
        except SandboxError:
            # If the program has ended, its output says more.
            if await self.exit_code() is None:
                raise

    async def exit_code(self) -> int | None:
        """Return its exit code; its output is only complete once it has ended."""
        with _sdk_errors():
            found = await self._process.get_session_command(self._session, self._command)
        return None if found.exit_code is None else int(found.exit_code)

    async def leave(self) -> None:
        """Do nothing: a sandbox cannot close the input of a program."""

    async def _follow(self) -> None:
        try:
            with _sdk_errors():
                await self._process.get_session_command_logs_async(
                    self._session,
                    self._command,
                    lambda text: self.add(text.encode("utf-8", "replace")),
                    self._add_errors,
                )
        except SandboxError:
            # The SDK wraps any exception raised while it reads in an error of its own.
            if self.has_too_much:
                raise TooMuchOutput from None
            raise

    def _add_errors(self, text: str) -> None:
        if not self._started.done():
            self._before += text
            self._before, found, text = self._before.partition(f"{_STARTED}\n")
            if found:
                self._started.set_result(None)
        self.errors.add(text.encode("utf-8", "replace"))


def _command_line(words: Sequence[str], given: bytes | None, folder: str) -> str:
    """Return the command line for the shell of a sandbox, with the program quoted."""
    program = shlex.join(words)
    if given:
        program = f"printf %s {shlex.quote(given.decode('utf-8', 'replace'))} | {program}"
    elif given is not None:
        program = f"{program} < /dev/null"
    return f"cd -- {shlex.quote(folder)} && echo {shlex.quote(_STARTED)} >&2 && {program}"


@contextmanager
def _sdk_errors() -> Iterator[None]:
    """Convert errors of the SDK and the connection to `SandboxError`."""
    import aiohttp
    from daytona import DaytonaError

    try:
        yield
    except (DaytonaError, aiohttp.ClientError, OSError, ValueError) as error:
        if isinstance(error, TimeoutError):
            raise SandboxError("it did not answer in time") from error
        raise SandboxError(str(error) or type(error).__name__) from error


async def _quietly(end: Callable[[], Awaitable[object]]) -> None:
    """End something; errors are ignored, since the sandbox later deletes itself."""
    with contextlib.suppress(SandboxError), _sdk_errors():
        await end()
