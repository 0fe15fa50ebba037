"""A terminal in which a test types."""

from __future__ import annotations

import os
import termios
from contextlib import suppress
from dataclasses import dataclass

import pytest

from kindlm.cli.app import run


@dataclass
class Terminal:
    """A terminal in which somebody types; `shown` is what was written there."""

    master: int
    slave: int
    monkeypatch: pytest.MonkeyPatch

    def init(self, *options: str, typed: str) -> int:
        slave = os.open(os.ttyname(self.slave), os.O_RDWR | os.O_NOCTTY)
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        os.write(self.master, typed.encode())
        with (
            os.fdopen(slave, "r") as keyboard,
            os.fdopen(os.dup(slave), "w") as screen,
            self.monkeypatch.context() as patch,
        ):
            patch.setattr("sys.stdin", keyboard)
            patch.setattr("sys.stderr", screen)
            return run(["init", *options])

    @property
    def shown(self) -> str:
        os.set_blocking(self.master, False)
        parts = []
        with suppress(BlockingIOError):
            while part := os.read(self.master, 65536):
                parts.append(part)
        return b"".join(parts).decode()
