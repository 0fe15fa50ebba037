"""The `python` adapter: an agent in the user's own Python, called in this process.

A run gives each conversation a process of its own (`python_processes`) and this is what is in it.

`endpoint` is a dotted path, `package.module:name`. What stands there is

- a function that takes something: the agent itself;
- a function that takes nothing, or a class: called once for each conversation, it makes the agent,
  which is a function, an object with a method `send`, or any other callable. An agent that is a
  context manager, plain or async, is entered before the first message and left at the end.

What stands there, or what it makes, may also be an agent of a framework (`agents.frameworks`).

An agent is sync (it runs in a thread of its own) or async: its coroutine runs in the event loop of
the run, which is one for all conversations and for the scenarios that are async. Its first
parameter is the text of the user's message. It is all that was said, as `{"role", "content"}`, if
it is named `messages` or annotated as a list, and the whole `AgentRequest` if it is annotated so or
named `request`. `python_answers` reads what it returns or yields.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field

from kindlm.agents.agent_failures import AgentFailed, Who
from kindlm.agents.frameworks import framework_of
from kindlm.agents.http_request import all_messages, last_user_text, request_warnings
from kindlm.agents.python_answers import drained, read_answer
from kindlm.agents.reply_reading import Reading, ResponsePath, ToolCallsPath
from kindlm.agents.user_code import ForeignModuleError, importable, in_thread, load
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.plugins import Adapter, Framework
from kindlm.ports import Agent, AgentReply, AgentRequest, ConversationSpoilt
from kindlm.section import Text
from kindlm.suite import AgentTarget
from kindlm.trace_context import MESSAGE_HEADERS
from kindlm.user_modules import is_of_pytest, user_trace
from kindlm.values import refuse

_log = logging.getLogger(__name__)
_OURS = Path(__file__).parents[1]
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_ONE_LOOP = (
    "An asynchronous client works only in the event loop that first used it. Make the function"
    " async and await the"
    " framework (`await agent.run(text)` for `agent.run_sync(text)`), or make the client anew"
)
_LISTS = ("list", "List", "Sequence")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Python(Adapter):
    """Agents in the user's own Python."""

    needs_endpoint: ClassVar[bool] = True
    takes_headers: ClassVar[bool] = False
    starts_program: ClassVar[bool] = True

    path: Text = Field(default=".", examples=["src"])
    """Folder to import the module from (`python`), relative to this file. By default the folder of
    this file. Missing modules are imported from the root of the project."""
    response_path: ResponsePath = None
    tool_calls_path: ToolCallsPath = None

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        """Refuse what names no function."""
        if not _DOTTED.fullmatch(endpoint):
            hint = "Write it as package.module:function"
            raise refuse(f'"{endpoint}" is not the name of a function', hint)

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> Agent:
        """Return the agent in this process; a run uses `PythonProcesses` instead."""
        del environ  # the agent runs in this process and has its environment
        return python_agent(target, Path(target.directory or "."))


def python_agent(target: AgentTarget, root: Path) -> PythonAgent:
    """Import an agent for one conversation: from `path`, else from the folder of its file.

    What is not there is looked for in the root folder. `path` is relative to the file's folder. An
    agent that the target holds as an object is not imported.
    The options of the target may be JSON values. Raises `AgentFailed` if it cannot be imported.
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
    except ForeignModuleError as foreign:
        hint = "Give one of the two another name"
        failure = who.misconfigured(f"{target.endpoint}: {foreign}", hint)
        raise AgentFailed(failure) from foreign
    except (Exception, SystemExit) as raised:
        failure = who.failed(
            f"{who.title}: {target.endpoint} could not be imported: {type(raised).__name__}: "
            f"{who.quote(str(raised))}{_at(raised, (folder,))}",
            f"Check its `endpoint`; it is imported from {folder}",
            code=ErrorCode.CONFIG_VALIDATION_ERROR,
            trace=user_trace(raised, _is_theirs),
        )
        raise AgentFailed(failure) from raised
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
        """Make the folders importable; the agent itself is made with the first message."""
        self._stack.enter_context(importable(self._folders))
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Leave the agent, if it is a context manager: a failing `assert` in it counts.

        What else fails is logged, and what was said stands.
        """
        try:
            await self._stack.aclose()
        except BaseException as raised:
            if _is_cancelled(raised):
                raise
            if isinstance(raised, AssertionError) or is_of_pytest(raised, "Failed"):
                error = _crashed(self._who, raised, self._folders)
                raise ConversationSpoilt(error) from raised
            _log.exception("%s failed while closing", self._who.title)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Call the agent with one message; see `ports.Agent`."""
        headers = MESSAGE_HEADERS.set(request.headers)
        try:
            async with AsyncExitStack() as turn, asyncio.timeout(request.timeout_s) as deadline:
                self._made = agent, known = self._made or await self._make()
                deadline.reschedule(None)  # others have their own time
                await turn.enter_async_context(known.turn(agent))
                deadline.reschedule(asyncio.get_running_loop().time() + request.timeout_s)
                begun = time.perf_counter()  # making the agent is no part of its answer
                with _answer_span(request.headers):
                    said = await known.send(agent, request)
                    # A streamed result goes on while it is read.
                    sent = last_user_text(request)
                    reply = await read_answer(self._who, said, sent, self._reading, known)
                latency_ms = (time.perf_counter() - begun) * 1000
        except AgentFailed as failed:
            return Err(failed.error)
        except BaseException as raised:
            if _is_cancelled(raised):
                raise
            if isinstance(raised, TimeoutError) and deadline.expired():
                return Err(self._who.timed_out(request.timeout_s))
            return Err(_crashed(self._who, raised, self._folders))
        finally:
            MESSAGE_HEADERS.reset(headers)
        warnings = request_warnings(
            request, says_system=known.takes_system, says_context=known.takes_context
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
        """Return the agent, and what talks to it."""
        agent = self._found
        is_made = inspect.isclass(agent) or (callable(agent) and _first_parameter(agent) is None)
        if is_made and framework_of(agent) is None:
            agent = await _called(agent)
            if framework_of(agent) is not None:
                pass  # it enters itself what it needs, in each run
            elif hasattr(agent, "__aenter__"):
                agent = await self._stack.enter_async_context(agent)
            elif hasattr(agent, "__enter__"):
                agent = self._stack.enter_context(agent)
        if (framework := framework_of(agent)) is not None:
            return agent, framework
        send: Callable[..., Any] = getattr(agent, "send", agent)
        if not callable(send):
            raise TypeError(f"{type(agent).__name__} can't be called and has no method `send`")
        return send, _framework_for(send)


def _answer_span(headers: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Return a span of OpenTelemetry around an answer, if the code makes spans at all.

    It is in the trace that goes along with the message; the spans of the code are below it, so that
    they are known to belong to the answer.
    """
    if "traceparent" not in headers or "opentelemetry.sdk.trace" not in sys.modules:
        return nullcontext()
    from opentelemetry import propagate, trace

    context = propagate.extract(headers)
    return trace.get_tracer("kindlm").start_as_current_span("answer", context=context)


class _OfText(Framework):
    """A function that gets the text of the user's message."""

    def argument(self, request: AgentRequest) -> Any:
        """Return what the function gets."""
        return last_user_text(request)

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        """Call the function, and return what it returned or all that it yielded."""
        return await drained(await _called(agent, self.argument(request)))

    async def read(self, _result: Any, _sent: str) -> None:
        """Leave what it returned to what it looks like."""


class _OfMessages(_OfText):
    """A function that gets all that was said."""

    takes_system: ClassVar[bool] = True

    def argument(self, request: AgentRequest) -> Any:
        """Return what the function gets."""
        return all_messages(request)


class _OfRequest(_OfMessages):
    """A function that gets the whole request."""

    takes_context: ClassVar[bool] = True

    def argument(self, request: AgentRequest) -> Any:
        """Return what the function gets."""
        return request


def _framework_for(function: Callable[..., Any]) -> Framework:
    """Return what calls a function, by the annotation or the name of its first parameter."""
    parameter = _first_parameter(function)
    if parameter is None:
        return _OfText()
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if parameter.name == "request" or name.rpartition(".")[2] == AgentRequest.__name__:
        return _OfRequest()
    if parameter.name == "messages" or name.partition("[")[0].rpartition(".")[2] in _LISTS:
        return _OfMessages()
    return _OfText()


def _is_cancelled(raised: BaseException) -> bool:
    """Tell whether the call itself is to end, and not the agent raised that by itself."""
    this = asyncio.current_task()
    is_cancellation = isinstance(raised, asyncio.CancelledError | GeneratorExit)
    return is_cancellation and (this is None or this.cancelling() > 0)


async def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, in a thread unless it is async, and await what it gives."""
    its_call = getattr(type(function), "__call__", None)  # noqa: B004 - is that method async?
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(its_call):
        return await function(*arguments)
    value = await in_thread(function, *arguments)
    return await value if inspect.isawaitable(value) else value


def _first_parameter(function: Callable[..., Any]) -> inspect.Parameter | None:
    """Return the parameter that a message goes to; None for a function that takes nothing."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell takes a text
        return inspect.Parameter("text", inspect.Parameter.POSITIONAL_ONLY)
    kinds = (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)
    found = [parameter for parameter in parameters if parameter.kind in kinds]
    if not found or found[0].default is not inspect.Parameter.empty:
        return None
    return found[0]


def _crashed(who: Who, raised: BaseException, folders: Sequence[Path]) -> KindlmError:
    is_of_loop = isinstance(raised, RuntimeError) and "event loop" in str(raised).lower()
    return who.failed(
        f"{who.title} raised {type(raised).__name__}: {who.quote(str(raised))}"
        f"{_at(raised, folders)}",
        _ONE_LOOP if is_of_loop else "See the traceback with --verbose",
        trace=user_trace(raised, _is_theirs),
    )


def _at(raised: BaseException, folders: Sequence[Path]) -> str:
    """Return the last line of the user's own that an error came through: ` (bot.py:12)`.

    Frameworks raise errors of their own because of those of a tool: that line counts then.
    """
    if raised.__cause__ is not None and (cause := _at(raised.__cause__, folders)):
        return cause
    own = [
        frame
        for frame in traceback.extract_tb(raised.__traceback__)
        if any(Path(frame.filename).is_relative_to(folder) for folder in folders)
        and "site-packages" not in Path(frame.filename).parts
        and not _is_ours(frame.filename)
    ]
    if isinstance(raised, SyntaxError) and raised.filename and raised.lineno:
        place, line = Path(raised.filename), raised.lineno
    elif own:
        place, line = Path(own[-1].filename), own[-1].lineno or 0
    else:
        return ""
    here = Path.cwd()
    return f" ({place.relative_to(here) if place.is_relative_to(here) else place}:{line})"


def _is_ours(file: str) -> bool:
    return Path(file).is_relative_to(_OURS)


def _is_theirs(file: str) -> bool:
    """Tell whether a file is the user's, and does not lead from kindlm to their code."""
    return not (_is_ours(file) or file.startswith("<frozen") or file == importlib.__file__)
