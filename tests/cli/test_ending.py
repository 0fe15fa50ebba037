"""How a process ends when signals come: which code, and what is still done."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kindlm.cli.run_recording import HeldSignals, held_signals
from kindlm.engine.stop import Stop

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def interrupting() -> Iterator[None]:
    """Signals interrupt here as they do once the program has started."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def run(held: HeldSignals) -> None:
    with held.stopping(Stop()):
        pass


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_waits_until_what_is_held_is_done(number: signal.Signals) -> None:
    done: list[str] = []

    def whole() -> None:
        with held_signals() as held:
            asyncio.run(run(held))
            signal.raise_signal(number)
            done.append("report")

    with pytest.raises(KeyboardInterrupt):
        whole()
    assert done == ["report"]


def test_the_second_signal_waits_for_nothing() -> None:
    done: list[str] = []

    def whole() -> None:
        with held_signals() as held:
            asyncio.run(run(held))
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            done.append("report")

    with pytest.raises(KeyboardInterrupt):
        whole()
    assert done == []


def test_nothing_is_held_before_the_run_has_ended() -> None:
    with pytest.raises(KeyboardInterrupt), held_signals():
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_handled_before_anything_else_is_loaded() -> None:
    """When the entry of the program loads its first module."""
    program = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "kindlm.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
import kindlm.__main__
"""
    # Whoever runs the tests in the background may have them ignore Ctrl-C.
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stderr) == (1, "")
