"""Programs as agents under test: what a program prints is its answer.

It gets its variables as arguments, no message and no input: it answers once, with its whole run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from kindlm.agents import failures
from kindlm.agents.command_output import REPORTS_HINT, printed_reply
from kindlm.agents.process_group import Output, TooMuchOutput, how_it_ended, started
from kindlm.agents.program_failures import MAX_OUTPUT_BYTES, TOO_MUCH
from kindlm.agents.program_words import program_name, runnable
from kindlm.agents.unreadable import UnreadableReply
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import Command

__all__ = ["CommandAgent", "command_agent"]

_KEPT_STDERR_BYTES = 16_384
_WHO = failures.Who("command")


def command_agent(command: Command, environ: Mapping[str, str], root: Path) -> Ok[CommandAgent]:
    """Make an agent of a program; it starts with the first message."""
    del root  # a command has its own folder
    return Ok(CommandAgent(command, environ))


class CommandAgent:
    """Implements `ports.Agent`: each message starts the program anew."""

    def __init__(self, command: Command, environ: Mapping[str, str]) -> None:
        self._command = command
        self._environ = environ

    async def __aenter__(self) -> Self:
        """Open nothing: the program runs only while it answers."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Run the program to its end; see `ports.Agent`.

        Nothing is retried: what a program did once, it may not be meant to do twice.
        """
        stdout = Output(MAX_OUTPUT_BYTES, keeps_tail=False)
        stderr = Output(_KEPT_STDERR_BYTES, keeps_tail=True)
        try:
            async with asyncio.timeout(request.timeout_s):
                code, latency_ms = await self._run(stdout, stderr)
        except TimeoutError:
            return Err(self._too_slow(request.timeout_s, stdout, stderr))
        except TooMuchOutput:
            return Err(self._error(TOO_MUCH, stdout, stderr))
        except (OSError, ValueError) as error:
            return Err(self._not_started(error))
        if code != 0:
            return Err(self._error(how_it_ended(code), stdout, stderr))
        try:
            return Ok(printed_reply(_text(stdout), latency_ms))
        except UnreadableReply as error:
            return Err(failures.of_reply(_WHO, error, _text(stdout), hint=REPORTS_HINT))

    async def _run(self, stdout: Output, stderr: Output) -> tuple[int, float]:
        """Return the exit code, and how long the program itself ran in milliseconds."""
        begun = time.perf_counter()
        async with started(
            runnable(self._command.words),
            directory=self._command.directory,
            environ={**self._environ, **self._command.env},
            stdout=stdout,
            stderr=stderr,
        ) as program:
            code = await program.exit_code()
            latency_ms = (time.perf_counter() - begun) * 1000
            await program.drained()
        return code, latency_ms

    def _not_started(self, error: OSError | ValueError) -> KindlmError:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return failures.failed(
            _WHO,
            ErrorCode.PROVIDER_API_ERROR,
            f"The command {self._name()} could not be started: {reason}",
            f"Check `command`; it runs in {self._command.directory}, without a shell",
        )

    def _too_slow(self, timeout_s: float, stdout: Output, stderr: Output) -> KindlmError:
        return failures.failed(
            _WHO,
            ErrorCode.PROVIDER_TIMEOUT,
            f"The command {self._name()} did not end within {timeout_s * 1000:.0f} ms",
            "Raise defaults.timeoutMs, or check what the program waits for",
            body=_printed(stdout, stderr),
        )

    def _error(self, what: str, stdout: Output, stderr: Output) -> KindlmError:
        last_words = _WHO.last_words(_text(stderr))
        message = f"The command {self._name()} {what}"
        return failures.failed(
            _WHO,
            ErrorCode.PROVIDER_API_ERROR,
            f"{message}: {last_words}" if last_words else message,
            "Run it by itself, in the folder of the configuration",
            body=_printed(stdout, stderr),
        )

    def _name(self) -> str:
        return _WHO.quote(program_name(self._command.words))


def _printed(stdout: Output, stderr: Output) -> str:
    return "\n".join(filter(None, (_text(stdout), _text(stderr))))


def _text(output: Output) -> str:
    return output.data.decode("utf-8", "replace")
