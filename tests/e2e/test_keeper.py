"""`--die-with-parent`: whatever is killed, nothing that kindlm started stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import loaded_kindlm
import pytest
from loaded_kindlm import Started
from workspace import Workspace, signal_twice, until

from kindlm.history.runs import REASON
from kindlm.keeper import _descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

# Ends at no SIGTERM, and has another process in a session of its own that does not, either.
STUBBORN = """
import os, signal, subprocess, sys, time
from pathlib import Path

def stay(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(f"pid-{name}-{os.getpid()}").touch()
    time.sleep(600)

if os.fork() == 0:
    os.setsid()
    stay(sys.argv[1] + "-daemon")
stay(sys.argv[1])
"""

SCENARIO = """
import asyncio, subprocess, sys
from kindlm import Trial, scenario

@scenario("waits", agent=lambda message: message)
async def test_it(t: Trial) -> None:
    subprocess.Popen([sys.executable, "stubborn.py", "popen"], start_new_session=True)
    await asyncio.sleep(600)
"""

PARENT = """
import os, runpy, sys
parent = os.getpid()
if child := os.fork():
    print(child, flush=True)
    os.waitpid(child, 0)
else:
    os.environ["KINDLM_PARENT"] = str(parent)
    runpy.run_module("kindlm", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def starter(workspace: Workspace) -> Iterator[Started]:
    """Start a process that starts kindlm, which starts programs in many ways."""
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "programs"},
        "serve": [{"name": "served", "command": ["python", "stubborn.py", "served"]}],
        "tests": [
            {
                "name": "runs",
                "command": ["python", "stubborn.py", "tested"],
                "expect": {"output": {"contains": ["x"]}},
            }
        ],
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config))
    (workspace.root / "stubborn.py").write_text(STUBBORN)
    (workspace.root / "test_waits.py").write_text(SCENARIO)
    (workspace.root / "starter.py").write_text(PARENT)
    process = loaded_kindlm.start(
        ["test", "kindlm.yaml", "test_waits.py", "--die-with-parent"],
        cwd=workspace.root,
        env=workspace.env,
        stderr=subprocess.DEVNULL,
        module="starter",
    )
    with process:
        yield process
        process.kill()


def started(root: Path) -> dict[int, str]:
    """Return the processes that wait for their end, and what they are."""
    files = (file.name.split("-", 1)[1].rpartition("-") for file in root.glob("pid-*"))
    return {int(process): name for name, _, process in files}


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


ALL = {name + kind for name in ("served", "tested", "popen") for kind in ("", "-daemon")}


def generations(first: int, number: int) -> list[int]:
    """Return a process, its first child, that one's first child, and so on."""
    processes = [first]
    for _ in range(number - 1):
        children = Path(f"/proc/{processes[-1]}/task/{processes[-1]}/children").read_text().split()
        processes.append(int(children[0]))
    return processes


@pytest.mark.parametrize("victim", ["parent", "outer keeper", "inner keeper", "kindlm", "child"])
def test_nothing_stays(workspace: Workspace, starter: Started, victim: str) -> None:
    assert starter.stdout is not None
    outer = int(starter.stdout.readline())
    until(lambda: set(started(workspace.root).values()) >= ALL)
    below = _descendants(outer)
    assert below >= set(started(workspace.root))
    names = ("outer keeper", "inner keeper", "kindlm", "child")
    os.kill(
        {"parent": starter.pid, **dict(zip(names, generations(outer, 4), strict=True))}[victim],
        signal.SIGKILL,
    )
    until(lambda: not any(map(is_alive, {outer, *below})))


def test_a_signal_to_the_keeper_stops_kindlm_and_its_exit_code_is_kindlms(
    workspace: Workspace,
) -> None:
    source = "from pathlib import Path; import time; Path('up').touch(); time.sleep(600)"
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "programs"},
        "tests": [
            {
                "name": "waits",
                "command": ["python", "-c", source],
                "expect": {"output": {"contains": ["x"]}},
            }
        ],
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config))
    arguments = ("test", "--die-with-parent", "--exit-codes", "pytest")
    with workspace.start_anew(*arguments) as process:
        until((workspace.root / "up").exists)
        signal_twice(process, signal.SIGINT)  # type: ignore[arg-type]
        assert process.wait() == 2
    assert workspace.query(f"SELECT {REASON} FROM runs r") == [("Ctrl-C",)]


def test_a_parent_that_is_gone_already_is_noticed(workspace: Workspace) -> None:
    workspace.env["KINDLM_PARENT"] = "1"
    with workspace.start_anew("test", "--die-with-parent") as process:
        out, err = process.communicate()
        assert (out, process.returncode) == ("", 1)
        assert err.startswith("✗ KINDLM_PARENT is '1', and not kindlm's parent ")
    assert not (workspace.root / ".kindlm").exists()
