"""An agent that is a program which answers one message, and ends.

It is started anew for each message, which it is given in its arguments where they have
`{{message}}` or another placeholder of a body template, else as all of its input. What it prints is
its answer, read like what a command prints.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from typing import Self

from kindlm.agents import failures
from kindlm.agents.command_output import REPORTS_HINT, printed_reply
from kindlm.agents.http_request import last_user_text, make_body, placeholders
from kindlm.agents.json_values import compact_json
from kindlm.agents.process_group import TooMuchOutput, how_it_ended
from kindlm.agents.program_failures import MAX_OUTPUT_BYTES, of_exchange, of_program
from kindlm.agents.program_place import Place
from kindlm.agents.sandbox import SandboxError, StartedProgram
from kindlm.agents.subprocess_options import ProgramSettings
from kindlm.agents.unreadable import UnreadableReply
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.transcript import Role

__all__ = ["OneShotAgent"]


class OneShotAgent:
    """Implements `ports.Agent`.

    Args:
        settings: how the program is run.
        place: makes the place where it runs, one for the conversation.
    """

    def __init__(
        self, settings: ProgramSettings, place: Callable[[], AbstractAsyncContextManager[Place]]
    ) -> None:
        self._settings = settings
        self._make_place = place
        self._place: Place | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin a conversation; nothing is started before its first message."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Leave the place; no program runs between messages."""
        await self._stack.aclose()

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Run the program to its end; see `ports.Agent`."""
        warnings = _not_sent(self._settings.words, request)
        if self._place is None:
            self._place = await self._stack.enter_async_context(self._make_place())
            warnings = (*self._place.warnings, *warnings)
        who, words = self._settings.who, self._settings.words
        run = _Run()
        try:
            await run.to_its_end(self._place, *_filled(words, request), request.timeout_s)
        except (TimeoutError, TooMuchOutput, SandboxError, OSError, ValueError) as raised:
            return Err(of_exchange(who, words, raised, run.log, request.timeout_s))
        if run.code != 0:
            what = "closed its output and went on" if run.code is None else how_it_ended(run.code)
            return Err(of_program(who, words, what, run.log, printed=run.printed))
        try:
            reply = printed_reply(run.printed, run.latency_ms)
        except UnreadableReply as error:
            return Err(failures.of_reply(who, error, run.printed, hint=REPORTS_HINT))
        return Ok(replace(reply, warnings=(*warnings, *reply.warnings)))


@dataclass(slots=True)
class _Run:
    """One run of a program, as far as it got."""

    program: StartedProgram | None = None
    printed: str = ""
    latency_ms: float = 0.0
    code: int | None = None

    @property
    def log(self) -> str:
        return "" if self.program is None else self.program.log

    async def to_its_end(
        self, place: Place, words: Sequence[str], given: bytes, timeout_s: float
    ) -> None:
        begun = time.perf_counter()
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(timeout_s):
                starting = place.sandbox.start(words, given, MAX_OUTPUT_BYTES)
                self.program = await stack.enter_async_context(starting)
                self.printed = await _all_lines(self.program)
                self.latency_ms = (time.perf_counter() - begun) * 1000
                self.code = await self.program.exit_code()


async def _all_lines(program: StartedProgram) -> str:
    lines, size = list[bytes](), 0
    while (line := await program.read_line()) is not None:
        size += len(line) + 1
        if size > MAX_OUTPUT_BYTES:
            raise TooMuchOutput
        lines.append(line)
    return b"\n".join(lines).decode("utf-8", "replace")


def _filled(words: Sequence[str], request: AgentRequest) -> tuple[list[str], bytes]:
    """Return the words with what they ask for, and the input: the message if they do not."""
    if not any(placeholders(list(words))):
        return list(words), last_user_text(request).encode("utf-8", "replace")
    values = make_body(request, "message", list(words))
    return [value if isinstance(value, str) else compact_json(value) for value in values], b""


def _not_sent(words: Sequence[str], request: AgentRequest) -> tuple[str, ...]:
    """Return what the program is not told of a conversation."""
    told = set(placeholders(list(words)))
    roles = [message.role for message in request.messages if not message.prefill]
    warnings = []
    if Role.SYSTEM in roles and told.isdisjoint({"messages", "system"}):
        warnings.append("the system prompt was not sent: the `command` has no {{system}}")
    if roles.count(Role.USER) > 1 and told.isdisjoint({"messages", "conversation_id"}):
        warnings.append(
            "earlier messages were not sent: a program with `oneShot` is told of them by "
            "{{messages}} in its `command`"
        )
    if any(message.prefill for message in request.messages):
        warnings.append("prefill was not sent: an agent writes its own answer")
    if request.context:
        warnings.append("the context was not sent: only programs without `oneShot` get one")
    return tuple(warnings)
