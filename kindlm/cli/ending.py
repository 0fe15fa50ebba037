"""Ends the process on signals before and after a command; it is loaded first, so it stays light."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from kindlm.garbage import put_off

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

INTERRUPTED, USAGE, NOTHING_RUN = 2, 4, 5
"""pytest's exit codes for Ctrl-C, wrong usage and no selected test. kindlm exits with 1 instead,
unless `--exit-codes pytest` is given."""


@contextmanager
def handling(
    numbers: Iterable[signal.Signals],
    handler: Callable[[int, FrameType | None], object] | None = None,
) -> Iterator[None]:
    """Handle signals with `handler`, or as is set later, while the context lasts."""
    before = {number: signal.getsignal(number) for number in numbers}
    if handler is not None:
        for number in before:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def loading() -> Iterator[None]:
    """Import modules without garbage collection, and end the process on Ctrl-C or SIGTERM.

    A KeyboardInterrupt during an import would show a traceback, or get lost in Python's import
    system.
    """
    with handling(_SIGNALS, lambda _number, _frame: os._exit(1)), put_off():
        yield


def interrupt_on_signals() -> None:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt, so that everything is closed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell starts background programs with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave_with(code: int) -> NoReturn:
    """Exit with a code; a signal during the exit ends the process at once, with the same code."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(code)

    for number in _SIGNALS:
        signal.signal(number, leave)
    raise SystemExit(code)
