"""The user's own Python: how it is found, and how it is called without holding anything up."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar


class ForeignModuleError(ImportError):
    """Another module of this name is loaded already; the message says from where."""


def load(dotted: str, folders: Sequence[Path]) -> Any:
    """Return what `package.module:name` stands for, imported from the first folder that has it.

    The folders come first for as long as the import takes: the user's modules win there over
    installed ones of the same name, and nowhere else. Raises whatever the import raises,
    `AttributeError` if the module has no such name.
    """
    module_name, _, name = dotted.partition(":")
    entries = [str(folder) for folder in folders]
    _refuse_foreign(module_name.partition(".")[0], entries)
    sys.path[:0] = entries
    try:
        found: Any = importlib.import_module(module_name)
    finally:
        for entry in entries:
            with suppress(ValueError):  # the module may have changed the path itself
                sys.path.remove(entry)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@contextmanager
def importable(folders: Sequence[Path]) -> Iterator[None]:
    """Keep folders at the end of the import path: agents import when they run, too."""
    entries = [str(folder) for folder in folders]
    sys.path.extend(entries)
    try:
        yield
    finally:
        for entry in entries:
            # The last one: it may have been on the path before, for another reason.
            with suppress(ValueError):
                del sys.path[len(sys.path) - 1 - sys.path[::-1].index(entry)]


class _Worker(threading.Thread):
    """A thread that runs one call after the other.

    Nothing can stop a thread. One whose answer is no longer awaited runs on, unheard, and does not
    keep the process from ending: hence no pool, which waits for its threads.
    """

    idle: ClassVar[deque[_Worker]] = deque()
    """Those that have nothing to do, the one that was used last at the end."""

    def __init__(self) -> None:
        super().__init__(name="kindlm-agent", daemon=True)
        self.calls: SimpleQueue[Callable[[], Callable[[], None]]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        """Run calls, and what each returns once this thread may be used again."""
        while True:
            report = self.calls.get()()
            self.idle.append(self)
            report()
            del report


os.register_at_fork(after_in_child=_Worker.idle.clear)  # threads stay behind


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a thread and return what it returns, or raise what it raises.

    Calls that follow one another share a thread, and so the event loop that it may have: clients of
    a framework that the function keeps can be used in one event loop only.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def run() -> Callable[[], None]:
        value, error = None, None
        try:
            value = context.run(function, *arguments)
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the caller gets it
            error = _raisable(raised)

        def report() -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing waits
                loop.call_soon_threadsafe(settle, value, error)

        return report

    try:
        worker = _Worker.idle.pop()
    except IndexError:
        worker = _Worker()
    worker.calls.put(run)
    return await answer


def _raisable(error: BaseException) -> BaseException:
    # A future refuses StopIteration.
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("StopIteration")
    wrapped.__cause__ = error
    return wrapped


def _refuse_foreign(package: str, folders: Sequence[str]) -> None:
    """Refuse a name under which a module of another folder is loaded: it would be used instead."""
    loaded = sys.modules.get(package)
    here = PathFinder.find_spec(package, folders)
    if loaded is None or here is None or here.origin is None:
        return
    origin = getattr(loaded, "__file__", None)
    if origin is not None and Path(origin).resolve() != Path(here.origin).resolve():
        raise ForeignModuleError(f"a module {package!r} is loaded from {origin} already")
