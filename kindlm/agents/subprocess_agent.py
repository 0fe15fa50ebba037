"""The `subprocess` adapter: an agent that is a program, talked to in lines or started each time.

It runs on this machine, or in a sandbox.

With `oneShot` it is started anew for each message, which it is given in its arguments where they
have `{{message}}` or another placeholder of a body template, else as all of its input. What it
prints is its answer, read like what a command prints.

Else it is talked to in lines of JSON. It is started with the first message of a conversation, and
ended with it. For each message it is given one line with a JSON object on its standard input:

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from kindlm.agents import failures
from kindlm.agents.command import REPORTS_HINT, printed_reply
from kindlm.agents.http_request import last_user_text, make_body, placeholders, request_warnings
from kindlm.agents.json_values import compact_json
from kindlm.agents.process_group import TooMuchOutput, how_it_ended
from kindlm.agents.program_failures import MAX_OUTPUT_BYTES, of_exchange, of_program
from kindlm.agents.reply_reading import AgentFailed, Told, agent_reply, read_reply
from kindlm.agents.sandbox import Place, SandboxError, StartedProgram, place
from kindlm.agents.subprocess_options import ProgramSettings, program_settings
from kindlm.agents.unreadable import UnreadableReply
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import AgentReply, AgentRequest, ConversationSpoilt
from kindlm.strict_json import parse_json, unique_keys
from kindlm.suite import AgentTarget
from kindlm.transcript import Role


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


def subprocess_agent(
    target: AgentTarget, environ: Mapping[str, str], root: Path
) -> Result[LineAgent | OneShotAgent]:
    """Make an agent for one conversation; see subprocess_options for its options."""
    checked = program_settings(target)
    if isinstance(checked, Err):
        return checked
    settings = checked.value
    home = root.resolve() / (target.directory or ".")
    kind = OneShotAgent if settings.one_shot else LineAgent
    return Ok(kind(settings, partial(place, settings, environ, home)))
