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
from kindlm.events.run import RunOptions


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


@pytest.fixture
def shard(history: Any, make: Any) -> Callable[..., Any]:
    """Record shard `i/n` of a suite of six tests, 1/1 as a whole run; those in `failing` fail."""

    def call(
        run: str,
        shard: str,
        *,
        failing: tuple[str, ...] = (),
        ends: str = "finish",
        group: str | None = "nightly",
        gates: dict[str, float] | None = None,
        options: RunOptions | None = None,
        **suite: Any,
    ) -> Any:
        index, count = map(int, shard.split("/"))
        names = [f"t{number}" for number in range(6)]
        is_shard = {"shard": shard, "group": group} if count > 1 else {}
        writer = history.run(run, **is_shard, options=options)
        selected = [number % count == index - 1 for number in range(6)]
        planned = [
            make.planned(name, selected=chosen)
            for name, chosen in zip(names, selected, strict=True)
        ]
        writer.suite(tests=planned, gates=gates, **suite)
        for name, chosen in zip(names, selected, strict=True):
            if chosen:
                check = make.failed() if name in failing else make.passed()
                writer.execution(name, assertions=(check,))
        getattr(writer, ends)()
        return writer

    return call
