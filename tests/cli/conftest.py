"""What the tests of the command line share: a way to run it, in this process or in another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from terminal_typing import Terminal

from kindlm.cli.app import run


@dataclass(frozen=True)
class Outcome:
    """How a command line ended, and what it wrote."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no CI service."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kindlm(here: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process, in the directory `here`."""

    def call(*arguments: str | Path) -> Outcome:
        code = run([str(argument) for argument in arguments])
        written = capsys.readouterr()
        return Outcome(code, written.out, written.err)

    return call


@pytest.fixture
def process(here: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start a command line as a process of its own, in the directory `here`."""

    def start(
        *arguments: str | Path, environ: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "kindlm", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | (environ or {}),
            **options,
        )

    return start


@pytest.fixture
def terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = os.openpty()
    yield Terminal(master, slave, monkeypatch)
    os.close(master)
    os.close(slave)
