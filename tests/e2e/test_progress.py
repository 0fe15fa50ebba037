"""Progress on a real terminal: what is in flight, and whom it waits for."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios

import loaded_kindlm
from checked_server import LoopbackServer
from rich.cells import cell_len
from workspace import Workspace


def test_the_line_says_whom_the_oldest_execution_waits_for_and_fits(
    workspace: Workspace, server: LoopbackServer
) -> None:
    test = workspace.test("refund-double-\x1b[31mcharge of the 退款 customer who asked for it")
    workspace.suite(server.url, tests=[test], defaults={"repeat": 4})
    server.use_faults([{"status": 429, "retryAfter": 60}])
    master, slave = pty.openpty()
    _set_width(slave, 90)
    environ = {**workspace.env, "CI": "", "TERM": "xterm"}
    process = loaded_kindlm.start(
        ["test"], cwd=workspace.root, env=environ, stdout=subprocess.DEVNULL, stderr=slave
    )
    shown = ""
    for width, name in ((90, r": refund-.*…"), (64, r": …|: \S+…")):
        _set_width(slave, width)
        wanted = rf"0/4   in flight 4, \d+ s, waiting for openai \(429, \d+ s\)(?:{name})"
        while not (line := _find_line(wanted, shown)):
            assert process.poll() is None, shown
            shown += os.read(master, 65536).decode(errors="replace")
        assert cell_len(line) < width
    os.close(slave)
    process.send_signal(signal.SIGINT)
    while "again ends them" not in shown:
        shown += os.read(master, 65536).decode(errors="replace")
    process.send_signal(signal.SIGINT)
    process.wait(60)
    os.close(master)
    assert "\x1b[31mcharge" not in shown
    # The line was erased for the message.
    assert re.search(r"\r\x1b\[2KCtrl-C: [^\r\n]* again ends them", shown)


def _set_width(terminal: int, width: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))


def _find_line(wanted: str, shown: str) -> str | None:
    """Return a line that was drawn as wanted, without its control sequences."""
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown))
    return next((line for line in lines if re.fullmatch(wanted, line)), None)
