"""What holds only while kindlm loads its modules is over when a command runs tests."""

from __future__ import annotations

from workspace import Workspace

PROJECT = """
[agent]
type = "subprocess"
command = ["cat"]
"""
SCENARIO = """
import gc, pathlib, signal
from kindlm import Trial, scenario


def handlers():
    return [signal.getsignal(number).__qualname__ for number in (signal.SIGINT, signal.SIGTERM)]


WHEN_LOADED = handlers()


@scenario("what this process does")
async def test_process(t: Trial) -> None:
    with pathlib.Path("seen").open("a") as seen:
        print(gc.isenabled(), *WHEN_LOADED, *handlers(), file=seen)
    t.require(True)
"""
IN_THE_RUN = "HeldSignals._on_signal"


def test_garbage_is_looked_for_and_signals_stop_the_run(workspace: Workspace) -> None:
    """A process that has loaded kindlm before would not show it: this one is started anew."""
    root = workspace.root
    (root / "kindlm.toml").write_text(PROJECT, encoding="utf-8")
    (root / "tests").mkdir()
    (root / "tests" / "test_process.py").write_text(SCENARIO, encoding="utf-8")
    with workspace.start_anew("test", "--no-progress") as process:
        process.communicate(timeout=60)
    interrupts = "Guard._interrupt"
    seen = (root / "seen").read_text(encoding="utf-8")
    assert seen == f"True {interrupts} {interrupts} {IN_THE_RUN} {IN_THE_RUN}\n"
