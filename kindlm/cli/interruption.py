"""Ctrl-C, SIGTERM, a closed terminal: the first asks the run to stop, the second ends it now.

Once the run has ended, the first lets its report be finished, which takes a moment.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Self

from kindlm.engine.stop import Stop
from kindlm.guard import guard

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HeldSignals:
    """Lets a signal wait, from `hold` on, until the context ends, and raises it again then.

    A second one raises `KeyboardInterrupt` at once.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, signal._HANDLER] = {}
        self._waiting: list[int] = []

    def hold(self) -> None:
        """Let signals wait from now on."""
        for number in self._before:
            signal.signal(number, self._remember)

    def __enter__(self) -> Self:
        """Remember what signals do now."""
        self._before = {number: signal.getsignal(number) for number in _handled()}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let signals do that again, also the one that has waited."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._waiting and error is None:
            signal.raise_signal(self._waiting[0])

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        if not guard.is_relayed(number):
            return
        if self._waiting:
            raise KeyboardInterrupt
        self._waiting.append(number)


@contextmanager
def stop_on_signals(
    stop: Stop, tell: Callable[[str], None], held: HeldSignals | None = None
) -> Iterator[None]:
    """Let signals stop the run of the running event loop while the context lasts.

    `tell` shows a line to the user; `held` has the signals that come after it.
    """
    loop = asyncio.get_running_loop()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if guard.is_relayed(number):
            loop.call_soon_threadsafe(stop_once_more, signal.Signals(number))

    def stop_once_more(number: signal.Signals) -> None:
        name = _name(number)
        if not stop.requested.is_set():
            stop.request(name)
            # A terminal that was closed shows nothing any more.
            with suppress(OSError):
                tell(f"{name}: finishing what is in flight; once more ends it at once.")
        else:
            stop.at_once.set()

    before = {number: signal.getsignal(number) for number in _handled()}
    for number in before:
        signal.signal(number, on_signal)
    if guard.lost.interrupted is not None:
        stop.request(_name(guard.lost.interrupted))
        stop.at_once.set()
    try:
        yield
    finally:
        # One that comes between the two waits for the second.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, before)
        for number, handler in before.items():
            signal.signal(number, handler)
        if held is not None:
            held.hold()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _name(number: signal.Signals) -> str:
    return "Ctrl-C" if number is signal.SIGINT else number.name


def _handled() -> list[signal.Signals]:
    # What was started with nohup is to outlive its terminal.
    return [
        number
        for number in _SIGNALS
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]
