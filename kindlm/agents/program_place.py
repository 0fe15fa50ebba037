"""Makes the place where the program of an agent runs: a sandbox if it can, else this machine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kindlm.agents.local_sandbox import LocalSandbox
from kindlm.agents.sandbox import NoSandboxError, Sandbox
from kindlm.agents.subprocess_options import ProgramSettings

__all__ = ["Place", "place"]

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
