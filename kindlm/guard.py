"""Keeps a user's Python code, which runs in kindlm's process, from ending a command unnoticed.

Before a command imports such code, it forks (`Guard.enter`). The child does the work; the parent
only waits. The child's last report is the exit code of the command. A child that ends without it
was ended by user code: by `os._exit`, a signal, or a crash of an extension module. The parent kills
a child whose event loop is blocked. In both cases, the parent prints what was running and how to
resume, and exits with 1.

The child reports through shared memory, since user code may close the descriptors of a pipe.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from kindlm.keeper import adopt_orphans, end_descendants, next_signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 1.0
_SILENT_POLLS = 10
"""How many polls beyond its timeout an execution may block the event loop."""
_GRACE_POLLS = 5
"""How many polls the event loop may be blocked after a signal."""
_IDLE_S = 300.0
"""How long the event loop may be blocked while no execution runs, by code that one left behind."""
_TEXT_BYTES = 1 << 12
_SHOWN_NAMES = 10
_PR_SET_PDEATHSIG = 1

ENDED_BY_USER_CODE = 70
"""The exit code of a fleet's worker that user code ended; a new worker would end likewise."""


class _Memory(ctypes.Structure):
    """Memory that parent and child share.

    Attributes:
        announced: How many signals the parent has relayed.
        beats: How often the child's event loop has reported; 0 while none runs.
        code: One more than the exit code of the command, 0 before its end.
        limit_ms: How long the event loop may be blocked.
        run: The run to resume.
        running: The imports and executions in progress.
        how: How the process is being ended.
    """

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("announced", "beats", "code", "limit_ms")),
        *((name, ctypes.c_char * _TEXT_BYTES) for name in ("run", "running", "how")),
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:_TEXT_BYTES]


class Guard:
    """The guard of this process; `guard` is its only instance.

    With `ends_all`, processes that the child leaves behind are ended, too. `code_of_ended` is the
    exit code of a command that user code ended.
    """

    def __init__(self) -> None:
        self.ends_all = False
        self.code_of_ended = 1
        self._tell: Callable[[str, str], None] | None = None
        self._memory: _Memory | None = None
        self._pid = 0
        self._user_code: dict[object, tuple[str, float]] = {}  # in progress: names and timeouts
        self._handlers: dict[signal.Signals, Any] = {}
        self._calling = 0
        self._counted = 0
        self._folder: Path | None = None
        self._exit = os._exit
        self._explain: Callable[[str], None] | None = None

    # For commands.

    def arm(self, tell: Callable[[str, str], None]) -> None:
        """Let `enter` guard this process.

        `tell` gets a message that the process was ended, and the run to resume, if there is one.
        """
        self._tell = tell

    def enter(self) -> None:
        """Fork before user code runs for the first time; only the child returns.

        Does nothing in an unarmed process, such as pytest's, or in the child.
        """
        if self._tell is None or self._memory is not None:
            return
        self._memory = _Memory.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Memory)))
        self._report(self._memory)
        if self.ends_all:
            adopt_orphans()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        parent = os.getpid()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*_SIGNALS, signal.SIGCHLD})
        pid = os.fork()
        if pid:
            self._wait(pid)
        self._pid, self._folder = os.getpid(), Path.cwd()
        _end_with(parent)
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                signal.signal(number, self._interrupt)
        self._watch_exits()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def set_run(self, run: str) -> None:
        """Report the run that the user can resume if the process is ended."""
        if self._memory is not None:
            self._memory.run = _encoded(run)

    def finish(self, code: int) -> None:
        """Report the exit code of the command; later failures do not count."""
        if self._memory is not None and os.getpid() == self._pid:
            self._memory.code = code + 1

    def report_exit(self, how: str) -> None:
        """Show the user that their code ended the command, and how to resume its run."""
        if self._tell is not None and self._memory is not None:
            self._tell(f"kindlm was ended: {how}.", self._memory.run.decode("utf-8", "ignore"))

    def leave(self, code: int) -> NoReturn:
        """Exit at once, from any thread."""
        self.finish(code)
        self._exit(code)
        raise AssertionError("the process has ended")

    def is_new_signal(self) -> bool:
        """Return whether a received signal is one that the parent announced, for the first time.

        A signal to the process group arrives twice: directly, and from the parent, which announces
        it before. One that the parent does not announce is from user code, and has no effect.
        """
        if self._memory is None:
            return True
        is_new: bool = self._counted < self._memory.announced
        self._counted += is_new
        return is_new

    def return_to_folder(self) -> None:
        """Change to the folder that the command was started in, where reports are written."""
        if self._folder is not None:
            with suppress(OSError):
                os.chdir(self._folder)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Show the parent regularly that the running event loop is not blocked."""
        from asyncio import get_running_loop

        memory, loop = self._memory, get_running_loop()
        if memory is None:
            yield
            return

        def beat() -> None:
            if not is_over:
                memory.beats += 1
                loop.call_later(_POLL_S / 2, beat)

        is_over = False
        beat()
        try:
            yield
        finally:
            is_over = True
            memory.beats = 0

    # For places where user code runs.

    @property
    def is_entered(self) -> bool:
        """Whether this process may run user code, now or later."""
        return self._memory is not None

    @contextmanager
    def running(self, name: str, timeout_s: float = _IDLE_S) -> Iterator[None]:
        """Report an import or an execution, which may run user code, while it is in progress."""
        memory, key = self._memory, object()
        if memory is None:
            yield
            return
        self._user_code[key] = name, timeout_s
        self._report(memory)
        try:
            yield
        finally:
            del self._user_code[key]
            self._report(memory)

    @contextmanager
    def single(self) -> Iterator[None]:
        """Call user code in this context, which ends forks that leave it.

        In the main thread, signal handlers that the code sets are removed at its end.
        """
        is_main = threading.current_thread() is threading.main_thread()
        signals = _SIGNALS if is_main and self._memory is not None else ()
        if not self._calling:
            # Of overlapping calls, only the first one finds kindlm's own handlers.
            self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._calling += bool(signals)
        try:
            yield
        finally:
            self._calling -= bool(signals)
            self.stay_single()
            for number in signals:
                handler = self._handlers[number]
                if handler is not None and signal.getsignal(number) is not handler:
                    signal.signal(number, handler)

    def stay_single(self) -> None:
        """End this process if user code forked it from kindlm's."""
        if self._pid:
            end_fork(self._pid)

    def watch_exits(self, explain: Callable[[str], None] | None) -> None:
        """Keep user code from ending a process without a guarding parent successfully.

        `explain` shows the user what ended it; None ends the watch.
        """
        if not self._pid and self._memory is None:
            self._pid = os.getpid()
            self._watch_exits()
        self._explain = explain

    def _report(self, memory: _Memory) -> None:
        """Report what is running, and how long the event loop may be blocked.

        Which execution blocks it is unknown. But after the shortest timeout, one of them is over
        its time, and cannot be cancelled.
        """
        running = list(self._user_code.values())
        names = ", ".join(name[:200] for name, _ in running[:_SHOWN_NAMES])
        memory.running = _encoded(names + (", …" if len(running) > _SHOWN_NAMES else ""))
        limit_s = min((timeout for _, timeout in running), default=_IDLE_S)
        memory.limit_ms = int(limit_s * 1000)

    # In the child.

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_new_signal():
            raise KeyboardInterrupt

    def _watch_exits(self) -> None:
        """Wrap functions that end or replace the process without a trace."""
        for name in ("_exit", "abort", "execv", "execve"):
            watched = self._watched(name, getattr(os, name))
            for module in (os, sys.modules[os.name]):  # `posix` has the same functions
                setattr(module, name, watched)

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if os.getpid() == self._pid:
                first = repr(arguments[0])[:200] if arguments else ""
                # Without a caller, Python itself calls at its end.
                how = f"os.{name}({first}){_place(sys._getframe().f_back)}"  # noqa: SLF001
                if self._memory is not None:
                    self._memory.how = _encoded(how)
                elif self._explain is not None:
                    self._explain(how)
                    code = arguments[0] if name == "_exit" and arguments else 1
                    self._exit(code if isinstance(code, int) and code % 256 else 1)
            return real(*arguments, **named)

        call.__name__, call.__doc__ = name, real.__doc__
        return call

    # In the parent.

    def _wait(self, pid: int) -> NoReturn:
        """Relay signals to the child until it ends; exit like it, or report how it was ended.

        The signals of this process stay blocked.
        """
        memory = self._memory
        assert memory is not None
        relayed = {it for it in _SIGNALS if signal.getsignal(it) is not signal.SIG_IGN}
        # macOS drops a signal that is ignored, as SIGCHLD is by default.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signals = silent = beats = 0
        how = None
        while (ended := os.waitpid(-1 if self.ends_all else pid, os.WNOHANG))[0] != pid:
            if ended[0]:
                continue
            if (number := next_signal({*relayed, signal.SIGCHLD}, _POLL_S)) in relayed:
                signals, silent = signals + 1, 0
                memory.announced = signals
                # A child that ignores two signals is killed.
                with suppress(ProcessLookupError):
                    os.kill(pid, number if signals <= 2 else signal.SIGKILL)
            if number is not None:
                continue
            before, beats = beats, memory.beats
            silent = silent + 1 if 0 < beats == before else 0
            limit = _SILENT_POLLS + memory.limit_ms / 1000 / _POLL_S
            if signals:
                limit = _GRACE_POLLS
            elif os.isatty(0):
                continue  # the user may be debugging, and can press Ctrl-C
            if silent > limit:
                how = f"it blocked the event loop for more than {silent * _POLL_S:.0f} s"
                os.kill(pid, signal.SIGKILL)
        if self.ends_all:
            end_descendants()
        status = os.waitstatus_to_exitcode(ended[1])
        code = memory.code - 1
        if code < 0 or (code == 0 and status != 0):
            how = how or memory.how.decode("utf-8", "ignore")
            running = memory.running.decode("utf-8", "ignore")
            if signals and not running:
                self._exit(1)  # the user ended it
            during = f" while it ran {running}" if running else ""
            assert self._tell is not None
            ended_by = f"kindlm's process was ended{during}: {how or _ended(status)}."
            self._tell(ended_by, memory.run.decode("utf-8", "ignore"))
            # The system may have killed it for lack of memory.
            is_by_user_code = not signals and (bool(how) or status >= 0)
            code = self.code_of_ended if is_by_user_code else 1
        self._exit(code)
        raise AssertionError("the process has ended")


def end_fork(of: int) -> None:
    """End this process if user code forked it from the process `of`.

    A fork shares connections and the event loop's descriptors with that process.
    """
    if os.getpid() != of:
        with suppress(OSError):
            os.write(2, b"kindlm: a process that user code forked came back from it: ended.\n")
        os._exit(1)


def _ended(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _place(frame: FrameType | None) -> str:
    """Return the place of the next frame outside of the module `os`: ` at tests/test_it.py:12`."""
    while frame is not None and frame.f_globals is vars(os):
        frame = frame.f_back
    if frame is None:
        return ""
    file = Path(frame.f_code.co_filename)
    with suppress(ValueError, OSError):
        file = file.relative_to(Path.cwd())
    return f" at {file}:{frame.f_lineno}"


def _end_with(parent: int) -> None:
    """Have this process killed when its parent ends in any way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)


guard = Guard()
