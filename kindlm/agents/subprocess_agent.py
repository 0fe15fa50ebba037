"""The `subprocess` adapter: a program that exchanges lines of JSON, or runs once for each message.

The section "subprocess" of docs/how-to/agents.md has what a program gets and answers. With
`oneShot`, kindlm reads its output like that of a command, otherwise each line like the body of an
HTTP agent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from kindlm.agents.agent_failures import AgentFailure
from kindlm.agents.command import PRINT_UTF_8, run_once
from kindlm.agents.http_request import (
    PLACEHOLDERS,
    all_messages,
    check_placeholders,
    last_user_text,
    make_body,
    placeholders,
    request_warnings,
)
from kindlm.agents.message_answers import read_answer
from kindlm.agents.reply_parts import UnreadableReply, not_decoded
from kindlm.agents.reply_reading import Reading, ResponsePath, ToolCallsPath
from kindlm.agents.sandbox import (
    MAX_OUTPUT_BYTES,
    LocalSandbox,
    ProgramOptions,
    ProgramWho,
    Sandbox,
    SandboxError,
    StartedProgram,
    TooMuchOutput,
    program_secrets,
)
from kindlm.dataclass import replace
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import AgentReply, AgentRequest, ConversationSpoilt
from kindlm.section import CommandLine, Maybe, Text
from kindlm.spelling import Spelling
from kindlm.strict_json import as_text, ascii_json
from kindlm.suite import AgentTarget
from kindlm.transcript import Role
from kindlm.values import refuse
from kindlm.wires import parse_object


class Program(ProgramOptions):
    """Options of agents that are programs."""

    takes_headers: ClassVar[bool] = False
    starts_program: ClassVar[bool] = True
    system_text_hint: ClassVar[str] = (
        "Put {{system}} into its `command`, or use a prompt without it"
    )

    command: CommandLine = Field(examples=["python agent.py"])
    one_shot: bool = Field(default=False, examples=[True])
    """Start the program for each message (`subprocess`). It gets the message where `command` has
    {{message}}, else on standard input, and prints its answer as text. {{messages}}, {{system}} and
    {{conversation_id}} are available, too. By default one program answers a whole conversation, in
    lines of JSON."""
    sandbox: Literal["local", "daytona"] = Field(default="local", examples=["daytona"])
    """Where the program runs (`subprocess`): `local`, the default, or `daytona`, a sandbox of
    Daytona for each conversation (the extra `kindlm[daytona]`). If no sandbox can be created,
    kindlm warns and runs the program on this machine."""
    snapshot: Maybe[Text] = Field(default=None, examples=["shop-agent"])
    """Daytona snapshot of the sandboxes (`subprocess` with `sandbox: daytona`). It must contain the
    program. By default that of the account."""
    response_path: ResponsePath = None
    tool_calls_path: ToolCallsPath = None

    @model_validator(mode="after")
    def _can_be_filled(self) -> Self:
        if self.one_shot:
            check_placeholders(self.words, key="command")
        elif misplaced := next((it for it in placeholders(self.words) if it in PLACEHOLDERS), None):
            message = (
                f"has {{{{{misplaced}}}}}, which has no effect: such a program reads JSON lines"
            )
            raise refuse(message, "Add `oneShot: true`, or remove it", key="command")
        return self

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        """Check nothing: a program has no endpoint."""

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> LineAgent | OneShotAgent:
        gateway = environ.get("KINDLM_GATEWAY", "{{gateway}}")
        env = {name: text.replace("{{gateway}}", gateway) for name, text in self.env.items()}
        kind = OneShotAgent if self.one_shot else LineAgent
        who = ProgramWho(target.id, program_secrets(self.env), tuple(self.words))
        return kind(who, self.model_copy(update={"env": env}), environ, target.directory)

    def sends_system_text(self) -> bool:
        names = {"messages", "system"}
        return not self.one_shot or not names.isdisjoint(placeholders(self.words))

    def without_meaning(self, spelling: Spelling) -> Iterator[tuple[str, str, str]]:
        """Yield an address, paths into an answer that is not JSON, and an unused snapshot."""
        for key in ("endpoint", "url"):
            hint = "Remove it: `command` determines what starts"
            yield key, "for the adapter subprocess", hint
        for key in ("responsePath", "toolCallsPath") if self.one_shot else ():
            hint = "Remove it: the output of such a program is its answer"
            yield key, f"with `{spelling.key('oneShot')}`", hint
        if self.sandbox == "local":
            hint = f"Add `{spelling.line('sandbox', 'daytona')}`, or remove it"
            yield "snapshot", "without a sandbox", hint


_log = logging.getLogger(__name__)


class _ProgramAgent:
    """The base of both kinds of programs; a subclass adds `send` of `ports.Agent`.

    `environ` is the environment of the run; only programs on this machine get it. `directory` is
    the folder of the file that configures the agent.
    """

    def __init__(
        self, who: ProgramWho, options: Program, environ: Mapping[str, str], directory: str | None
    ) -> None:
        self._who = who
        self._options = options
        self._environ = environ
        folder = (Path(directory or ".") / options.cwd).resolve()
        self._sandbox: Sandbox = LocalSandbox(folder, {**environ, **options.env})
        self._warnings: tuple[str, ...] = ()  # of the first answer
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Create the sandbox of the conversation.

        If no Daytona sandbox can be created, the program runs on this machine, with a warning.
        """
        options = self._options
        if options.sandbox == "daytona":
            from kindlm.agents.daytona_sandbox import daytona_sandbox

            creating = daytona_sandbox(options.snapshot, options.env, options.cwd, self._environ)
            try:
                self._sandbox = await self._stack.enter_async_context(creating)
            except SandboxError as error:
                message = "the program ran on this machine, because no Daytona sandbox could be"
                self._warnings = (self._who.clean(f"{message} created: {error}"),)
                _log.warning("%s has no Daytona sandbox", self._who.title)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    def _warned(self, reply: AgentReply, not_sent: tuple[str, ...]) -> AgentReply:
        """Return a reply with all warnings."""
        first, self._warnings = self._warnings, ()
        return replace(reply, warnings=(*first, *not_sent, *reply.warnings))


class OneShotAgent(_ProgramAgent):
    """Implements `ports.Agent`; no program runs between messages."""

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        program, *rest = self._who.words
        words, given = [program, *rest], last_user_text(request).encode("utf-8", "replace")
        if placeholders(rest):  # a message cannot name the program
            words, given = [program, *map(as_text, make_body(request, "message", rest))], b""
        answer = await run_once(self._sandbox, self._who, words, given, request.timeout_s)
        if isinstance(answer, Err):
            return answer
        sends_system, names = self._options.sends_system_text(), set(placeholders(self._who.words))
        not_sent = request_warnings(request, sends_system=sends_system, sends_context=False)
        users = sum(message.role is Role.USER for message in request.messages)
        if users > 1 and names.isdisjoint({"messages", "conversation_id"}):
            earlier = "a one-shot program gets them through {{messages}} in its `command`"
            not_sent = (*not_sent, f"earlier messages were not sent: {earlier}")
        return Ok(self._warned(answer.value, not_sent))


_ONE_LINE = (
    "It must print one JSON object in one line for each message, and nothing else. Other "
    "output belongs on standard error"
)


class LineAgent(_ProgramAgent):
    """Implements `ports.Agent`; one program answers all messages of a conversation."""

    _program: StartedProgram | None = None
    _has_begun = False
    _is_idle = False

    async def __aexit__(self, *exception: object) -> None:
        """Let the program end by itself, then end it with all processes that it started.

        Raises `ConversationSpoilt` if it printed more lines than it got messages: kindlm cannot
        know which line answers which message.
        """
        try:
            if self._program is not None and self._is_idle:
                await self._program.leave()
                if self._program.has_more and exception[:1] in ((), (None,)):
                    raise ConversationSpoilt(self._unexpected_line())
        except (TooMuchOutput, SandboxError):
            _log.warning("%s failed while closing", self._who.title)
        finally:
            await self._stack.aclose()

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send the program one message; see `ports.Agent`. After an error, the program is ended."""
        try:
            return Ok(await self._answer(request))
        except AgentFailure as failed:
            self._program = None
            await self._stack.aclose()
            return Err(failed.error)

    async def _answer(self, request: AgentRequest) -> AgentReply:
        if self._has_begun and self._program is None:
            raise AgentFailure(self._failure("has ended"))
        if self._program is not None and self._program.has_more:
            raise AgentFailure(self._unexpected_line())
        body = {
            "message": last_user_text(request),
            "messages": all_messages(request),
            "conversation_id": request.conversation,
            "context": request.context,
        }
        self._has_begun, self._is_idle = True, False
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s):
                if self._program is None:
                    starting = self._sandbox.start(self._who.words, None, MAX_OUTPUT_BYTES)
                    self._program = await self._stack.enter_async_context(starting)
                program = self._program
                await program.write_line(ascii_json(body))
                while (line := await program.read_line()) and not line.strip():
                    pass
                ended = "" if line else await program.ending()
        except (TimeoutError, TooMuchOutput, SandboxError, OSError, ValueError) as raised:
            log = "" if self._program is None else self._program.log
            raise AgentFailure(self._who.broke_off(raised, log, request.timeout_s)) from raised
        latency_ms = (time.perf_counter() - begun) * 1000
        if not line:
            raise AgentFailure(self._failure(f"{ended} without an answer"))
        self._is_idle = True
        raw = line.decode("utf-8", "replace").strip()
        options = self._options
        reading = Reading(
            response_path=options.response_path, tool_calls_path=options.tool_calls_path
        )
        try:
            value = parse_object(raw.removeprefix("\ufeff"))
            reply = read_answer(value, last_user_text(request), reading)
        except UnreadableReply as error:
            raise AgentFailure(self._who.unreadable(error, raw, hint=_ONE_LINE)) from error
        if program.has_more:
            raise AgentFailure(self._unexpected_line())
        reply = replace(reply, raw=raw, latency_ms=latency_ms)
        not_sent = request_warnings(request, sends_system=True)
        return self._warned(reply, (*not_decoded(raw, PRINT_UTF_8), *not_sent))

    def _failure(self, what: str) -> KindlmError:
        return self._who.program_failure(what, "" if self._program is None else self._program.log)

    def _unexpected_line(self) -> KindlmError:
        return replace(self._failure("printed an unexpected line"), hint=_ONE_LINE)
