"""Ends kindlm and all its processes with the process that started it (`--die-with-parent`).

Agents and services have their own sessions, and a killed kindlm cannot end them. So two keepers are
forked first: kindlm is the child of the inner keeper, which is the child of the outer keeper. Each
waits for its child and watches its parent.

- If the starting process ends, so does the outer keeper. Then the inner keeper kills kindlm and all
  processes that it left behind.
- If kindlm ends, the inner keeper ends the remaining processes; if it was killed, the outer one.

On Linux, both are *subreapers*: a process whose parent has ended becomes their child, even in
another session. On macOS, processes below kindlm are only found while kindlm is running.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

PARENT = "KINDLM_PARENT"
"""The variable with the id of the starting process, which may end while kindlm is loading."""

KINDLM = (sys.executable, "-P", "-m", "kindlm")
"""The command of kindlm. With `-P`, modules of the current folder do not shadow Python's."""

_RELAYED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_AWAITED = {*_RELAYED, signal.SIGCHLD}
_POLL_S = 0.2
_GRACE_S = 1.0
"""How long programs may take to terminate before they are killed."""
_PR_SET_CHILD_SUBREAPER = 36


def keep() -> None:
    """Fork the keepers; only the process that they keep returns."""
    parent = os.getppid()
    if (named := os.environ.pop(PARENT, str(parent))) != str(parent):
        with suppress(OSError):
            os.write(2, f"✗ {PARENT} is {named!a}, and not kindlm's parent {parent}.\n".encode())
        os._exit(1)
    # If the starting process ignored SIGCHLD, `waitpid` would not work.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    for number in (1, 2):
        keeper = os.getpid()
        if child := os.fork():
            _keep(child, parent, is_inner=number == 2)
        if os.getppid() != keeper:
            os._exit(1)
        if number == 1:
            # A signal to the terminal's group only reaches the outer keeper, which relays it.
            os.setsid()
        parent = keeper
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def adopt_orphans() -> None:
    """Become the parent of orphaned processes below this one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(grace_s: float = _GRACE_S, *, at_once: Collection[int] = ()) -> None:
    """End all processes below this one: terminate them, and kill them after `grace_s`.

    Kill those `at_once` immediately. Processes of other users are left.
    """
    begun = time.monotonic()
    left, terminated = set[int](), set[int]()
    while (left := {*filter(_is_there, left), *_descendants(os.getpid())}) and (
        time.monotonic() < begun + grace_s + _GRACE_S
    ):
        is_over = time.monotonic() >= begun + grace_s
        _send(signal.SIGKILL, left if is_over else left & set(at_once))
        _send(signal.SIGTERM, left - terminated)
        terminated |= left
        time.sleep(0.02)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _keep(child: int, parent: int, *, is_inner: bool) -> NoReturn:
    """Wait for a child and exit like it; `parent` is that of this process."""
    adopt_orphans()
    while os.getppid() == parent:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                # If the inner keeper was killed, kindlm itself is left and must not go on.
                end_descendants(_GRACE_S if is_inner else 0)
                code = os.waitstatus_to_exitcode(ended[1])
                os._exit(code if code >= 0 else 128 - code)
        if (number := next_signal(_AWAITED, _POLL_S)) in _RELAYED:
            _send(number, {child})
    if is_inner:
        end_descendants(at_once=[child])
    os._exit(1)


def next_signal(awaited: set[signal.Signals], seconds: float) -> int | None:
    """Wait for one of some blocked signals; return it, or None after some seconds."""
    if sys.platform == "linux":
        found = signal.sigtimedwait(awaited, seconds)
        number = None if found is None else found.si_signo
    else:
        end = time.monotonic() + seconds
        while not (pending := signal.sigpending() & awaited) and time.monotonic() < end:
            time.sleep(0.05)
        number = signal.sigwait(pending) if pending else None
    return number


def _send(number: int, processes: Collection[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _descendants(of: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for process, parent in _processes():
        children.setdefault(parent, []).append(process)
    found, new = set[int](), [of]
    while new:
        below = children.get(new.pop(), [])
        found.update(below)
        new += below
    return found


def _processes() -> Iterator[tuple[int, int]]:
    """Yield the ids of all processes, each with that of its parent."""
    if sys.platform == "linux":
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - many, and often
            with suppress(OSError):
                # The state and the parent follow the program's name, which may contain anything.
                after = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2]
                yield int(name), int(after.split()[1])
    else:
        import subprocess

        listed = subprocess.check_output(["/bin/ps", "-A", "-o", "pid=,ppid="])
        for line in listed.splitlines():
            process, parent = map(int, line.split())
            yield process, parent
