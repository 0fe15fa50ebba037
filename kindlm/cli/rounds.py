"""The rounds of `kindlm watch`: each is `kindlm test`, in a process of its own.

So a round does what that command does, to its exit code, and Python agents are loaded anew.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from kindlm.guard import guard

__all__ = ["Rounds"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# `-P`: a file of the current folder must not take the place of a standard module.
_KINDLM = (sys.executable, "-P", "-m", "kindlm")


class Rounds:
    """Runs the rounds; the first signal ends them, and all signals reach the round that goes on.

    The process of a round leads a session of its own: so a Ctrl-C on the terminal does not reach
    it once from there and once from here, which would make it a second one.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self.stop = asyncio.Event()
        self._arguments = tuple(arguments)
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Run one round to its end, its output on our streams, and return its exit code."""
        process = await asyncio.create_subprocess_exec(
            *_KINDLM,
            "test",
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._process = process
        if self.stop.is_set():
            # The signal came while it was started.
            self._send(signal.SIGINT)
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                self._send(signal.SIGTERM)
                await process.wait()
            self._process = None

    @contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """Let Ctrl-C, SIGTERM and a closed terminal end the rounds while the context lasts."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        # What was started with nohup, or in the background, is to ignore some of them.
        handled = [number for number in _SIGNALS if before[number] is not signal.SIG_IGN]
        for number in handled:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])

    def _on_signal(self, number: signal.Signals) -> None:
        if guard.is_relayed(number):
            self.stop.set()
            self._send(number)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
