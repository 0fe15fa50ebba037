"""Ends kindlm and all its processes with the process that started it (`--die-with-parent`).

Agents and served programs have sessions of their own, and a killed kindlm cannot end them. So two
keepers are forked off before anything else happens: kindlm is the child of the inner keeper, which
is a child of the outer one. Each waits for its child, and looks whether its parent is still there.

- If the starting process is gone, the outer keeper ends. If that is gone, the inner one kills
  kindlm, and then all that kindlm has left behind.
- If kindlm is gone, the inner keeper ends what is left. If that is gone, the outer one does.

Both are *subreapers* (Linux): a process whose parent has ended becomes their child, whatever
session it is in, so that none is missed. macOS has no such thing; there, what is below kindlm is
found while kindlm lives, and not if kindlm itself was killed.
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
"""The process that started kindlm, by its id: it may end while kindlm is being loaded."""

KINDLM = (sys.executable, "-P", "-m", "kindlm")
"""How kindlm starts another one. `-P`: modules of its folder are not taken for those of Python."""

_RELAYED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_AWAITED = {*_RELAYED, signal.SIGCHLD}
_POLL_S = 0.2
_GRACE_S = 1.0
"""How long programs may take to end in order before they are killed."""
_PR_SET_CHILD_SUBREAPER = 36


def keep() -> None:
    """Go on in a process that ends, with all that it starts, when this one's parent ends.

    Only that process returns from this.
    """
    parent = os.getppid()
    if os.environ.pop(PARENT, str(parent)) != str(parent):
        os._exit(1)
    # Whoever starts kindlm may have ignored it: then nothing could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    for number in (1, 2):
        keeper = os.getpid()
        if child := os.fork():
            _keep(child, parent, is_inner=number == 2)
        if os.getppid() != keeper:
            os._exit(1)
        if number == 1:
            # A signal to the terminal's group reaches the outer keeper alone, who hands it on.
            os.setsid()
        parent = keeper
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def adopt_orphans() -> None:
    """Make what processes below this one leave behind children of this one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(grace_s: float = _GRACE_S, *, at_once: Collection[int] = ()) -> None:
    """End all processes below this one: programs first get a moment to end in order.

    Those `at_once` get none. What belongs to another user cannot be ended, and is left.
    """
    begun = time.monotonic()
    left, asked = set[int](), set[int]()
    while (left := {*filter(_is_there, left), *_descendants(os.getpid())}) and (
        time.monotonic() < begun + grace_s + _GRACE_S
    ):
        is_over = time.monotonic() >= begun + grace_s
        _send(signal.SIGKILL, left if is_over else left & set(at_once))
        _send(signal.SIGTERM, left - asked)
        asked |= left
        time.sleep(0.02)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _keep(child: int, parent: int, *, is_inner: bool) -> NoReturn:
    """Wait for a child, and end as it did; `parent` is that of this process."""
    adopt_orphans()
    while os.getppid() == parent:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                # Of a keeper that was killed, kindlm itself is left: it must not go on.
                end_descendants(_GRACE_S if is_inner else 0)
                code = os.waitstatus_to_exitcode(ended[1])
                os._exit(code if code >= 0 else 128 - code)
        if (number := _next_signal()) in _RELAYED:
            _send(number, {child})
    if is_inner:
        end_descendants(at_once=[child])
    os._exit(1)


def _next_signal() -> int | None:
    """Return the next signal that has come, None if there is none for a while."""
    if sys.platform == "linux":
        found = signal.sigtimedwait(_AWAITED, _POLL_S)
        number = None if found is None else found.si_signo
    else:
        time.sleep(_POLL_S / 4)
        pending = signal.sigpending() & _AWAITED
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
    """Return the processes below one, by their ids."""
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
    """Yield all processes with their parents."""
    if sys.platform == "linux":
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - many, and often
            with suppress(OSError):
                # After the program's name, which may hold anything: its state, its parent.
                after = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2]
                yield int(name), int(after.split()[1])
    else:
        import subprocess

        listed = subprocess.check_output(["/bin/ps", "-A", "-o", "pid=,ppid="])
        for line in listed.splitlines():
            process, parent = map(int, line.split())
            yield process, parent
