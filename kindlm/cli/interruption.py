"""Ctrl-C and SIGTERM: the first asks the run to stop, the second ends it at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kindlm.engine.runner import Stop

__all__ = ["stop_on_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(stop: Stop, tell: Callable[[str], None]) -> Iterator[None]:
    """Let signals stop the run of the running event loop while the context lasts.

    `tell` shows a line to the user.
    """
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        name = "Ctrl-C" if number is signal.SIGINT else number.name
        if not stop.is_requested:
            tell(f"{name}: finishing what is in flight; once more ends it at once.")
            stop.request(name)
        else:
            stop.at_once()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
