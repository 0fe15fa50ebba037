"""How the process ends on a signal where nothing has to be put in order first.

Nothing heavy is imported here: this comes before everything else.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

INTERRUPTED, USAGE, NOTHING_RUN = 2, 4, 5
"""How pytest ends on Ctrl-C, on wrong usage, and where no test was selected. All are exit code 1
unless `--exit-codes pytest` asks for them."""


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process at once on Ctrl-C or SIGTERM while the context lasts.

    For the time in which modules are loaded: an exception that a signal raises there shows a
    traceback of Python's own, or is lost in a callback of its import system.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt_on_signals() -> None:
    """Let Ctrl-C and SIGTERM unwind, so that everything is closed, and exit with 1."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Who starts a program in the background may have it ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave_with(code: int) -> NoReturn:
    """Exit with a code that stands: a signal that comes now only makes it quicker."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(code)

    for number in _SIGNALS:
        signal.signal(number, leave)
    # Python takes handlers away at its very end, when threads have ended: a signal would kill.
    atexit.register(_ignore_signals)
    raise SystemExit(code)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(1)
