"""Keeps the end of the process ours while Python code of a user runs in it.

A command that is about to run such code goes on in a child process, and the process that was
started only waits for it (`Guard.enter`). The last thing that the child reports is that the command
ended, and with which exit code. A child that ends without that report was ended from inside: by
`os._exit`, by a signal, by a crash of an extension module. A new child then starts from the same
place. It finds in `Guard.lost` what was going on when the one before it ended, reports what ended
it, and goes on with the rest.

What the child reports is kept in shared memory, not sent through a pipe: code that closes
descriptors would close the pipe, too.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OUTPUT = (1, 2)
_SLOT_BYTES = 1 << 20
_POLL_S = 1.0
_SILENT_POLLS = 10
"""How many polls longer than its timeout a scenario may hold up the event loop."""
_GRACE_POLLS = {1: 5, 2: 2}
"""How many polls the event loop may be held up after the first signal, and after the second."""
_IDLE_S = 300.0
"""How long the event loop may be held up while no scenario runs: one may have left code behind."""
_SHORT = 10_000
"""How much of a text, and of the executions, is kept of notes that are too long."""
_ANNOUNCED_S = 0.5
"""A signal to the whole process group reaches both processes within this time."""
_PR_SET_PDEATHSIG = 1

_current: ContextVar[str | None] = ContextVar("kindlm_execution", default=None)


@dataclass(slots=True)
class _Notes:
    """What a child has reported.

    Attributes:
        file: The file that is being imported.
        run: The run that goes on, where it can be continued by another child.
        going: The executions that go on and may run code of a user, with their names and timeouts
            in seconds.
        how: What ended the process, if that was seen.
        unexplained: An earlier end that no scenario repeated when it ran alone.
        code: The exit code that the command ended with.
    """

    file: str | None = None
    run: str | None = None
    going: dict[str, tuple[str, float]] = field(default_factory=dict)
    how: str | None = None
    unexplained: str | None = None
    code: int | None = None


@dataclass(slots=True)
class Lost:
    """What ended the children before this one.

    Attributes:
        run: The run to go on with.
        files: The files that ended the process when they were imported, and how.
        suspects: The executions that went on when the last child ended.
        how: How it ended.
        blocked_s: How long it had held up the event loop when it was ended for that.
        interrupted: The signal that it did not heed, being held up: the run is to end.
        unexplained: An end that cannot be blamed on any one scenario; the run must not pass.
    """

    run: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    suspects: tuple[str, ...] = ()
    how: str = ""
    blocked_s: float | None = None
    interrupted: signal.Signals | None = None
    unexplained: str | None = None
    was_idle: bool = False

    @property
    def any(self) -> bool:
        """Whether the process was ended from inside at all."""
        return bool(self.files or self.how)


class _Memory:
    """Notes in memory that parent and child share, whole at any moment.

    Layout: how many signals the parent has announced, the beats of the child's event loop (0 while
    none runs), the slot that holds the notes, then two slots, each with a length before it.
    """

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 24 + 2 * (8 + _SLOT_BYTES))
        self._lock = threading.RLock()

    def _get(self, offset: int) -> int:
        (value,) = struct.unpack_from("Q", self._map, offset)
        return int(value)

    @property
    def announced(self) -> int:
        return self._get(0)

    @property
    def beats(self) -> int:
        return self._get(8)

    def announce(self) -> None:
        struct.pack_into("Q", self._map, 0, self.announced + 1)

    def beat(self) -> None:
        struct.pack_into("Q", self._map, 8, self.beats + 1)

    def rest(self) -> None:
        struct.pack_into("Q", self._map, 8, 0)

    def write(self, notes: _Notes) -> None:
        body = json.dumps(asdict(notes)).encode()
        if len(body) > _SLOT_BYTES:
            body = json.dumps(asdict(_shortened(notes))).encode()
        with self._lock:
            slot = 1 - self._get(16)
            offset = 24 + slot * (8 + _SLOT_BYTES)
            struct.pack_into("Q", self._map, offset, len(body))
            self._map[offset + 8 : offset + 8 + len(body)] = body
            struct.pack_into("Q", self._map, 16, slot)

    def read(self) -> _Notes:
        offset = 24 + self._get(16) * (8 + _SLOT_BYTES)
        return _Notes(**json.loads(self._map[offset + 8 : offset + 8 + self._get(offset)]))


def _shortened(notes: _Notes) -> _Notes:
    """Return notes without the names of the executions, which only messages need."""
    return replace(
        notes,
        going={each: ("", t) for each, (_, t) in islice(notes.going.items(), _SHORT)},
        how=notes.how and notes.how[:_SHORT],
        unexplained=notes.unexplained and notes.unexplained[:_SHORT],
    )


class Guard:
    """The guard of this process; `guard` is the only one.

    `may_run_user_code` is whether code of packages, or functions that check, were loaded: then
    every execution may run some. While `notes.going` holds any, code of a user may run in this
    process. `ends_all` is whether all that a child has left behind ends after it.
    """

    def __init__(self) -> None:
        self.lost = Lost()
        self.may_run_user_code = False
        self.ends_all = False
        self._tell: Callable[[str], None] | None = None
        self._memory: _Memory | None = None
        self.notes = _Notes()
        self._pid = 0
        self._signals = 0
        self._last_signal = signal.SIGINT
        self._blocked_s: float | None = None
        self._relayed = 0
        self._strays = 0
        self._canary = -1
        self._folder: Path | None = None
        self._exit = os._exit
        self._explain: Callable[[str], None] | None = None

    # What the command does.

    def arm(self, tell: Callable[[str], None]) -> None:
        """Let `enter` guard this process; `tell` shows an error to the user."""
        self._tell = tell

    def enter(self) -> None:
        """Go on in a child process, before code of a user runs for the first time.

        Only children return from this. Does nothing in a process that is not armed, such as
        pytest's, and the second time.
        """
        if self._tell is None or self._memory is not None:
            return
        self._memory = _Memory()
        if self.ends_all:
            from kindlm.keeper import adopt_orphans

            adopt_orphans()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        while True:
            self._memory.write(_Notes())
            self._memory.rest()
            parent = os.getpid()
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            pid = os.fork()
            if pid == 0:
                self._begin(parent)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                return
            self._conclude(self._wait(pid, mask))

    def goes_on(self, run: str) -> None:
        """Report the run that another child can continue."""
        self.notes.run = run
        self._report()

    def finish(self, code: int) -> None:
        """Report that the command has ended with an exit code; nothing counts that comes after."""
        self.notes.code = code
        self._report()

    def leave(self, code: int) -> NoReturn:
        """End the command with an exit code at once, from any thread."""
        self.finish(code)
        self._exit(code)
        raise AssertionError("the process has ended")

    def crashed(self, error: BaseException) -> None:
        """End the process if an error has ended the command while scenarios ran: it may be theirs.

        One of them may have stopped the event loop, or closed what it works with.
        """
        if self._memory is not None and self.notes.going:
            self._die(f"{type(error).__name__}: {error}")

    def unexplained(self, why: str) -> None:
        """Report that the process was ended, and that none of the suspects did it again."""
        self.lost.unexplained = self.notes.unexplained = why
        self._report()

    def is_relayed(self, number: int) -> bool:
        """Return whether a signal was sent to kindlm, rather than by the code that runs in it.

        Signals to the terminal's process group arrive here directly and from the parent; only the
        latter count.
        """
        if self._memory is None:
            return True
        if self._relayed < self._memory.announced:
            self._relayed += 1
            return True
        self._strays += 1
        self.notes.how = f"{signal.Signals(number).name} to itself"
        return False

    def come_back(self) -> None:
        """Return to the folder that the command was started in; reports are written there."""
        if self._folder is not None:
            with suppress(OSError):
                os.chdir(self._folder)

    @property
    def is_interrupted(self) -> bool:
        """Whether a `KeyboardInterrupt` may come from a signal, rather than from code of a user."""
        return self._memory is None or self._memory.announced > 0

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Show the parent that the running event loop is not held up."""
        from asyncio import get_running_loop

        memory, loop = self._memory, get_running_loop()
        if memory is None:
            yield
            return

        def beat() -> None:
            if not is_over:
                memory.beat()
                loop.call_later(_POLL_S / 2, beat)

        is_over = False
        beat()
        try:
            yield
        finally:
            is_over = True
            memory.rest()

    # Where code of a user runs.

    @contextmanager
    def importing(self, file: str) -> Iterator[None]:
        """Import a file of a user in this context."""
        self.notes.file = file
        self._report()
        try:
            with self._kept():
                yield
        finally:
            # Also where the import failed: what ends the process later is not this file.
            self.notes.file = None
            self._report()

    @contextmanager
    def execution(self, number: str, name: str, timeout_s: float) -> Iterator[None]:
        """Run an execution that may run code of a user in this context.

        One that is cut off with the whole run counts as going on still: what stops the event loop
        cuts off all of them.
        """
        self.notes.going[number] = (name[:200], timeout_s)
        self._report()
        token = _current.set(number)
        try:
            yield
        except Exception:
            self.notes.going.pop(number, None)
            raise
        else:
            self.notes.going.pop(number, None)
        finally:
            _current.reset(token)
            self._report()

    @contextmanager
    def scenario(self) -> Iterator[None]:
        """Run the function of a scenario in this context."""
        with self._kept():
            yield

    def stay_single(self) -> None:
        """End this process if it is a copy that code of a user has made of kindlm's by `os.fork`.

        The copy shares connections and the event loop's descriptors with kindlm.
        """
        if self._pid and os.getpid() != self._pid:
            with suppress(OSError):
                os.write(2, b"kindlm: a process that a scenario forked came back from it: ended.\n")
            self._exit(1)

    def watch_exits(self, explain: Callable[[str], None] | None) -> None:
        """Let nothing end this process with success, where it is not ours to go on in another.

        `explain` shows the user what ended it; None ends the watch.
        """
        if not self._pid and self._memory is None:
            self._pid = os.getpid()
            self._watch_exits()
        self._explain = explain

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Put back what code of a user may have changed; end the process if that is too much."""
        if self._memory is None:
            try:
                yield
            finally:
                self.stay_single()
            return
        is_main = threading.current_thread() is threading.main_thread()
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        trace, profile = sys.gettrace(), sys.getprofile()
        try:
            yield
        finally:
            self.stay_single()
            if is_main:
                for number, handler in handlers.items():
                    if signal.getsignal(number) is not handler and handler is not None:
                        signal.signal(number, handler)
            if sys.gettrace() is not trace:
                sys.settrace(trace)
            if sys.getprofile() is not profile:
                sys.setprofile(profile)
            if (broken := self._broken()) is not None:
                self._die(broken)

    def _broken(self) -> str | None:
        """Return what code of a user has done that kindlm cannot go on after."""
        assert self._memory is not None
        for number in (*_OUTPUT, self._canary):
            try:
                os.fstat(number)
            except OSError:
                name = {1: "standard output", 2: "standard error"}.get(number)
                return f"it closed {name or 'descriptors that it had not opened'}"
        if any(each is not None and each.closed for each in (sys.__stdout__, sys.__stderr__)):
            return "it closed sys.stdout or sys.stderr"
        deadline = time.monotonic() + _ANNOUNCED_S
        while self._strays > self._memory.announced:
            if time.monotonic() > deadline:
                return f"it sent {self.notes.how}"
            time.sleep(0.01)
        return None

    def _die(self, how: str) -> NoReturn:
        self.notes.how = how
        self._report()
        self._exit(1)
        raise AssertionError("the process has ended")

    def _report(self) -> None:
        if self._memory is not None and os.getpid() == self._pid:
            self._memory.write(self.notes)

    # The child.

    def _begin(self, parent: int) -> None:
        """Prepare a child: it ends with its parent, and sees what ends it."""
        self.notes = _Notes(run=self.lost.run, unexplained=self.lost.unexplained)
        self._pid = os.getpid()
        if self._memory is not None:
            self._relayed = self._memory.announced  # the others were for those before
        _end_with(parent)
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                signal.signal(number, self._interrupt)
        self._folder = Path.cwd()
        self._canary = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._watch_exits()

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        if self.is_relayed(number):
            raise KeyboardInterrupt

    def _watch_exits(self) -> None:
        """See calls that end or replace the process without any trace, or signal both processes."""
        for name in ("_exit", "abort", "execv", "execve", "kill", "killpg"):
            seen = self._seen(name, getattr(os, name))
            for module in (os, sys.modules[os.name]):  # `posix` has the same functions
                setattr(module, name, seen)

    def _seen(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if os.getpid() == self._pid:
                if name in ("kill", "killpg"):
                    self._is_signalled(name, arguments)
                else:
                    self._is_called(name, arguments)
            return real(*arguments, **named)

        call.__name__, call.__doc__ = name, real.__doc__
        return call

    def _is_called(self, name: str, arguments: tuple[Any, ...]) -> None:
        first = repr(arguments[0])[:200] if arguments else ""
        # The caller's caller: there is none when Python itself calls, at its end.
        caller = sys._getframe(1).f_back  # noqa: SLF001
        how = f"os.{name}({first}){_place(caller)}"
        if self._memory is not None:
            self._blame(how)
        elif self._explain is not None:
            self._explain(how)
            code = arguments[0] if name == "_exit" and arguments else 1
            self._exit(code if isinstance(code, int) and code % 256 else 1)

    def _is_signalled(self, name: str, arguments: tuple[Any, ...]) -> None:
        """End this process before it signals the parent, who would take that for the user's."""
        if self._memory is None or len(arguments) != 2 or not arguments[1]:
            return
        own = (0, os.getpgrp()) if name == "killpg" else (0, -1, -os.getpgrp(), os.getppid())
        if arguments[0] in own:
            caller = sys._getframe(1).f_back  # noqa: SLF001
            number = getattr(arguments[1], "name", arguments[1])
            self._blame(f"os.{name}({arguments[0]}, {number}){_place(caller)}")
            self._exit(1)

    def _blame(self, how: str) -> None:
        """Report what ends the process, and which scenario does it, if one does."""
        self.notes.how = how
        if (current := _current.get()) in self.notes.going:
            self.notes.going = {current: self.notes.going[current]}
        self._report()

    # The parent.

    def _wait(self, pid: int, mask: set[int | signal.Signals]) -> int:
        """Relay signals to a child until it has ended, and return its wait status."""
        assert self._memory is not None
        wake, waker = os.pipe()
        for end in (wake, waker):
            os.set_blocking(end, False)
        before = {number: signal.getsignal(number) for number in (*_SIGNALS, signal.SIGCHLD)}
        beats, silent = self._memory.beats, 0

        def relay(number: int, _frame: FrameType | None) -> None:
            nonlocal silent
            assert self._memory is not None
            self._signals += 1
            self._last_signal, silent = signal.Signals(number), 0
            self._memory.announce()
            # One that heeds neither the first nor the second is killed.
            with suppress(ProcessLookupError):
                os.kill(pid, number if self._signals <= 2 else signal.SIGKILL)

        for number in _SIGNALS:
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, relay)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        waker_before = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._blocked_s = None
        try:
            # Those that a child has left behind end, too.
            while (ended := os.waitpid(-1 if self.ends_all else pid, os.WNOHANG))[0] != pid:
                if ended[0]:
                    continue
                if select.select([wake], [], [], _POLL_S)[0]:
                    with suppress(BlockingIOError):
                        os.read(wake, 4096)
                    continue
                is_held_up = 0 < self._memory.beats == beats
                silent = silent + 1 if is_held_up else 0
                beats = self._memory.beats
                if self._is_stuck(silent):
                    self._blocked_s = silent * _POLL_S
                    os.kill(pid, signal.SIGKILL)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            signal.set_wakeup_fd(waker_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake)
            os.close(waker)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return ended[1]

    def _is_stuck(self, silent: int) -> bool:
        """Return whether the event loop is held up for longer than code of a user may do that.

        Which of them does it is unknown. But when it has not turned for longer than the shortest of
        the timeouts, some scenario is over its time, and nothing can cut that off.
        """
        assert self._memory is not None
        if self.lost.interrupted is not None:
            return False  # it runs no scenario, and only reports
        if self._signals:
            return silent > _GRACE_POLLS.get(self._signals, 0)
        if silent <= _SILENT_POLLS or os.isatty(0):
            return False  # at a terminal a person may debug it, and can press Ctrl-C
        timeouts = (timeout for _, timeout in self._memory.read().going.values())
        return (silent - _SILENT_POLLS) * _POLL_S > min(timeouts, default=_IDLE_S)

    def _conclude(self, status: int) -> None:
        """Note what a child was ended by, for the next one; or end with its exit code."""
        assert self._memory is not None
        if self.ends_all:
            from kindlm.keeper import end_descendants

            end_descendants()
        notes, lost = self._memory.read(), self.lost
        code = os.waitstatus_to_exitcode(status)
        how = notes.how or _ended(code)
        if self._blocked_s is not None:
            how = f"it blocked the event loop for more than {self._blocked_s:.0f} s"
        if notes.code is not None:
            if notes.code == 0 and code != 0:
                self._give_up(f"kindlm's process was ended after the command: {_ended(code)}.")
            self._exit(notes.code or int(lost.any))
        if self._signals and (self._blocked_s is None or lost.interrupted is not None):
            self._exit(1)
        lost.run, lost.how, lost.blocked_s = notes.run, how, self._blocked_s
        lost.unexplained = notes.unexplained or lost.unexplained
        lost.suspects = ()
        names = ", ".join(name for name, _ in notes.going.values() if name)
        if self._signals and notes.run is not None:
            lost.interrupted = self._last_signal
        elif notes.file is not None and notes.file not in lost.files:
            lost.files[notes.file] = how
        elif notes.going and notes.run is not None:
            lost.suspects = tuple(notes.going)
        elif notes.run is None or lost.was_idle:
            during = f" while it ran {names}" if names else ""
            self._give_up(f"kindlm's process was ended{during}: {how}.")
        else:
            lost.was_idle = True
            lost.unexplained = f"kindlm's process was ended while no scenario ran: {how}"

    def _give_up(self, message: str) -> NoReturn:
        assert self._tell is not None
        self._tell(message)
        self._exit(1)
        raise AssertionError("the process has ended")


def _ended(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _place(frame: FrameType | None) -> str:
    """Return where a frame outside of the module `os` is: ` at tests/test_it.py:12`."""
    while frame is not None and frame.f_code.co_filename == os.__file__:
        frame = frame.f_back
    if frame is None:
        return ""
    file = Path(frame.f_code.co_filename)
    with suppress(ValueError, OSError):
        file = file.relative_to(Path.cwd())
    return f" at {file}:{frame.f_lineno}"


def _end_with(parent: int) -> None:
    """Let this process be killed when its parent ends, however that ends."""
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
