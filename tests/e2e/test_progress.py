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

import pytest
from checked_server import LoopbackServer
from rich.cells import cell_len
from workspace import Workspace


@pytest.mark.parametrize(("width", "name"), [(90, r": refund-.*…"), (64, "")])
def test_the_line_says_whom_the_oldest_execution_waits_for_and_fits(
    workspace: Workspace, server: LoopbackServer, width: int, name: str
) -> None:
    test = workspace.test("refund-double-\x1b[31mcharge of the 退款 customer who asked for it")
    workspace.suite(server.url, tests=[test], defaults={"repeat": 4})
    server.use_faults([{"status": 429, "retryAfter": 60}])
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environ = {**workspace.env, "CI": "", "TERM": "xterm"}
    process = subprocess.Popen(
        workspace.command("test"),
        cwd=workspace.root,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    shown = ""
    while not (lines := re.findall(r"[^\r\n]*\(429, \d+ s\)", shown)):
        assert process.poll() is None, shown
        shown += os.read(master, 65536).decode(errors="replace")
    process.send_signal(signal.SIGINT)
    while "once more ends it" not in shown:
        shown += os.read(master, 65536).decode(errors="replace")
    process.send_signal(signal.SIGINT)
    process.wait(60)
    os.close(master)
    line = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", lines[0])
    assert re.fullmatch(rf"0/4   in flight 4{name}, \d+ s, waiting for openai \(429, \d+ s\)", line)
    assert cell_len(line) < width
    assert "\x1b[31m" not in lines[0]
    # The line was erased for the message.
    assert re.search(r"\r\x1b\[2KCtrl-C: [^\r\n]* once more ends it", shown)
