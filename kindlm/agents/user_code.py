"""Imports a user's Python, and calls it without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, TypeAlias

from kindlm.agents.http_request import all_messages, last_user_text
from kindlm.agents.reply_parts import MAX_EVENTS, refuse_more
from kindlm.guard import end_fork
from kindlm.plugins import Framework
from kindlm.ports import AgentRequest

_LISTS = ("list", "List", "Sequence")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def load(dotted: str, folders: Sequence[Path]) -> Any:
    """Import the object `package.module:name` from the first folder that has the module.

    During the import, the folders come first, so that the user's modules win over installed modules
    of the same name. Raises whatever the import raises, and `AttributeError` for a missing name.
    """
    module_name, _, name = dotted.partition(":")
    with importable(folders, first=True):
        found: Any = importlib.import_module(module_name)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@contextmanager
def importable(folders: Sequence[Path], *, first: bool = False) -> Iterator[None]:
    """Keep folders at the end of the import path, or with `first` at its beginning."""
    entries = [str(folder) for folder in folders]
    sys.path[:] = [*entries, *sys.path] if first else [*sys.path, *entries]
    try:
        yield
    finally:
        for entry in entries:
            # The path may have had the folder before, and a module may have changed it.
            places = [index for index, known in enumerate(sys.path) if known == entry]
            if places:
                del sys.path[places[0 if first else -1]]


_Outcome: TypeAlias = "Future[tuple[Any, BaseException | None]]"


class _Worker(threading.Thread):
    """A thread that runs one call after another.

    Nothing can stop a thread. A call that is no longer awaited runs on, but must not keep the
    process alive. A `ThreadPoolExecutor` would wait for its threads.
    """

    idle: ClassVar[deque[_Worker]] = deque()
    """Idle threads, the last used one at the end."""

    def __init__(self) -> None:
        super().__init__(name="kindlm-agent", daemon=True)
        self.calls: SimpleQueue[tuple[_Outcome, Callable[[], Any]]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        """Run calls; this thread is idle before the caller learns the outcome."""
        process = os.getpid()
        while True:
            answer, call = self.calls.get()
            if not answer.set_running_or_notify_cancel():
                self.idle.append(self)  # nobody awaits the call any more
                continue
            value: Any = None
            error: BaseException | None = None
            try:
                value = call()
            except BaseException as raised:  # noqa: BLE001 - raised again in the caller
                error = raised
            end_fork(process)
            self.idle.append(self)
            answer.set_result((value, error))
            del answer, call, value, error


os.register_at_fork(after_in_child=_Worker.idle.clear)  # a child process has no other threads


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a thread; return what it returns, or raise what it raises.

    Successive calls share a thread, and so an event loop that a call leaves in it: clients that the
    function keeps may only work in the event loop that first used them.
    """
    answer: _Outcome = Future()
    try:
        worker = _Worker.idle.pop()
    except IndexError:
        worker = _Worker()
    worker.calls.put((answer, partial(contextvars.copy_context().run, function, *arguments)))
    value, error = await asyncio.wrap_future(answer)
    match error:
        case None:
            return value
        case StopIteration() | GeneratorExit():  # they would end the coroutines that await this one
            raise RuntimeError(type(error).__name__) from error
        case _:
            raise error


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, in a thread unless it is async, and await an awaitable result."""
    its_call = getattr(type(function), "__call__", None)  # noqa: B004 - is that method async?
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(its_call):
        return await function(*arguments)
    value = await in_thread(function, *arguments)
    return await value if inspect.isawaitable(value) else value


def first_parameter(function: Callable[..., Any]) -> inspect.Parameter | None:
    """Return the parameter that gets the message; None if the function needs no argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature takes a text
        return inspect.Parameter("text", inspect.Parameter.POSITIONAL_ONLY)
    kinds = (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)
    found = [parameter for parameter in parameters if parameter.kind in kinds]
    if not found or found[0].default is not inspect.Parameter.empty:
        return None
    return found[0]


def makes_an_agent(found: Any) -> bool:
    """Return whether kindlm calls an object without a message to get the agent.

    An object that may get a message when it is called is the agent itself.
    """
    if inspect.isclass(found):
        return True
    if not callable(found) or first_parameter(found) is not None:
        return False
    if inspect.isroutine(found) or isinstance(found, partial):
        return True
    return all(it.kind not in _POSITIONAL for it in inspect.signature(found).parameters.values())


def only_makes(found: Any) -> bool:
    """Return whether an object is a class or a function that could not get a message.

    What a function made may be an agent with optional parameters, or with a method `send`.
    """
    if not makes_an_agent(found):
        return False
    is_function = inspect.isroutine(found) or isinstance(found, partial)
    return inspect.isclass(found) or (is_function and not inspect.signature(found).parameters)


class _OfText(Framework):
    """Calls a function with the text of the user's message."""

    def argument(self, request: AgentRequest) -> Any:
        return last_user_text(request)

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        return await _drained(await called(agent, self.argument(request)))

    async def read(self, _result: Any, _sent: str) -> None:
        """Return None: the form of the result decides how kindlm reads it."""


class _OfMessages(_OfText):
    """Calls a function with all messages."""

    takes_system: ClassVar[bool] = True

    def argument(self, request: AgentRequest) -> Any:
        return all_messages(request)


class _OfRequest(_OfMessages):
    """Calls a function with the whole request."""

    takes_context: ClassVar[bool] = True

    def argument(self, request: AgentRequest) -> Any:
        return request


def framework_for(function: Callable[..., Any]) -> Framework:
    """Return what calls a function, chosen by the annotation or name of its first parameter."""
    parameter = first_parameter(function)
    if parameter is None:
        return _OfText()
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if parameter.name == "request" or name.rpartition(".")[2] == AgentRequest.__name__:
        return _OfRequest()
    if parameter.name == "messages" or name.partition("[")[0].rpartition(".")[2] in _LISTS:
        return _OfMessages()
    return _OfText()


async def _drained(result: Any) -> Any:
    """Return all items of a generator, texts joined; returns any other result as it is."""
    pieces: list[Any] = []

    def add(piece: Any) -> None:
        refuse_more(len(pieces) + 1, MAX_EVENTS, "pieces")
        pieces.append(piece)

    if isinstance(result, AsyncIterator):
        async for piece in result:
            add(piece)
    elif isinstance(result, Iterator):
        await in_thread(lambda: deque(map(add, result), maxlen=0))
    else:
        return result
    return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces
