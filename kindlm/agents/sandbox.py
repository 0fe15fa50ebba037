"""Where the program of an agent runs, as far as talking to it needs to know."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kindlm.agents.local_sandbox import LocalSandbox
from kindlm.agents.subprocess_options import ProgramSettings


class NoSandboxError(Exception):
    """A sandbox could not be made; the message says why."""


class SandboxError(Exception):
    """A sandbox failed while something ran in it; the message says how."""


class StartedProgram(Protocol):
    """A program that runs. What it prints is read all the while.

    Everything here raises `SandboxError` when the sandbox itself fails.
    """

    @property
    def has_more(self) -> bool:
        """Whether it has printed something that nobody has read yet."""
        ...

    @property
    def log(self) -> str:
        """The end of what it printed as errors."""
        ...

    async def write_line(self, line: bytes) -> None:
        """Give it a line, which holds no line end; one that takes no more input is no error."""
        ...

    async def read_line(self) -> bytes | None:
        """Return its next line without the end, None if there will be none.

        Raises `TooMuchOutput` if there is more to read than may be.
        """
        ...

    async def exit_code(self) -> int | None:
        """Return the code it ended with, negative for a signal; None if it goes on.

        For one that is not expected to go on: it is given a moment to end.
        """
        ...

    async def leave(self) -> None:
        """Tell it that there will be no more input, as far as the sandbox can, and let it end."""
        ...


class Sandbox(Protocol):
    """Runs programs."""

    def start(
        self, words: Sequence[str], given: bytes | None, limit: int
    ) -> AbstractAsyncContextManager[StartedProgram]:
        """Start a program, without a shell that would look at its words; ended when it is left.

        Args:
            words: the program and its arguments.
            given: all of its input; None for one that is given lines while it runs.
            limit: how many bytes it may print before they are read.

        Raises:
            OSError, ValueError: it could not be started.
            SandboxError: the sandbox failed.
        """
        ...


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where programs run, and what users should know of it."""

    sandbox: Sandbox
    warnings: tuple[str, ...] = ()


@asynccontextmanager
async def place(
    settings: ProgramSettings, environ: Mapping[str, str], home: Path
) -> AsyncIterator[Place]:
    """Make the place for one conversation, and unmake it.

    A sandbox that cannot be made is a warning: what was to run in it runs on this machine.

    Args:
        settings: what is configured.
        environ: the environment of the run. Only programs on this machine have it.
        home: the folder of the file that names the agent.
    """
    local = LocalSandbox((home / settings.folder).resolve(), environ={**environ, **settings.env})
    if settings.sandbox != "daytona":
        yield Place(local)
        return
    from kindlm.agents.daytona_sandbox import daytona_sandbox

    async with AsyncExitStack() as stack:
        try:
            made = await stack.enter_async_context(daytona_sandbox(settings, environ))
        except NoSandboxError as error:
            warning = settings.who.clean(
                f"the program ran on this machine: no Daytona sandbox could be made: {error}"
            )
            _log.warning("%s: %s", settings.who.title, warning)
            yield Place(local, (warning,))
        else:
            yield Place(made)
