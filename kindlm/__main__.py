"""Runs `kindlm` and `python -m kindlm`."""

from __future__ import annotations

import os
import signal

# Before the other imports, during which Ctrl-C would show a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(1))

import sys

from kindlm.cli.ending import interrupt_on_signals, leave_with, loading
from kindlm.guard import guard


def main() -> None:
    """Run the command line of this process."""
    with loading():
        from kindlm.cli.app import run
        from kindlm.cli.console import report_ended
    interrupt_on_signals()
    guard.arm(report_ended)
    code = run(sys.argv[1:])
    guard.finish(code)
    leave_with(code)


if __name__ == "__main__":
    main()
