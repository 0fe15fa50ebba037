"""Ends the process on a signal while there is nothing to clean up yet.

It imports nothing heavy, since it is loaded before everything else.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from kindlm.garbage import put_off

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

INTERRUPTED, USAGE, NOTHING_RUN = 2, 4, 5
"""How pytest ends on Ctrl-C, on wrong usage, and where no test was selected. All are exit code 1
unless `--exit-codes pytest` asks for them."""


@contextmanager
def loading() -> Iterator[None]:
    """Look for no garbage while modules are loaded, and end the process on Ctrl-C or SIGTERM.

    An exception that a signal raises meanwhile shows a traceback of Python's own, or is lost in a
    callback of its import system.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, lambda _number, _frame: os._exit(1))
    try:
        with put_off():
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
    raise SystemExit(code)
