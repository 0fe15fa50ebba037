"""SIGTERM while scenarios run: pytest would end on the spot, and leave their agents running."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

__all__ = ["interrupt_on_sigterm"]


def interrupt_on_sigterm() -> Callable[[], None]:
    """Let SIGTERM end the session as Ctrl-C does; return what undoes that.

    Not where somebody else handles it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return lambda: None
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def undo() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return undo
