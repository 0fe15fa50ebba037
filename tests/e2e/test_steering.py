"""A run that something beside it, in another thread, ends while it goes on."""

from __future__ import annotations

import json

import loaded_kindlm
import pytest
from workspace import Workspace

from kindlm.history.runs import REASON

TEST = """
import sys, time
from pathlib import Path
Path("up").touch()
while not Path("go").exists():
    time.sleep(0.01)
print("done")
"""

# kindlm, with something beside the run that waits for the first test and then does what it says.
STEERED = """
import sys, threading, time
from contextlib import contextmanager
from pathlib import Path
from kindlm.__main__ import main
from kindlm.cli.run_recording import Requested, end_now

@contextmanager
def beside(steering):
    def steer():
        while not Path("up").exists():
            time.sleep(0.01)
        {act}
    steering.set_max_rpm(600)
    thread = threading.Thread(target=steer)
    thread.start()
    yield
    thread.join()
    print("beside has ended")

record = Requested.record
Requested.record = lambda self, run, _: record(self, run, beside)
sys.argv = ["kindlm", "test", "kindlm.yaml", "test_it.py", "--die-with-parent"]
main()
"""


@pytest.mark.parametrize(
    ("act", "passed", "reason", "code"),
    [
        ("steering.stop('enough'); time.sleep(0.1); Path('go').touch()", 1, "enough", 1),
        ("steering.stop('enough', at_once=True)", 0, "enough", 1),
        ("end_now('another worker has taken over shard 2')", 0, None, 1),
    ],
)
def test_it_is_ended_from_beside(
    workspace: Workspace, act: str, passed: int, reason: str | None, code: int
) -> None:
    test = {"command": ["python", "-c", TEST], "expect": {"output": {"contains": ["done"]}}}
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "programs"},
        "tests": [{"name": f"test {number}", **test} for number in range(3)],
        "defaults": {"concurrency": 1},
    }
    (workspace.root / "kindlm.yaml").write_text(json.dumps(config))
    # What imports code of a user runs in a child process.
    scenario = "from kindlm import scenario\n@scenario('x')\nasync def test_it(t): pass\n"
    (workspace.root / "test_it.py").write_text(scenario)
    (workspace.root / "steered.py").write_text(STEERED.format(act=act))
    with loaded_kindlm.start(
        [], cwd=workspace.root, env=workspace.env, module="steered"
    ) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == code
    ((ended, why),) = workspace.query(f"SELECT ended, {REASON} FROM runs r")
    assert (ended, why) == (None if reason is None else "interrupted", reason)
    finished = workspace.query("SELECT count(*) FROM event_log WHERE type = 'execution.finished'")
    assert finished == [(passed,)]
    if reason is None:
        assert errors.endswith("✗ another worker has taken over shard 2\n")
        assert output == ""
    else:
        assert output.startswith("beside has ended")
