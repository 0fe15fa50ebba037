"""The `python` adapter: an agent in the user's own Python, called in this process.

In a run, this process is a worker that serves one conversation at a time (`python_processes`).
docs/how-to/python-agents.md has the objects that `endpoint`, `package.module:name`, may name, what
they get, and how kindlm reads what they return or yield. A sync agent runs in its own thread, an
async one in the event loop. An agent that a function or class makes for a conversation is entered
before the first message and left at the end, if it is a context manager, plain or async.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, Field

from kindlm.agents.agent_failures import AgentFailure, Who
from kindlm.agents.frameworks import as_json, framework_of, reply_of
from kindlm.agents.http_request import last_user_text, request_warnings
from kindlm.agents.message_answers import read_answer
from kindlm.agents.reply_parts import UnreadableReply, compact_json
from kindlm.agents.reply_reading import Reading, ResponsePath, ToolCallsPath, read_reply
from kindlm.agents.user_code import (
    called,
    framework_for,
    importable,
    load,
    makes_an_agent,
    only_makes,
)
from kindlm.dataclass import replace
from kindlm.errors import DOCS, Err, ErrorCode, KindlmError, Ok, Result, error_text
from kindlm.packages import is_cancelled
from kindlm.plugins import Adapter, Framework
from kindlm.ports import AgentReply, AgentRequest, ConversationSpoilt
from kindlm.returned_values import impossible, wrong_error, wrong_with
from kindlm.same_calls import with_ids
from kindlm.section import FilePath
from kindlm.suite import AgentTarget
from kindlm.trace_context import MESSAGE_HEADERS
from kindlm.user_modules import is_of_pytest, missing_module_hint, user_trace
from kindlm.values import refuse

_log = logging.getLogger(__name__)
_KINDLM = Path(__file__).parents[1]
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_IN_FILE = re.compile(r"(?:python:)?(?:(?P<folder>[^:]+)/)?(?P<module>[^/:]+)\.py:(?P<name>[\w.]+)")
"""An object as other keys of kindlm.yaml and `kindlm gen` name it: `shop/agent.py:answer`."""
_RETURN = (
    'Return a text, or a dict such as `{"text": "Done.", "tool_calls": []}`; or a result of a'
    f" framework that kindlm knows ({DOCS}/how-to/python-agents/)"
)
_WRITE_A_FUNCTION = (
    "Write a function that takes a message, calls this object and returns the text of its answer:"
    f" {DOCS}/how-to/python-agents/#other-frameworks"
)
_TRACEBACK = "To see the traceback, show this execution with --verbose"

_ONE_LOOP = (
    "An asynchronous client works only in the event loop that first used it. Make the function"
    " async and await the"
    " framework (`await agent.run(text)` for `agent.run_sync(text)`), or make the client anew"
)


class Python(Adapter):
    """Options of agents in the user's own Python."""

    needs_endpoint: ClassVar[bool] = True
    takes_headers: ClassVar[bool] = False
    starts_program: ClassVar[bool] = True

    path: FilePath = Field(default=".", examples=["src"])
    """Folder to import the module from (`python`), relative to this file. By default the folder of
    this file. Missing modules are imported from the root of the project."""
    response_path: ResponsePath = None
    tool_calls_path: ToolCallsPath = None

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        if found := _IN_FILE.fullmatch(endpoint):
            hint = f"Name the module: {found['module']}:{found['name']}"
            if found["folder"]:
                hint += f", with `path: {found['folder']}`"
            raise refuse(f'"{endpoint}" names a file', hint)
        if not _DOTTED.fullmatch(endpoint):
            hint = "Write it as package.module:function"
            raise refuse(f'"{endpoint}" is not the name of a function', hint)


def python_agent(target: AgentTarget, root: Path) -> PythonAgent:
    """Import an agent for one conversation.

    Modules are imported from `path` of the target's options, which is relative to the folder of its
    file, else from the root folder. The options may be JSON values. A target that has the agent as
    an object needs no import. Raises `AgentFailure` if the import fails.
    """
    who = Who(target.id)
    options = target.options
    if not isinstance(options, Python):
        options = Python.model_validate(options or {})
    root = root.resolve()
    folder = (root / (target.directory or ".") / options.path).resolve()
    folders = tuple(dict.fromkeys((folder, root)))
    reading = Reading(response_path=options.response_path, tool_calls_path=options.tool_calls_path)
    if target.instance is not None:
        return PythonAgent(who, target.instance, folders, reading)
    try:
        found = load(target.endpoint, folders)
    except (Exception, SystemExit) as raised:
        failure = who.failed(
            f"{who.title}: {target.endpoint} could not be imported: "
            f"{error_text(raised, who.quote)}{_at(raised, (folder,))}",
            missing_module_hint(raised, folder)
            or f"Check its endpoint; it is imported from {folder}",
            code=ErrorCode.CONFIG_VALIDATION_ERROR,
            trace=user_trace(raised, _is_of_user),
        )
        raise AgentFailure(failure) from raised
    return PythonAgent(who, found, folders, reading)


class PythonAgent:
    """Implements `ports.Agent`."""

    def __init__(self, who: Who, found: Any, folders: Sequence[Path], reading: Reading) -> None:
        self._who = who
        self._found = found
        self._folders = folders
        self._reading = reading
        self._stack = AsyncExitStack()
        self._made: tuple[Any, Framework] | None = None

    async def __aenter__(self) -> Self:
        """Make the folders importable; the first message makes the agent."""
        self._stack.enter_context(importable(self._folders))
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Leave the agent; a failed `assert` spoils the conversation, other errors are logged."""
        try:
            await self._stack.aclose()
        except BaseException as raised:
            if is_cancelled(raised):
                raise
            if isinstance(raised, AssertionError) or is_of_pytest(raised, "Failed"):
                raise ConversationSpoilt(self._crashed(raised)) from raised
            _log.exception("%s failed while closing", self._who.title)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        headers = MESSAGE_HEADERS.set(request.headers)
        try:
            async with AsyncExitStack() as turn, asyncio.timeout(request.timeout_s) as deadline:
                self._made = agent, known = self._made or await self._make()
                deadline.reschedule(None)  # waiting for other conversations does not count
                await turn.enter_async_context(known.turn(agent))
                deadline.reschedule(asyncio.get_running_loop().time() + request.timeout_s)
                begun = time.perf_counter()  # creating the agent is not part of its answer
                with _answer_span(request.headers):
                    result = await known.send(agent, request)
                    # A streamed result is produced while it is read.
                    sent = last_user_text(request)
                    reply = await self._read(result, sent, known)
                latency_ms = (time.perf_counter() - begun) * 1000
        except AgentFailure as failed:
            return Err(failed.error)
        except UnreadableReply as endless:
            return Err(self._who.unreadable(endless, ""))
        except BaseException as raised:
            if is_cancelled(raised):
                raise
            if isinstance(raised, TimeoutError) and deadline.expired():
                return Err(self._who.timed_out(request.timeout_s))
            return Err(self._crashed(raised))
        finally:
            MESSAGE_HEADERS.reset(headers)
        warnings = request_warnings(
            request, sends_system=known.takes_system, sends_context=known.takes_context
        )
        return Ok(
            replace(
                reply,
                raw=reply.text if reply.raw is None else reply.raw,
                latency_ms=reply.latency_ms or latency_ms,
                warnings=(*warnings, *reply.warnings),
            )
        )

    async def _make(self) -> tuple[Any, Framework]:
        """Return the agent, and the framework that calls it."""
        agent = self._found
        for makes in (makes_an_agent, only_makes):  # a fixture may return what makes the agent
            if framework_of(agent) is not None or not makes(agent):
                break
            agent = await called(agent)
            if framework_of(agent) is not None or only_makes(agent):
                pass  # a framework enters its contexts itself, in each run
            elif hasattr(agent, "__aenter__"):
                agent = await self._stack.enter_async_context(agent)
            elif hasattr(agent, "__enter__"):
                agent = self._stack.enter_context(agent)
        if (framework := framework_of(agent)) is not None:
            return agent, framework
        send: Any = getattr(agent, "send", agent)
        if not callable(send):
            kind = f"{type(agent).__module__}.{type(agent).__qualname__}"
            wrong = f"{kind} can't be called and has no method `send`"
            raise AgentFailure(self._who.misconfigured(wrong, _WRITE_A_FUNCTION))
        return send, framework_for(send)

    async def _read(self, result: Any, sent: str, known: Framework) -> AgentReply:
        """Return the reply in the result for the message `sent`; `known` called the agent.

        Raises what a framework raises while it reads its result, and `AgentFailure` without an
        answer.
        """
        who = self._who
        if isinstance(result, Err):
            wrong = wrong_error(result.error)
            raise AgentFailure(who.unreadable(wrong, "", hint=_RETURN) if wrong else result.error)
        result = result.value if isinstance(result, Ok) else result
        raw = ""
        try:
            is_reply = isinstance(result, AgentReply)
            reply = result if is_reply else await reply_of(result, sent, known=known)
            if reply is None and isinstance(result, str):
                return read_reply(result, Reading())
            if reply is None:
                raw = _to_json(result)
                # In JSON, tuples are lists, and keys are texts.
                value = json.loads(raw)
                reply = read_answer(value, sent, self._reading, shows_calls=True)
                return replace(reply, raw=raw)
        except UnreadableReply as error:
            raise AgentFailure(who.unreadable(error, raw, hint=_RETURN)) from error
        if isinstance(reply.tool_uses, list):
            reply = replace(reply, tool_uses=tuple(reply.tool_uses))
        # What kindlm read itself has the right types.
        wrong = wrong_with(reply, AgentReply) if is_reply else None
        wrong = wrong or impossible(reply)
        if wrong is not None:
            raise AgentFailure(who.unreadable(wrong, "", hint=_RETURN))
        return replace(reply, tool_uses=with_ids(reply.tool_uses))

    def _crashed(self, raised: BaseException) -> KindlmError:
        words = error_text(raised, self._who.quote)
        return self._who.failed(
            f"{self._who.title} raised {words}{_at(raised, self._folders)}",
            _ONE_LOOP if "event loop" in words.lower() else _TRACEBACK,
            trace=user_trace(raised, _is_of_user),
        )


def _answer_span(headers: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Return a span of OpenTelemetry around an answer, if the code makes spans.

    The span is in the trace of the message. The spans of the code are below it, which assigns them
    to the answer.
    """
    if "traceparent" not in headers or "opentelemetry.sdk.trace" not in sys.modules:
        return nullcontext()
    from opentelemetry import propagate, trace

    context = propagate.extract(headers)
    return trace.get_tracer("kindlm").start_as_current_span("answer", context=context)


def _to_json(result: Any) -> str:
    """Return a result as JSON; raises `UnreadableReply` if that is impossible."""
    if result is None:
        raise UnreadableReply("it returned nothing")
    try:
        is_model = isinstance(result, BaseModel) or is_dataclass(result)
        return compact_json(as_json(result) if is_model else result)
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(result).__name__
        reason = f"{kind} is neither text, JSON nor an AgentReply: {error}"
        raise UnreadableReply(reason) from None


def _at(raised: BaseException, folders: Sequence[Path]) -> str:
    """Return the last line of user code, or of a tool whose error is the cause: ` (bot.py:12)`."""
    causes = list[BaseException]()
    cause: BaseException | None = raised
    while cause is not None and cause not in causes:  # CrewAI raises an error from itself
        causes.append(cause)
        cause = cause.__cause__
    return next(filter(None, (_place(cause, folders) for cause in reversed(causes))), "")


def _place(raised: BaseException, folders: Sequence[Path]) -> str:
    """Return the last line of user code in the traceback of an error."""
    places = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(raised.__traceback__)
        if any(Path(frame.filename).is_relative_to(folder) for folder in folders)
        and "site-packages" not in Path(frame.filename).parts
        and not _is_of_kindlm(frame.filename)
    ]
    if isinstance(raised, SyntaxError) and raised.filename and raised.lineno:
        places.append((Path(raised.filename), raised.lineno))
    if not places:
        return ""
    (place, line), here = places[-1], Path.cwd()
    return f" ({place.relative_to(here) if place.is_relative_to(here) else place}:{line})"


def _is_of_kindlm(file: str) -> bool:
    return Path(file).is_relative_to(_KINDLM)


def _is_of_user(file: str) -> bool:
    """Return whether a file is neither kindlm's nor part of Python's import."""
    return not (_is_of_kindlm(file) or file.startswith("<frozen") or file == importlib.__file__)
