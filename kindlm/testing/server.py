"""A loopback server that speaks the wire formats of model providers, played from a script.

    python -m kindlm.testing.server --script agent.yaml

It prints one line when it is ready, and ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence

from kindlm.testing.loopback import LoopbackServer
from kindlm.testing.node import ScriptError
from kindlm.testing.script import builtin_scripts


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal; return the exit code 0, or 1 if the server could not start."""
    parser = argparse.ArgumentParser(
        prog="python -m kindlm.testing.server",
        description="Speaks OpenAI's Chat Completions and Responses and Anthropic's Messages on "
        "a loopback address, and plays an agent from a script.",
    )
    built_in = ", ".join(builtin_scripts())
    parser.add_argument(
        "--script", required=True, help=f"YAML file, or a built-in script: {built_in}"
    )
    parser.add_argument("--host", default="127.0.0.1", help="loopback address (default 127.0.0.1)")
    port = os.environ.get("PORT", "").strip() or "0"
    parser.add_argument("--port", type=int, default=port, help="default: $PORT, else a free one")
    options = parser.parse_args(arguments)
    try:
        with LoopbackServer(options.script, host=options.host, port=options.port) as server:
            # Not an `Event`: a signal handler must not wait for its lock.
            ended, end = os.pipe()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda _number, _frame: os.write(end, b"."))
            if os.environ.get("KINDLM_SERVICE"):
                # The input ends with the process that started this one.
                threading.Thread(target=_until_input_ends, args=(end,), daemon=True).start()
            sys.stdout.write(f"listening on {server.url}\n")
            sys.stdout.flush()
            os.read(ended, 1)
    except (ScriptError, OSError, OverflowError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _until_input_ends(end: int) -> None:
    # Not through sys.stdin: Python aborts if it ends while a thread holds the lock of sys.stdin.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.write(end, b".")


if __name__ == "__main__":
    sys.exit(main())
