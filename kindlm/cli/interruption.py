"""Ctrl-C, SIGTERM, a closed terminal: the first asks the run to stop, the second ends it now."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kindlm.engine.stop import Stop

__all__ = ["stop_on_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals(stop: Stop, tell: Callable[[str], None]) -> Iterator[None]:
    """Let signals stop the run of the running event loop while the context lasts.

    `tell` shows a line to the user.
    """
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        name = "Ctrl-C" if number is signal.SIGINT else number.name
        if not stop.is_requested:
            stop.request(name)
            # A terminal that was closed shows nothing any more.
            with suppress(OSError):
                tell(f"{name}: finishing what is in flight; once more ends it at once.")
        else:
            stop.at_once()

    # What was started with nohup is to outlive its terminal.
    handled = [
        number
        for number in _SIGNALS
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.getsignal(number) for number in handled}
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
