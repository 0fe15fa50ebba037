"""An agent that is a program, talked to in lines of JSON.

It is started with the first message of a conversation, and ended with it. For each message it is
given one line with a JSON object on its standard input:

    {"message", "messages": [{"role", "content"}], "conversation_id", "context"}

`message` is what is to be answered, `messages` all that was said, the system text first and the
message last; `context` is what the test sends along, or null. It answers with one line that is a
JSON object, read like the body of an HTTP agent; `{"error": ...}` says that it failed. Empty lines
mean nothing. What it prints as errors is its log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from typing import Self

from kindlm.agents import failures
from kindlm.agents.http_request import make_body, request_warnings
from kindlm.agents.process_group import TooMuchOutput, how_it_ended
from kindlm.agents.program_failures import MAX_OUTPUT_BYTES, of_exchange, of_program
from kindlm.agents.program_place import Place
from kindlm.agents.reply_reading import (
    AgentFailed,
    Told,
    UnreadableReply,
    agent_reply,
    read_reply,
)
from kindlm.agents.sandbox import SandboxError, StartedProgram
from kindlm.agents.subprocess_options import ProgramSettings
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import AgentReply, AgentRequest, ConversationSpoilt
from kindlm.strict_json import parse_json, unique_keys

__all__ = ["LineAgent"]

_log = logging.getLogger(__name__)

_ONE_LINE = (
    "It must print one JSON object in one line for each message, and nothing else: what else it "
    "has to say goes to its standard error"
)
_FORM = {
    "message": "{{message}}",
    "messages": "{{messages}}",
    "conversation_id": "{{conversation_id}}",
}


class LineAgent:
    """Implements `ports.Agent`.

    Args:
        settings: how the program is run.
        place: makes the place where it runs.
    """

    def __init__(
        self, settings: ProgramSettings, place: Callable[[], AbstractAsyncContextManager[Place]]
    ) -> None:
        self._settings = settings
        self._who = settings.who
        self._make_place = place
        self._place: Place | None = None
        self._program: StartedProgram | None = None
        self._is_idle = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin a conversation; nothing is started before its first message."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Let the program end by itself, then end it with all that it started.

        Raises `ConversationSpoilt` if it printed more lines than it was given messages: which of
        them answers which message, nobody knows.
        """
        try:
            if self._program is not None and self._is_idle:
                await self._program.leave()
                if self._program.has_more and exception[:1] in ((), (None,)):
                    raise ConversationSpoilt(self._unasked())
        except (TooMuchOutput, SandboxError) as error:
            _log.warning("%s failed while it was being left: %s", self._who.title, error)
        finally:
            await self._stack.aclose()

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Give the program one message; see `ports.Agent`. After an error it has ended."""
        result = await self._answer(request)
        if isinstance(result, Err):
            self._program = None
            await self._stack.aclose()
        return result

    async def _answer(self, request: AgentRequest) -> Result[AgentReply]:
        place_warnings: tuple[str, ...] = ()
        if self._place is None:
            self._place = await self._stack.enter_async_context(self._make_place())
            place_warnings = self._place.warnings
        elif self._program is None:
            return Err(self._error("has ended"))
        elif self._program.has_more:
            return Err(self._unasked())
        self._is_idle = False
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s):
                line = await self._exchange(self._place, _request_line(request))
                code = await self._program.exit_code() if line is None and self._program else None
        except (TimeoutError, TooMuchOutput, SandboxError, OSError, ValueError) as raised:
            words, log = self._settings.words, self._said()
            return Err(of_exchange(self._who, words, raised, log, request.timeout_s))
        latency_ms = (time.perf_counter() - begun) * 1000
        if line is None:
            return Err(self._error(_without_answer(code)))
        self._is_idle = True
        return self._reply(line, latency_ms, request, place_warnings)

    async def _exchange(self, place: Place, line: bytes) -> bytes | None:
        """Return the line that answers one, None if the program has printed its last."""
        if self._program is None:
            starting = place.sandbox.start(self._settings.words, None, MAX_OUTPUT_BYTES)
            self._program = await self._stack.enter_async_context(starting)
        await self._program.write_line(line)
        while (answer := await self._program.read_line()) is not None:
            if answer.strip():
                break
        return answer

    def _reply(
        self, line: bytes, latency_ms: float, request: AgentRequest, warnings: tuple[str, ...]
    ) -> Result[AgentReply]:
        raw = line.decode("utf-8", "replace").strip()
        try:
            told = self._read(raw)
        except AgentFailed as failure:
            return Err(failures.of_report(self._who, str(failure), raw))
        except UnreadableReply as error:
            return Err(failures.of_reply(self._who, error, raw, hint=_ONE_LINE))
        notes = (*warnings, *request_warnings(request, says_system=True))
        if self._program is not None and self._program.has_more:
            return Err(self._unasked())
        return Ok(agent_reply(told, raw, latency_ms, notes))

    def _read(self, raw: str) -> Told:
        """Return what an answer says."""
        try:
            value = parse_json(raw.removeprefix("\ufeff"), unique_keys)
        except ValueError as error:
            raise UnreadableReply(f"no JSON: {error}") from None
        if not isinstance(value, dict):
            raise UnreadableReply("it is JSON, but no object")
        return read_reply(value, self._settings.reading)

    def _said(self) -> str:
        return "" if self._program is None else self._program.log

    def _unasked(self) -> KindlmError:
        return self._error("printed something that it was not asked for", hint=_ONE_LINE)

    def _error(self, what: str, hint: str | None = None) -> KindlmError:
        error = of_program(self._who, self._settings.words, what, self._said())
        return error if hint is None else replace(error, hint=hint)


def _request_line(request: AgentRequest) -> bytes:
    body = {**make_body(request, "message", _FORM), "context": request.context}
    # Plain ASCII, so that lone surrogates, which models do write, survive the way.
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def _without_answer(code: int | None) -> str:
    """Say how a program ended instead of answering."""
    if code is None:
        return "closed its output without an answer"
    return f"{how_it_ended(code)} without an answer"
